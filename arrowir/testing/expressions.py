"""Constructors for symbolic pieces: expressions over loop axes, symbolic accesses, loops."""

from collections.abc import Mapping, Sequence
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json, Pattern


def induction(axis: str) -> Json:
    """Return the value of a loop axis.

    Parameters
    ----------
    axis : str
        The axis.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> induction("i")
    {'axis': 'i', 'kind': 'AffIVKind'}
    """
    return {"axis": axis, "kind": "AffIVKind"}


def affine(terms: Mapping[str, int] | None = None, constant: int = 0) -> Json:
    """Return a sum of multiples of loop axes and a constant.

    Parameters
    ----------
    terms : mapping of str to int, optional
        The coefficient of each axis.
    constant : int
        The constant.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> affine({"i": 2}, 1)["terms"][0]["coeff"]
    2
    """
    entries = [{"coeff": factor, "idx": induction(axis)} for axis, factor in (terms or {}).items()]
    return {"c": constant, "kind": "AffExprKind", "terms": entries}


def affine_old(terms: Mapping[str, int] | None = None, constant: int = 0, **more: Any) -> Json:
    """Return a sum of multiples of loop axes and a constant in the form of version 1.

    Parameters
    ----------
    terms : mapping of str to int, optional
        The coefficient of each axis.
    constant : int
        The constant.
    **more
        Further members, such as `op` and `op_param`.

    Returns
    -------
    dict
        The expression.

    Examples
    --------
    >>> affine_old({"i": 2}, op="Mod", op_param=4)["op"]
    'Mod'
    """
    entries = [{"AxisLabel": axis, "coef": factor} for axis, factor in (terms or {}).items()]
    return bir.record(terms=entries, c=constant, **more)


def modulo(numerator: Json, denominator: int) -> Json:
    """Return the remainder of a division.

    Parameters
    ----------
    numerator : dict
        An expression.
    denominator : int
        What it is divided by.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> modulo(induction("i"), 2)["denom"]
    2
    """
    return {"denom": denominator, "kind": "ModuloKind", "numer": numerator}


def floor_divided(numerator: Json, denominator: int) -> Json:
    """Return the floor of a quotient.

    Parameters
    ----------
    numerator : dict
        An expression.
    denominator : int
        What it is divided by.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> floor_divided(induction("i"), 2)["kind"]
    'FloorDivKind'
    """
    return {"denom": denominator, "kind": "FloorDivKind", "numer": numerator}


def multiplied(expression: Json, scale: int) -> Json:
    """Return a multiple.

    Parameters
    ----------
    expression : dict
        An expression.
    scale : int
        The factor.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> multiplied(induction("i"), 2)["scale"]
    2
    """
    return {"kind": "MultKind", "scale": scale, "var": expression}


def added(*terms: Json) -> Json:
    """Return a sum.

    Parameters
    ----------
    *terms : dict
        Expressions.

    Returns
    -------
    dict
        The expression, in version 2 form.

    Examples
    --------
    >>> added(induction("i"), affine())["n_terms"]
    2
    """
    return {"kind": "SumKind", "n_terms": len(terms), "terms": list(terms)}


def symbolic(
    set_name: str,
    addresses: Sequence[Json],
    pattern: Pattern,
    dtype: str,
    *,
    kind: str = "symbolic_ap",
    full_keys: bool = True,
    **more: Any,
) -> Json:
    """Return an access whose start depends on loop axes.

    Parameters
    ----------
    set_name : str
        The set; it must hold one location.
    addresses : sequence of dict
        One expression for each dimension of the set's shape.
    pattern : list of [int, int]
        Pairs of step and count.
    dtype : str
        The type by which it is accessed.
    kind : str
        `symbolic_ap` or `symbolic_pwap`.
    full_keys : bool
        Also write the access shape.
    **more
        Further members.

    Returns
    -------
    dict
        The operand.

    Examples
    --------
    >>> symbolic("x_set", [affine()], [[1, 4]], "float32")["kind"]
    'symbolic_ap'
    """
    return bir.record(
        kind=kind,
        addrs=list(addresses),
        ap=pattern,
        dtype=dtype,
        memsetref=set_name,
        access_shape=[pair[1] for pair in pattern] if full_keys else None,
        **more,
    )


def loop(
    axis: str,
    lower: int | Json,
    upper: int | Json,
    stride: int,
    instructions: list[Json],
    **more: Any,
) -> Json:
    """Return a loop of one block.

    Parameters
    ----------
    axis : str
        The name of its axis.
    lower, upper : int or dict
        Its bounds, the upper one not included.
    stride : int
        Its step.
    instructions : list of dict
        Its body.
    **more
        Further members, such as `name`.

    Returns
    -------
    dict
        The loop.

    Examples
    --------
    >>> loop("i", 0, 4, 1, [])["LoopAxis"]["ub"]
    4
    """
    return bir.record(
        opcode="Loop",
        LoopAxis=bir.record(name=axis, lb=lower, ub=upper, stride=stride),
        blocks=[bir.block("block0", instructions)],
        **more,
    )
