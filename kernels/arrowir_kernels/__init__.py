"""Compute kernels: loops over plain numpy arrays, compiled by Numba where it pays. They know numpy alone."""

from arrowir_kernels.edges import (
    count_uses,
    list_unmarked,
    mark_differing,
    mark_ends,
    mark_rows,
    reach_over,
    select_pointing,
)
from arrowir_kernels.flow import peel, trace_blocks
from arrowir_kernels.names import (
    fill_names,
    free_suffixes,
    hash_names,
    measure_names,
    prefix_hits,
    repeated_names,
)
from arrowir_kernels.runs import (
    copy_bytes,
    copy_runs,
    fill_runs,
    find_children,
    increase_runs,
    map_runs,
    number_runs,
    place_clones,
    shift_runs,
)
from arrowir_kernels.spans import nest_spans, reached_over

__all__ = [
    "copy_bytes",
    "copy_runs",
    "count_uses",
    "fill_names",
    "fill_runs",
    "find_children",
    "free_suffixes",
    "hash_names",
    "increase_runs",
    "list_unmarked",
    "map_runs",
    "mark_differing",
    "mark_ends",
    "mark_rows",
    "measure_names",
    "nest_spans",
    "number_runs",
    "peel",
    "place_clones",
    "prefix_hits",
    "reach_over",
    "reached_over",
    "repeated_names",
    "select_pointing",
    "shift_runs",
    "trace_blocks",
]
