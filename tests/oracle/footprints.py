"""Footprints and overlaps by brute force: every element of every access, every byte of every location."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

SIZES = {"uint8": 1, "int8": 1, "bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "uint32": 4, "int64": 8}

Cells = frozenset[tuple[int, int]]
"""Pairs of partition and byte; partition 0 where a memory has none."""


def elements(pattern: list[list[int]]) -> Iterator[int]:
    """What each index of a pattern adds to the offset, one after the other."""
    if not pattern:
        yield 0
        return
    (step, num), *rest = pattern
    for index in range(num):
        for inner in elements(rest):
            yield step * index + inner


def cells(operand: Json, place: Json) -> Cells:
    """The bytes of an access, one by one."""
    size = SIZES[operand["dtype"]]
    found: set[tuple[int, int]] = set()
    addr = place.get("addr", 0)
    if place["type"] not in ("SB", "PSUM"):
        for number in elements(operand["ap"]):
            first = addr + (operand["offset"] + number) * size
            found.update((0, first + byte) for byte in range(size))
        return frozenset(found)
    row = place["dims"][1] // size
    (step, lanes), *rest = operand["ap"]
    for lane in range(lanes):
        partition = place.get("base", 0) + (operand["offset"] + lane * step) // row
        for number in elements(rest):
            first = addr + (operand["offset"] % row + number) * size
            found.update((partition, first + byte) for byte in range(size))
    return frozenset(found)


def pairs(places: list[Json]) -> set[tuple[int, int]]:
    """Which locations share a byte: indices into the list, the lower first."""
    held: list[set[tuple[str, int, int, int]]] = []
    for place in places:
        flat = place["type"] == "DRAM"
        partitions, size = place["dims"]
        rows = range(1) if flat else range(place.get("base", 0), place.get("base", 0) + partitions)
        width = partitions * size if flat else size
        bank = place.get("bank", 0) if place["type"] == "PSUM" else 0
        taken = {(place["type"], bank, row, place["addr"] + byte) for row in rows for byte in range(width)}
        held.append(taken if place.get("allocated") else set())
    return {(a, b) for b in range(len(held)) for a in range(b) if held[a] & held[b]}
