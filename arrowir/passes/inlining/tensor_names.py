"""What tensor maps say of kernels that go: the names of bound parameters, and of the storage bound to them (N17)."""

import numpy as np

from arrowir.ir import IR
from arrowir.passes.inlining.binding import Binding, is_parameter
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.store import Array

Names = dict[str, str]


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
    own = _own_names(ir, mapped)
    finals: dict[int, tuple[str, str]] = {}
    """Names of location and set that a parameter's location has in the end."""
    prefix: dict[int, str] = {}
    """What stands before the names of storage of a kernel, in the end."""
    begin = np.searchsorted(binding.site, np.arange(len(sites) + 1))
    for site in first:
        module, function = int(sites.module[site]), int(sites.function[site])
        head = prefix.get(function, "")
        prefix[int(sites.callee[site])] = f"{head}{site_names[int(sites.row[site])]}:"
        names = found.setdefault(module, {})
        for k in range(int(begin[site]), int(begin[site + 1])):
            actual, formal = int(binding.actual[k]), int(binding.formal_location[k])
            owner = int(locations["set_id"][actual])
            final = finals.get(actual, (head + location_names[actual], head + set_names[owner]))
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


def rename(ir: IR, names: dict[int, Names]) -> IR:
    """Return a batch in whose tensor maps names are replaced."""
    from arrowir.formats.tensor_map import renamed

    table, pool = ir.tables["modules"], ir.pools.extras
    held = table["tensor_map"].copy()
    for module, changes in names.items():
        held[module] = pool.intern(renamed(pool[int(held[module])], changes))
    return ir.replace(modules=table.replace(tensor_map=held))
