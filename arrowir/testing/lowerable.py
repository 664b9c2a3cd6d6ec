"""Making drawn programs ones whose loops can all become branches."""

from collections.abc import Iterator
from typing import Any

from arrowir.testing.bir import Json
from arrowir.testing.expressions import affine, affine_old

STRUCTURED = ("Loop", "DynamicForLoop", "DoWhile")


def lowerable(document: Json) -> Json:
    """Take out of a module, in place, what is known at run time only once its loops are branches.

    Parameters
    ----------
    document : dict
        A module whose functions have loops of all kinds. Which loops become branches is not looked at: symbolic
        immediates and unroll dependencies in loops no longer depend on axes, and the latter are on what stands before.

    Returns
    -------
    dict
        The module.

    Examples
    --------
    >>> lowerable({"functions": [], "version": 2})
    {'functions': [], 'version': 2}
    """
    kernels: Any = document.get("nki_functions") or []
    kernels = kernels["functions"] if isinstance(kernels, dict) else kernels
    for function in (*document["functions"], *kernels):
        rows = list(_rows(function["blocks"], inside=False))
        places = {row.get("name"): place for place, (row, _) in enumerate(rows) if row["opcode"] not in STRUCTURED}
        first = affine() if document["version"] == 2 else affine_old()
        for place, (row, inside) in enumerate(rows):
            for operand in row.get("ins", ()):
                if inside and operand["kind"] == "symbolic_imm_value" and "expr" in operand:
                    operand["expr"] = first
            entries = row.pop("unroll_dependencies", ())
            entries = [e for e in entries if places.get(e[0], place) < place and row["opcode"] not in STRUCTURED]
            if inside:
                entries = [[name, kind, [first] * len(indices), *rest] for name, kind, indices, *rest in entries]
            if entries:
                row["unroll_dependencies"] = entries
                ordered = {key: row[key] for key in sorted(row)}
                row.clear()
                row.update(ordered)
    return document


def _rows(blocks: list[Json], *, inside: bool) -> Iterator[tuple[Json, bool]]:
    """Return instructions in program order, and whether each is in a loop."""
    for block in blocks:
        for row in block["instructions"]:
            yield row, inside
            yield from _rows(row.get("blocks", []), inside=True)
