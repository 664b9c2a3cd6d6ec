"""What tensor maps say of kernels that go: the names of bound parameters, and of the storage bound to them (N17)."""

from dataclasses import dataclass

import numpy as np

from arrowir.ir import IR
from arrowir.passes.inlining.binding import Binding, is_parameter
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.store import Array

Path = tuple[tuple[str, str], ...]
"""The call-sites that lead into a kernel, outermost first: the name of each, and of the kernel that it calls."""


@dataclass(frozen=True)
class Made:
    """A name of storage that a kernel brings: it is known once that is there, since it has to be free (rule R6)."""

    path: Path
    location: str
    """What the location is called there."""
    rank: int
    """Which of those of this name it is."""
    of_set: bool
    """Whether its set is meant."""


Names = dict[str, str | Made]


def tensor_names(ir: IR, sites: Sites, binding: Binding, removed: Array) -> dict[int, Names]:
    """Return by module how its tensor map's names of parameters change.

    Parameters
    ----------
    ir
        The batch as it goes into the pass.
    sites, binding
        The call-sites that are expanded, inner ones too, and what their parameters are bound to.
    removed
        Mask of the functions that go.
    """
    modules = ir.tables["modules"]
    if not modules.present("tensor_map"):
        return {}
    mapped = modules["tensor_map"] >= 0
    first = _first_sites(sites, mapped)
    found: dict[int, Names] = {}
    locations, sets = ir.tables["locations"], ir.tables["sets"]
    location_names, set_names, site_names = locations.text(), sets.text(), ir.tables["instructions"].text()
    kernel_names = ir.tables["functions"].text()
    own = _own_names(ir, mapped)
    finals: dict[int, tuple[str | Made, str | Made]] = {}
    """Names of location and set that a parameter's location has in the end."""
    paths: dict[int, Path] = {}
    begin = np.searchsorted(binding.site, np.arange(len(sites) + 1))
    for site in first:
        module, function = int(sites.module[site]), int(sites.function[site])
        path = paths.get(function, ())
        callee = int(sites.callee[site])
        paths[callee] = (*path, (site_names[int(sites.row[site])], kernel_names[callee]))
        names = found.setdefault(module, {})
        for k in range(int(begin[site]), int(begin[site + 1])):
            actual, formal = int(binding.actual[k]), int(binding.formal_location[k])
            if actual in finals:
                final = finals[actual]
            elif path:
                rank = _rank(ir, actual)
                name = location_names[actual]
                final = Made(path, name, rank, of_set=False), Made(path, name, rank, of_set=True)
            else:
                final = location_names[actual], set_names[int(locations["set_id"][actual])]
            finals[formal] = final
            if removed[sites.callee[site]]:
                old = location_names[formal], set_names[int(binding.formal[k])]
                for before, after in zip(old, final, strict=True):
                    if before not in own[module]:
                        names.setdefault(before, after)
    return {module: names for module, names in found.items() if names}


def _first_sites(sites: Sites, mapped: Array) -> list[int]:
    """Return for each kernel of modules with tensor maps the first call-site in program order, bodies in their place.

    Call-sites are sorted by function and program order. Of those of one function that call one kernel the first counts.
    """
    key = np.stack((sites.function, sites.callee), axis=1)
    _, number = np.unique(key, axis=0, return_index=True)
    number = np.sort(number[mapped[sites.module[number]]])
    inside: dict[int, list[int]] = {}
    for site in number.tolist():
        inside.setdefault(int(sites.function[site]), []).append(site)
    found: list[int] = []
    seen: set[int] = set()
    stack = [site for site in reversed(number.tolist()) if sites.ordinary[site]]
    while stack:
        site = stack.pop()
        callee = int(sites.callee[site])
        if callee not in seen:
            seen.add(callee)
            found.append(site)
            stack += reversed(inside.get(callee, []))
    return found


def _own_names(ir: IR, mapped: Array) -> dict[int, set[str]]:
    """Return by module the names of the parameters of ordinary functions: in a tensor map these mean themselves."""
    sets, locations = ir.tables["sets"], ir.tables["locations"]
    function = sets["function_id"]
    mine = is_parameter(sets["kind"]) & (ir.array("functions", "is_kernel")[function] == 0)
    mine &= mapped[ir.array("sets", "module_id")]
    found: dict[int, set[str]] = {module: set() for module in np.flatnonzero(mapped).tolist()}
    for table, rows in (("sets", np.flatnonzero(mine)), ("locations", np.flatnonzero(mine[locations["set_id"]]))):
        modules = ir.array(table, "module_id")[rows].tolist()
        for module, name in zip(modules, ir.tables[table].text().take(rows), strict=True):
            found[module].add(name)
    return found


def _rank(ir: IR, location: int) -> int:
    """Return how many locations of its function that stand before a location have its name."""
    names, function = ir.tables["locations"].text(), ir.array("locations", "function_id")
    first = int(np.searchsorted(function, function[location]))
    return sum(names[row] == names[location] for row in range(first, location))


def rename(ir: IR, names: dict[int, Names]) -> IR:
    """Return a batch in whose tensor maps names are replaced.

    Parameters
    ----------
    ir
        The batch as it comes out of the pass.
    names
        New names by old ones, by module.
    """
    from arrowir.formats.tensor_map import renamed

    table, pool = ir.tables["modules"], ir.pools.extras
    held = table["tensor_map"].copy()
    for module, changes in names.items():
        made = [name for name in changes.values() if isinstance(name, Made)]
        known = _names_of_made(ir, module, made) if made else {}
        final = {old: known[new] if isinstance(new, Made) else new for old, new in changes.items()}
        held[module] = pool.intern(renamed(pool[int(held[module])], final))
    return ir.replace(modules=table.replace(tensor_map=held))


def _names_of_made(ir: IR, module: int, made: list[Made]) -> dict[Made, str]:
    """Return what storage that kernels have brought into a module is called there."""
    locations, chains = ir.tables["locations"], ir.tables["call_chains"]
    chain = locations["call_chain_id"]
    sites, names = chains.text(), locations.text()
    originals, sets = locations.text("original_name"), ir.tables["sets"].text()
    wanted = {one.location for one in made}
    found: dict[tuple[Path, str], list[int]] = {}
    bounds = np.searchsorted(ir.array("locations", "module_id"), (module, module + 1))
    for row in range(*bounds.tolist()):
        if chain[row] < 0 or originals[row] not in wanted:
            continue
        path: list[tuple[str, str]] = []
        at = int(chain[row])
        while at >= 0:
            path.append((sites[at], ir.pools.names[int(chains["kernel"][at])]))
            at = int(chains["parent_id"][at])
        found.setdefault((tuple(reversed(path)), originals[row]), []).append(row)
    result: dict[Made, str] = {}
    for one in made:
        rows = found.get((one.path, one.location), [])[one.rank :]
        if rows:
            result[one] = sets[int(locations["set_id"][rows[0]])] if one.of_set else names[rows[0]]
        else:  # it stands in a loop without trips: nothing of it is left
            result[one] = ":".join([*(site for site, _ in one.path), one.location])
    return result
