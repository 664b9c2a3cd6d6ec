"""Entry point of `python -m tests.benchmarks`."""

import sys

from tests.benchmarks.runner import main

if __name__ == "__main__":
    sys.exit(main())
