"""Generated modules for tests and benchmarks: `workloads` after real kernels, `strategies` for Hypothesis."""
