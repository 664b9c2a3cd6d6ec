"""Neuron backend IR as Arrow tables keyed by integer ids, transformed batch by batch with columnar operations.

Every public name is bound when it is first used, so that importing the package costs next to nothing.

Examples
--------
>>> import arrowir as air
>>> ir = air.read("data/samples/klr009/scale_add.bir.json")
>>> ir.instructions["opcode"].to_list()
['Load', 'TensorScalar', 'Save']
>>> air.run(ir).ok
True
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from arrowir import build, library, passes, schema, simulate, testing
    from arrowir.analyse.diff import Diff, diff
    from arrowir.analyse.footprints import footprints
    from arrowir.analyse.live_ranges import live_ranges
    from arrowir.analyse.overlaps import overlaps
    from arrowir.batches import concat
    from arrowir.diagnostics import (
        ArrowIRError,
        FormatError,
        OptionError,
        PassError,
        SchemaError,
        SimulationError,
    )
    from arrowir.formats.bir_json import read_json
    from arrowir.formats.parquet import read_parquet
    from arrowir.formats.reading import read
    from arrowir.ir import IR
    from arrowir.passes.base import Pass, PassResult
    from arrowir.passes.pipeline import RunResult
    from arrowir.simulate.equivalence import Equivalence, equivalent
    from arrowir.validation import CheckedRunResult, run
    from arrowir.verify.checking import verify

__version__ = "0.1.0"

__all__ = [
    "IR",
    "ArrowIRError",
    "CheckedRunResult",
    "Diff",
    "Equivalence",
    "FormatError",
    "OptionError",
    "Pass",
    "PassError",
    "PassResult",
    "RunResult",
    "SchemaError",
    "SimulationError",
    "__version__",
    "build",
    "concat",
    "diff",
    "equivalent",
    "footprints",
    "library",
    "live_ranges",
    "overlaps",
    "passes",
    "read",
    "read_json",
    "read_parquet",
    "run",
    "schema",
    "simulate",
    "testing",
    "verify",
]

_MODULES = frozenset({"build", "library", "passes", "schema", "simulate", "testing", "verify"})

_HOMES: dict[str, str] = {
    "IR": "ir",
    "ArrowIRError": "diagnostics",
    "CheckedRunResult": "validation",
    "Diff": "analyse.diff",
    "Equivalence": "simulate.equivalence",
    "FormatError": "diagnostics",
    "OptionError": "diagnostics",
    "Pass": "passes.base",
    "PassError": "diagnostics",
    "PassResult": "passes.base",
    "RunResult": "passes.pipeline",
    "SchemaError": "diagnostics",
    "SimulationError": "diagnostics",
    "concat": "batches",
    "diff": "analyse.diff",
    "equivalent": "simulate.equivalence",
    "footprints": "analyse.footprints",
    "live_ranges": "analyse.live_ranges",
    "overlaps": "analyse.overlaps",
    "read": "formats.reading",
    "read_json": "formats.bir_json",
    "read_parquet": "formats.parquet",
    "run": "validation",
}
"""Where each public name lives."""


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name in _MODULES:
        return import_module(f"arrowir.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"arrowir.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module `arrowir` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
