"""What the argument maps of call-sites name: parameters of the kernel and storage of the caller (rules R2, N4).

All entries of all call-sites are looked up at once, by function and name, as the reader looks up those of call-sites
that it finds in a file.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import frames, vocabulary
from arrowir.ir import IR
from arrowir.passes.inlining.binding import is_parameter, of_kind
from arrowir.passes.translating.requests import Requests
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

_PREFERRED = {
    vocabulary.DIRECTION_IN: vocabulary.INPUT_KINDS,
    vocabulary.DIRECTION_OUT: vocabulary.OUTPUT_KINDS,
}
"""Kinds of sets that names in a map mean before others."""


@dataclass(frozen=True)
class Arguments:
    """The entries of call-sites, in the order of rows: one item in every array."""

    site: Array
    direction: Array
    formal: Array
    """The name, by its number in `names`."""
    actual: Array
    names: list[str]
    formal_set: Array
    """Row in the batch of kernels, or -1."""
    formal_register: Array
    location: Array
    """Row of the caller, or -1."""
    set_id: Array
    register: Array
    several: Array
    """Whether the actual's name is that of several things of its kind."""

    def pick(self, kept: Array) -> "Arguments":
        """Return some of the entries (a mask)."""
        columns = {name: value[kept] for name, value in vars(self).items() if name != "names"}
        return Arguments(**columns, names=self.names)

    @property
    def unknown(self) -> Array:
        """Mask of entries whose formal is no parameter of the kernel."""
        return (self.formal_set < 0) & (self.formal_register < 0)

    @property
    def unresolved(self) -> Array:
        """Mask of entries whose actual is nothing of the caller."""
        return (self.location < 0) & (self.set_id < 0) & (self.register < 0)


def resolve(ir: IR, kernels: IR, requests: Requests, site: Array, caller: Array, callee: Array) -> Arguments:
    """Look up the argument maps of call-sites.

    Parameters
    ----------
    ir, kernels
        The batch with the callers, and that with the kernel functions.
    requests
        What call-sites ask for.
    site
        The call-sites, by their numbers in `requests`.
    caller, callee
        The function of each one in `ir`, and the function that it calls in `kernels`.
    """
    numbers: dict[str, int] = {}
    entries = [
        [(d, numbers.setdefault(f, len(numbers)), numbers.setdefault(a, len(numbers))) for d, f, a in r.entries]
        for r in requests.distinct
    ]
    count = np.array([len(listed) for listed in entries], np.int64)
    flat = np.array([entry for listed in entries for entry in listed], np.int64).reshape(-1, 3)
    of_site = requests.of_site[site]
    begins = np.concatenate(([0], np.cumsum(count)))[:-1]
    number = np.repeat(np.arange(len(site)), count[of_site])
    within = np.arange(len(number)) - np.repeat(np.cumsum(count[of_site]) - count[of_site], count[of_site])
    direction, formal, actual = flat[begins[of_site][number] + within].T
    names = list(numbers)
    asked = _Asked(names, direction)
    formal_set = asked.parameters(kernels, callee[number], formal)
    formal_register, _ = asked.registers(kernels, callee[number], formal)
    formal_register = np.where(formal_set >= 0, -1, formal_register)

    of_register = formal_register >= 0
    location, many_locations = asked.things(ir, "locations", caller[number], actual)
    set_id, many_sets = asked.things(ir, "sets", caller[number], actual)
    register, many_registers = asked.registers(ir, caller[number], actual)
    location[of_register] = set_id[of_register] = -1
    set_id[location >= 0] = -1
    register[(location >= 0) | (set_id >= 0)] = -1
    several = np.select([location >= 0, set_id >= 0, register >= 0], [many_locations, many_sets, many_registers], False)
    inside = np.bincount(ir.tables["locations"]["set_id"], minlength=ir.count("sets"))
    single = np.flatnonzero((set_id >= 0) & (inside[np.maximum(set_id, 0)] == 1) if len(inside) else set_id >= 0)
    location[single] = np.searchsorted(ir.tables["locations"]["set_id"], set_id[single])
    return Arguments(
        number, direction, formal, actual, names, formal_set, formal_register, location, set_id, register, several
    )  # fmt: skip


class _Asked:
    """Entries that are looked up: names by their numbers, and the direction of each."""

    def __init__(self, names: list[str], direction: Array) -> None:
        self.names, self.direction = names, direction

    def parameters(self, ir: IR, function: Array, name: Array) -> Array:
        """Return the parameter sets that names mean: by the name of a location, else by their own."""
        locations, sets = self._candidates(ir, "locations", function), self._candidates(ir, "sets", function)
        by_location, _ = self._found(_parameters(locations), function, name, "set")
        own, _ = self._found(_parameters(sets), function, name)
        return np.where(by_location >= 0, by_location, own)

    def things(self, ir: IR, table: str, function: Array, name: Array) -> tuple[Array, Array]:
        """Return the locations or sets that names mean, and whether there are several."""
        return self._found(self._candidates(ir, table, function), function, name)

    def registers(self, ir: IR, function: Array, name: Array) -> tuple[Array, Array]:
        """Return the registers that names mean: the first of several."""
        return self._found(self._candidates(ir, "registers", function), function, name)

    def _candidates(self, ir: IR, table: str, function: Array) -> "pl.DataFrame":
        """Return the rows of some functions, with name and kind."""
        import polars as pl

        column = ir.tables[table].schema.column("name")
        names = (frames.copied if ir.count(table) <= frames.COPIED else frames.viewed)(ir, table, column)
        of = {"sets": np.arange(ir.count("sets")), "locations": ir.tables["locations"]["set_id"]}.get(table)
        owner = np.full(ir.count(table), -1) if of is None else of
        kind = np.full(ir.count(table), -1) if of is None else ir.tables["sets"]["kind"][owner]
        wanted = np.zeros(ir.count("functions") + 1, bool)
        wanted[function] = True
        frame = pl.DataFrame(
            {"function": ir.array(table, "function_id"), "row": np.arange(ir.count(table)), "set": owner, "kind": kind}
        ).with_columns(names.alias("name"))
        return frame.filter(wanted[ir.array(table, "function_id")])

    def _found(self, among: "pl.DataFrame", function: Array, name: Array, answer: str = "row") -> tuple[Array, Array]:
        """Look names up; of several rows one of a preferred kind comes first, else the first in the file (rule R2)."""
        import polars as pl

        row, several = np.full(len(name), -1, np.int64), np.zeros(len(name), bool)
        for direction, kinds in _PREFERRED.items():
            mine = np.flatnonzero(self.direction == direction)
            if not len(mine) or not len(among):
                continue
            liked = pl.Series("liked", of_kind(among["kind"].to_numpy(), kinds))
            first = (
                among.with_columns(~liked)
                .sort("liked", "row", maintain_order=True)
                .group_by("function", "name", maintain_order=True)
                .agg(pl.col(answer).first().alias("answer"), pl.len().alias("count"))
            )
            asked = pl.DataFrame(
                {"function": function[mine], "name": pl.Series(self.names, dtype=pl.String).gather(name[mine])}
            ).with_columns(pl.col("function").cast(first.schema["function"]))
            joined = asked.join(first, on=["function", "name"], how="left", maintain_order="left")
            row[mine] = joined["answer"].fill_null(-1).to_numpy()
            several[mine] = joined["count"].fill_null(0).to_numpy() > 1
        return row, several


def _parameters(rows: "pl.DataFrame") -> "pl.DataFrame":
    return rows.filter(is_parameter(rows["kind"].to_numpy()))
