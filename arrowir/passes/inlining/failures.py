"""The first error of each module, found among many checks made at once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from arrowir.diagnostics import Diagnostic
from arrowir.store import Array

_STEP = 1 << 8
_STAGE = 1 << 55
_NONE = np.iinfo(np.int64).max


class FirstErrors:
    """Collects failing items of columnar checks and keeps the first of each module.

    Rules fix an order of checks: by stage, then by item (a call-site, say) in program order, then by check. Each check
    is made for all items at once, so the order is restored here.

    Parameters
    ----------
    modules
        Number of modules of the batch.
    """

    def __init__(self, modules: int) -> None:
        self.best = np.full(modules, _NONE, np.int64)
        self._checks: list[tuple[Array, Array, Callable[[int], Diagnostic]]] = []

    def add(
        self,
        stage: int | Array,
        rank: int,
        items: Array,
        module: Array,
        message: Callable[[int], Diagnostic],
        order: Array | None = None,
    ) -> None:
        """Note the items that fail a check.

        Parameters
        ----------
        stage, rank
            Place of the check: stages come one after the other over all items; within a stage each item is checked by
            rising rank.
        items
            The failing items, numbered in program order.
        module
            The module of each failing item.
        message
            Makes the diagnostic of an item; called only for the first error of a module.
        order
            The place of each item in the order of checks, where that is not its number.
        """
        if len(items):
            key = stage * _STAGE + (items if order is None else order).astype(np.int64) * _STEP + rank
            np.minimum.at(self.best, module, key)
            self._checks.append((key, items, message))

    @property
    def failed(self) -> Array:
        """Mask of the modules that have an error."""
        return self.best < _NONE

    def failed_before(self, stage: int) -> Array:
        """Mask of the modules that have an error of an earlier stage."""
        return self.best < stage * _STAGE

    def diagnostics(self) -> list[Diagnostic]:
        """Return the first error of each failed module, in module order."""
        failed = np.flatnonzero(self.failed)
        wanted = dict(zip(self.best[failed].tolist(), failed.tolist(), strict=True))
        found: dict[int, Diagnostic] = {}
        for keys, items, message in self._checks:
            for k in np.flatnonzero(np.isin(keys, list(wanted))).tolist():
                found.setdefault(wanted[int(keys[k])], replace(message(int(items[k])), severity="error"))
        return [found[m] for m in sorted(found)]
