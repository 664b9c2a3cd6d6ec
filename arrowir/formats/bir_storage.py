"""The storage of a function to rows: sets with their locations, registers, aliases (rules F3, R2)."""

from typing import TYPE_CHECKING, Any

from arrowir import layouts
from arrowir.extras import PLACEHOLDER
from arrowir.formats import shapes
from arrowir.formats.json_text import Number
from arrowir.formats.kept_text import Reference, Text
from arrowir.formats.members import nulls_of, slots_of
from arrowir.formats.resolve import Storage
from arrowir.formats.values import MAX_INT, Json, Wrong, expect, expect_int, items_of, kind_of
from arrowir.schema import NULL_INT

if TYPE_CHECKING:
    from arrowir.formats.bir_reader import BirReader

_SETS, _LOCATIONS, _REGISTERS = nulls_of("sets"), nulls_of("locations"), nulls_of("registers")
_PARTITIONS, _BYTES = slots_of("locations").index("partitions"), slots_of("locations").index("bytes")
_SET_KIND = slots_of("sets").index("kind")

_Placed = list[tuple[Json, str, tuple[Reference, ...]]]
"""Locations of a function: the object, its JSON path in the function, the names in its text."""


def read_allocations(reader: "BirReader", function: int, storage: Storage, entries: list[Any]) -> None:
    """Read the allocations of a function, and resolve what they name: that is all storage of the same function."""
    first = reader.count("locations")
    placed: _Placed = []
    for place, entry in enumerate(entries):
        path = f"allocations[{place}]"
        reader.inside(path, _entry, reader, entry, function, place, storage, path, placed)
    storage.finish(reader.set_of.__getitem__)
    for location, (obj, path, references) in enumerate(placed, first):
        reader.inside(path, _aliases, reader, obj, location, function, storage)
        for reference in references:
            found = storage.rows_of.get(reference.name, [-1])[0]
            reader.refer("locations", location, reference, found, function)


def _entry(
    reader: "BirReader", entry: Any, function: int, ordinal: int, storage: Storage, path: str, placed: _Placed
) -> None:
    skind = entry.get("Skind") if isinstance(entry, dict) else None
    if skind is not None and skind.__class__ is not str:
        raise Wrong("Skind", f"expected a string, found {kind_of(skind)}")
    is_set = skind == "memory_location_set" or (
        skind is None and isinstance(entry, dict) and "memorylocations" in entry
    )
    if not is_set:
        row, _ = reader.members.fill(shapes.REGISTER, _REGISTERS, entry)
        name = reader.named("registers", entry)
        row[0], row[1] = function, ordinal
        storage.add_register(name, reader.append("registers", row))
        return
    row, _ = reader.members.fill(shapes.SET, _SETS, entry)
    name = reader.named("sets", entry)
    row[0], row[1] = function, ordinal
    own = reader.append("sets", row)
    storage.sets.append((name, own, row[_SET_KIND]))
    inner = items_of(entry, "memorylocations")
    if inner and entry.get("dtype") is None:
        raise Wrong("", "a memory location set with locations must have the member `dtype`")
    for place, obj in enumerate(inner):
        at = f"memorylocations[{place}]"
        references = reader.inside(at, _location, reader, obj, own, row[_SET_KIND], storage)
        placed.append((obj, f"{path}.{at}", references))


def _location(reader: "BirReader", obj: Any, owner: int, kind: int, storage: Storage) -> tuple[Reference, ...]:
    dims = obj.get("dims") if isinstance(obj, dict) else None
    sizes = [] if dims is None else [expect_int(n, f"dims[{i}]") for i, n in enumerate(expect(dims, list, "dims"))]
    partitions, size = _extent(sizes)
    if dims is not None and (len(sizes) != 2 or NULL_INT in sizes):
        reader.members.marks["dims"] = layouts.RAW
    row, references = reader.members.fill(shapes.LOCATION, _LOCATIONS, obj)
    name = reader.named("locations", obj)
    row[0], row[_PARTITIONS], row[_BYTES] = owner, partitions, size
    storage.locations.append((name, reader.append("locations", row), kind))
    reader.set_of.append(owner)
    return references


def _aliases(reader: "BirReader", obj: Json, location: int, function: int, storage: Storage) -> None:
    for place, entry in enumerate(items_of(obj, "alias")):
        reader.inside(f"alias[{place}]", _alias, reader, entry, location, function, storage)


def _alias(reader: "BirReader", entry: Any, location: int, function: int, storage: Storage) -> None:
    form = "expected [location, kind] or [set, location, kind]"
    if not isinstance(entry, list) or len(entry) not in (2, 3):
        raise Wrong("", f"{form}, found {kind_of(entry)}{f' of {len(entry)} items' if isinstance(entry, list) else ''}")
    *names, kind = entry
    for place, name in enumerate(names):
        expect(name, str, f"[{place}]")
    candidates = storage.rows_of.get(names[-1], [])
    target, own, set_name = -1, -1, -1
    if len(names) == 2:
        inside = [row for row in candidates if reader.texts["sets"][reader.set_of[row]] == names[0]]
        candidates = inside or candidates
        own = reader.set_of[inside[0]] if inside else storage.set_named.get(names[0], -1)
        if own < 0:
            set_name = reader.members.name_id(names[0], "[0]")
            reader.findings.add_unresolved(function, "set", names[0], ("locations", location))
    if candidates:
        target = candidates[0]
        if len(candidates) > 1:
            reader.findings.add_ambiguous(function, "location", names[-1], target)
    else:
        reader.findings.add_unresolved(function, "location", names[-1], ("locations", location))
    name = -1 if target >= 0 else reader.members.name_id(names[-1], f"[{len(names) - 1}]")
    text = Text()
    text.parts.append("[" + f"{PLACEHOLDER}," * len(names))
    text.add(kind, f"[{len(names)}]")
    extra = reader.pools.extras.intern("".join([*text.parts, "]"]))
    reader.append("aliases", (location, target, own, name, set_name, _alias_kind(kind, f"[{len(names)}]"), extra))


def _extent(sizes: list[int]) -> tuple[int, int]:
    """Return partitions and bytes per partition of some dims."""
    if len(sizes) < 2:
        return (1, sizes[0]) if sizes else (NULL_INT, NULL_INT)
    size = 1
    for number in sizes[1:]:
        size *= number
    if abs(size) > MAX_INT and size != NULL_INT:
        raise Wrong("dims", f"the product {size} of the sizes does not fit 64 bits")
    return sizes[0], size


def _alias_kind(kind: Any, path: str) -> int:
    """Read the kind of an alias: an integer; booleans and floats count as one."""
    if isinstance(kind, Number) or kind.__class__ is float:
        try:
            kind = int(float(kind.text if isinstance(kind, Number) else kind))
        except (ValueError, OverflowError):
            raise Wrong(path, "expected an integer, found a number that is none") from None
    return expect_int(int(kind) if isinstance(kind, bool) else kind, path)
