"""The tests: by kind, one folder each; `tests.oracle` and `tests.benchmarks` are importable from them."""
