"""Rules about opcodes that stand alone."""

import numpy as np

from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.registry import Found

_DP = "DevicePrint"


def _printed(g: Group) -> Found | None:
    o = g.arg(0)
    bad = o.is_physical & (o.memory >= 0) & ~o.in_sb & ~o.in_dram
    return g.at(o, bad, name=o.location_text, type=o.memory_text)


def _written_twice(g: Group) -> Found | None:
    """Return the outputs of calls that another call has written before."""
    outs = g.outs()
    ids = np.concatenate([o.ids[o.location >= 0] for o in outs]) if outs else np.empty(0, np.int64)
    ids = np.sort(ids)
    location = g.facts.footprints.location[ids]
    _, first = np.unique(location, return_index=True)
    again = np.ones(len(ids), bool)
    again[first] = False
    if not again.any():
        return None
    rows = ids[again]
    return Found("operands", rows, {"name": g.facts.names("locations", g.facts.footprints.location[rows])})


RULES = [
    of(_DP, "EDP001", "a print has one input", "give it one", lambda g: g.on(g.n_in != 1, actual=g.n_in)),
    of(_DP, "EDP002", "memory is printed, at a place that is known", "copy it to a fixed place first",
       lambda g: g.at(g.arg(0), ~g.arg(0).is_placed, actual=g.arg(0).kind_text)),
    of(_DP, "EDP003", "SB and DRAM are printed", "copy it there first", _printed),
    of("Call", "LNK001", "one call writes a location", "give each call a tensor of its own", _written_twice,
       level="call_sites"),
]  # fmt: skip
