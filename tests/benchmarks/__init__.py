"""Measurements of arrowir beside other libraries: `python -m tests.benchmarks`.

`registry.py` says what a row of the report is, `inlining.py`, `files.py`, `passes.py` and `commands.py` hold the rows,
`inputs.py` makes what they work on. `worker.py` measures one row in a process of its own, `runner.py` runs the workers
and `report.py` prints what came out.
"""
