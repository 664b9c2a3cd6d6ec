"""Tensor maps: the file beside a module that lists its inputs and outputs, kept as its text (rule N17).

Nothing of it is modelled but where names stand: a text is passed through byte for byte, and a name is replaced in its
place.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic, FormatError
from arrowir.formats import bir_json, content, json_text, targets
from arrowir.ir import IR

NAME = "tensor_map.json"
"""Name of the file beside a module; behind the module's stem and a dot where several modules share a folder."""

KEYS: dict[str, tuple[str, ...]] = {
    "alias_map": ("input_name", "output_name"),
    "inputs": ("name",),
    "outputs": ("name",),
}
"""Lists of the file, and the members of their entries that are names of tensors."""

Span = tuple[int, int]

_space = re.compile(r"[ \t\n\r]*")
_scan = json_text.scan_value


def read(path: str | os.PathLike[str]) -> str:
    """Return the text of a tensor map.

    Raises
    ------
    FormatError
        If it cannot be read, or is no JSON object.
    """
    shown = content.shown(os.fspath(path))
    text = content.decode(content.read_bytes(path, shown), shown)
    value = json_text.parse(text, shown).value
    if not isinstance(value, dict):
        raise FormatError("expected an object, the lists of a tensor map in it", path=shown)
    try:
        name_spans(text)
    except RecursionError:
        raise FormatError("the tensor map is nested too deeply", path=shown) from None
    return text


def name_spans(text: str) -> list[Span]:
    """Return where the names of tensors stand in a tensor map: the strings, with their quotes, in order.

    Examples
    --------
    >>> text = '{"inputs": [{"name": "x", "shape": [1]}], "more": {"name": "y"}}'
    >>> [text[a:b] for a, b in name_spans(text)]
    ['"x"']
    """
    found: list[Span] = []
    for key, (begin, _) in _members(text, _skip(text, 0)):
        names = KEYS.get(key, ())
        if not names or text[begin] != "[":
            continue
        for start in _items(text, begin):
            if text[start] == "{":
                found += [span for inner, span in _members(text, start) if inner in names and text[span[0]] == '"']
    return found


def _skip(text: str, place: int) -> int:
    found = _space.match(text, place)
    return place if found is None else found.end()


def _members(text: str, place: int) -> list[tuple[str, Span]]:
    """Return the members of an object: key, and where the value stands."""
    found: list[tuple[str, Span]] = []
    place = _skip(text, place + 1)
    while text[place] != "}":
        key, place = _scan(text, place)
        begin = _skip(text, _skip(text, place) + 1)
        _, end = _scan(text, begin)
        found.append((key, (begin, end)))
        place = _skip(text, end)
        place = _skip(text, place + 1) if text[place] == "," else place
    return found


def _items(text: str, place: int) -> list[int]:
    """Return where the items of a list begin."""
    found: list[int] = []
    place = _skip(text, place + 1)
    while text[place] != "]":
        found.append(place)
        _, end = _scan(text, place)
        place = _skip(text, end)
        place = _skip(text, place + 1) if text[place] == "," else place
    return found


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a tensor map with names replaced, all at once; every other character stays.

    Parameters
    ----------
    text
        The tensor map.
    names
        New names by old ones.

    Examples
    --------
    >>> renamed('{"inputs":[{"name":"a"},{"name":"b"}],"n":1.50}', {"a": "b", "b": "a"})
    '{"inputs":[{"name":"b"},{"name":"a"}],"n":1.50}'
    """
    out: list[str] = []
    last = 0
    for begin, end in name_spans(text):
        new = names.get(_scan(text, begin)[0])
        if new is not None:
            out += [text[last:begin], json_text.quote(new)]
            last = end
    return "".join([*out, text[last:]])


# -- beside modules ----------------------------------------------------------------------------------------------------


def beside(path: str | os.PathLike[str]) -> Path:
    """Return where the tensor map of a module's JSON file is written.

    Examples
    --------
    >>> str(beside("out/json/bir.json.gz"))
    'out/json/bir.tensor_map.json'
    """
    path = Path(path)
    return path.with_name(f"{bir_json.stem(path.name)}.{NAME}")


def find(source: str) -> Path | None:
    """Return the tensor map of a module's file: its own, else that of its folder; None where there is none."""
    try:
        for place in (beside(source), Path(source).with_name(NAME)):
            if place.is_file():
                return place
    except (OSError, ValueError):  # a name that no file can have
        pass
    return None


def attach(ir: IR, *, required: bool = False) -> tuple[IR, list[Diagnostic]]:
    """Return a batch whose modules have the tensor maps that lie beside their files.

    Parameters
    ----------
    ir
        The batch. Modules that have a tensor map keep it; nothing is attached to what kernels were inlined into before.
    required
        Whether a module without one is an error row.

    Returns
    -------
    ir, diagnostics
        The batch; rows about tensor maps that cannot be read, or are not there.
    """
    table, names = ir.tables["modules"], ir.pools.names.texts
    held = table["tensor_map"].copy()
    inlined = any('"inline_nki_kernel"' in entry for entry in ir.history)
    found: list[Diagnostic] = []
    known: dict[Path, int | FormatError] = {}
    titles = table.text()
    for module in np.flatnonzero(held < 0).tolist():
        source = int(table["source"][module])
        place = find(names[source]) if source >= 0 and not inlined else None
        about: dict[str, Any] = {"module": titles[module], "module_id": module, "pass_name": "run"}
        if place is None:
            if required:
                where = f"beside `{names[source]}`" if source >= 0 else "for a module that was not read from a file"
                text = f"there is no tensor map {where}; put `{NAME}` there, or leave the option `tensor_map` out"
                found.append(diag.make("no_tensor_map", text, **about))
            continue
        if place not in known:
            try:
                known[place] = ir.pools.extras.intern(read(place))
            except FormatError as error:
                known[place] = error
        got = known[place]
        if isinstance(got, FormatError):
            found.append(diag.make("bad_tensor_map", f"the tensor map is left out: {got}", **about))
        else:
            held[module] = got
    if (held == table["tensor_map"]).all():
        return ir, found
    return ir.replace(modules=table.replace(tensor_map=held)), found


def detach(ir: IR) -> IR:
    """Return a batch whose modules have no tensor maps."""
    table = ir.tables["modules"]
    return ir.replace(modules=table.replace(tensor_map=None)) if table.present("tensor_map") else ir


def write(ir: IR, files: Sequence[Path]) -> None:
    """Write the tensor map of each module that has one beside its file (rule F5).

    Parameters
    ----------
    ir
        The batch.
    files
        The JSON file of each module.

    Raises
    ------
    ArrowIRError
        If a file cannot be written.
    """
    texts = ir.pools.extras.texts
    for number, file in zip(ir.tables["modules"]["tensor_map"].tolist(), files, strict=True):
        if number >= 0:
            targets.write_whole(beside(file), texts[number].encode())
