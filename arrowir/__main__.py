"""`python -m arrowir`: the command."""

import sys

from arrowir.cli import main

if __name__ == "__main__":
    sys.exit(main())
