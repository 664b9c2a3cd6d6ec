"""What the simulator covers, and what it leaves open, as tables."""

import inspect
from typing import TYPE_CHECKING

from arrowir import vocabulary
from arrowir.simulate.readings import READINGS
from arrowir.simulate.registry import handlers, reasons

if TYPE_CHECKING:
    import polars as pl


def coverage() -> "pl.DataFrame":
    """Return which opcodes are modelled, one row per opcode.

    Returns
    -------
    polars.DataFrame
        `opcode`; `modelled`; `basis`, how well its semantics are known (certain, strong or inferred); `computes`, in
        words; `family`, the file that defines it; `why_not`, for an opcode that is not modelled. What does not apply
        is null.

    Examples
    --------
    >>> import polars as pl
    >>> from arrowir import simulate
    >>> simulate.coverage().row(by_predicate=pl.col("opcode") == "TensorCopy", named=True)["computes"]
    '`out[i] = cast(in[i])`'
    """
    import polars as pl

    known, refused = handlers(), reasons()
    rows: list[tuple[str, bool, str | None, str | None, str | None, str | None]] = []
    for name in [*vocabulary.OPCODES.values, *(name for name in known if vocabulary.OPCODES.code(name) < 0)]:
        if name not in known:
            rows.append((name, False, None, None, None, refused.get(name)))
            continue
        handler = known[name]
        summary = (inspect.getdoc(handler.run) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
        family = handler.run.__module__.rpartition(".")[2]
        rows.append((name, True, handler.basis, summary.removesuffix("."), family, None))
    columns = ("opcode", "modelled", "basis", "computes", "family", "why_not")
    types: dict[str, type[pl.DataType]] = dict.fromkeys(columns, pl.String)
    return pl.DataFrame(rows, schema={**types, "modelled": pl.Boolean}, orient="row")


def undecided_cases() -> "pl.DataFrame":
    """Return the cases that the known semantics leave open, one row per choice.

    Returns
    -------
    polars.DataFrame
        `case`, as `readings` names it; `when` it is met; `choice`, one that can be made; `means`, what that does.

    Examples
    --------
    >>> import polars as pl
    >>> from arrowir import simulate
    >>> simulate.undecided_cases().filter(pl.col("case") == "mod")["choice"].to_list()
    ['floor', 'truncate']
    """
    import polars as pl

    rows = [(r.name, r.meaning, choice, means) for r in READINGS.values() for choice, means in r.choices.items()]
    return pl.DataFrame(rows, schema=dict.fromkeys(("case", "when", "choice", "means"), pl.String), orient="row")
