"""What call-sites of kernel files ask for: which file, with which arguments; read once per distinct text."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from arrowir import extras, schema, vocabulary
from arrowir.ir import IR
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.store import Array

FORMAT = "bir"
"""The one `kernel_format` that is read: BIR JSON."""

PARTITIONS = 128

MAPS = (("func_args", vocabulary.DIRECTION_IN), ("func_outs", vocabulary.DIRECTION_OUT))


@dataclass(frozen=True, slots=True)
class Request:
    """What one distinct text of a call-site says."""

    binary: str
    """Path of the kernel file, as written."""
    entries: tuple[tuple[int, str, str], ...]
    """Direction, formal and actual of each argument."""
    fault: tuple[str, str] | None = None
    """Code and message of what is wrong with it."""
    sb_bytes: int = 0
    """Bytes per partition of the SB scratchpad that it has, 0 without one."""
    psum_banks: int = 0
    """PSUM scratchpads that it has."""


@dataclass(frozen=True)
class Requests:
    """The requests of call-sites."""

    distinct: list[Request]
    of_site: Array
    """The request of each call-site."""


def read_requests(ir: IR, sites: Sites) -> Requests:
    """Read the members of call-sites."""
    extra = ir.tables["instructions"]["extra"][sites.row]
    texts = ir.pools.extras.texts
    distinct, place = np.unique(extra, return_inverse=True)
    plain = [i < 0 or extras.PLACEHOLDER not in texts[i] for i in distinct.tolist()]
    found = [_read(texts[i] if i >= 0 else "{}") if p else None for i, p in zip(distinct.tolist(), plain, strict=True)]
    requests = [request for request in found if request is not None]
    number = np.cumsum(plain) - 1
    of_site = number[place]
    for site in np.flatnonzero(~np.array(plain, bool)[place]).tolist():  # an expression with a name: hardly ever
        names = _names(ir, int(sites.row[site]))
        of_site[site] = len(requests)
        requests.append(_read(extras.fill(texts[extra[site]], names)))
    return Requests(requests, of_site)


def _names(ir: IR, row: int) -> list[str]:
    """Return the names behind the placeholders in the text of an instruction."""
    references = ir.tables["references"]
    codes = schema.STRUCTURAL["table"]
    mine = np.flatnonzero((references["table"] == codes.index("instructions")) & (references["row"] == row))
    names: list[str] = []
    for at in mine.tolist():
        target, found = codes[references["target"][at]], int(references["target_id"][at])
        if found < 0:
            names.append(ir.pools.names[references["name"][at]])
        elif target == "loops":
            names.append(ir.pools.names[ir.tables["loops"]["axis"][found]])
        else:
            names.append(ir.tables[target].text()[found])
    return names


def _read(text: str) -> Request:
    members: dict[str, Any] = extras.parse(text)
    binary = members.get("klir_binary")
    named = binary if isinstance(binary, str) else ""
    written = members.get("kernel_format")
    if written != FORMAT:
        what = "is absent" if written is None else f"is `{written}`" if isinstance(written, str) else "is no text"
        fault = (
            f"`kernel_format` {what}, and kernel files of format `{FORMAT}` alone are read; "
            "have the kernel compiled to BIR JSON"
        )
        return Request(named, (), ("unknown_kernel_format", fault))
    if not named:
        return Request(
            "", (), ("kernel_file_missing", "the instruction names no kernel file: `klir_binary` is no path")
        )
    entries: list[tuple[int, str, str]] = []
    for key, direction in MAPS:
        try:
            entries += [(direction, formal, actual) for formal, actual in _pairs(members.get(key))]
        except TypeError:
            fault = f"`{key}` must be an object of names, or a list of pairs of names"
            return Request(named, (), ("bad_kernel_option", fault))
    sb_shape, psum_shape = _integers(members.get("sb_buf_shape")), _integers(members.get("psum_buf_shape"))
    # One of the two is the number of partitions; which one, files do not agree on.
    sb_bytes = sb_shape[0] * sb_shape[1] // PARTITIONS if len(sb_shape) == 2 else max(sb_shape, default=0)
    return Request(named, tuple(entries), None, sb_bytes, psum_shape[0] if psum_shape else 0)


def _integers(value: Any) -> list[int]:
    return [item if isinstance(item, int) else 0 for item in value] if isinstance(value, list) else []


def _pairs(value: Any) -> list[tuple[str, str]]:
    """Return the entries of a map; TypeError where it is none."""
    if value is None:
        return []
    pairs: Any = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise TypeError
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise TypeError
        for name in pair:
            try:
                name.encode()
            except UnicodeEncodeError:
                raise TypeError from None
    return [(formal, actual) for formal, actual in pairs]
