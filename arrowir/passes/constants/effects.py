"""Which instructions do nothing but write their outputs (rule C3)."""

from functools import cached_property

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.passes.constants import attributes
from arrowir.passes.constants.state import KEPT, REMOVED, State
from arrowir.store import Array


class Effects:
    """Tells what may go once nothing reads its outputs.

    Parameters
    ----------
    state
        The instructions and what has become of them.
    """

    def __init__(self, state: State) -> None:
        self.state, self.code = state, state.code

    def none(self, instructions: Array) -> Array:
        """Tell of some instructions whether they may go."""
        state, code, ir = self.state, self.code, self.code.ir
        rewritten = (state.form[instructions] != KEPT) & (state.form[instructions] != REMOVED)
        pure = rewritten | self._is_pure[code.opcode[instructions]]
        pure &= ~self.tied(instructions)
        old = np.flatnonzero(pure & ~rewritten)
        pure[old] = ~attributes.lasting(ir, code.opcode[instructions[old]], state.extra[instructions[old]])
        return pure

    def held(self) -> Array:
        """Return the locations that instructions add to which stay whether their outputs are read or not.

        What these add to is read, as it were: without it they would add to what nobody has written.
        """
        state, code = self.state, self.code
        adds = self._adding[state.form[self._adding] == KEPT]
        if not len(adds):
            return adds
        stays = adds[~(self._writes_one[adds] & self.named_outputs[adds] & self.none(adds))]
        staying = np.zeros(len(code), bool)
        staying[stays] = True
        return code.location[code.writes & state.lives & staying[code.user]]

    @cached_property
    def _writes_one(self) -> Array:
        """Tell for each instruction whether it writes one location of its function."""
        return np.bincount(self.code.user[self.code.writes], minlength=len(self.code)) == 1

    @cached_property
    def _adding(self) -> Array:
        return np.flatnonzero(attributes.adding(self.code.ir, self.code.opcode, self.state.extra))

    def tied(self, instructions: Array) -> Array:
        """Tell of some instructions whether they signal or wait, hold blocks, branch or call."""
        return self._tied[self.code.rows[instructions]]

    @cached_property
    def _is_pure(self) -> Array:
        mask = np.zeros(len(self.code.ir.pools.codes["opcode"]) + 1, bool)
        mask[list(attributes.PURE)] = True
        return mask

    @cached_property
    def _tied(self) -> Array:
        """Mask of the rows with a `sync_info` that is more than `{}`, blocks, branches, or calls."""
        ir = self.code.ir
        sync = ir.tables["instructions"]["sync_layout"]
        found = (sync >= 0) & (sync != ir.pools.layouts.find("[]"))
        for table in ("blocks", "branches", "calls", "loops", "semaphores"):
            owner = ir.tables[table]["instruction_id"]
            found[owner[owner >= 0]] = True
        return found

    @cached_property
    def named_outputs(self) -> Array:
        """Tell for each instruction whether it has outputs and all are in locations of its function."""
        code = self.code
        named = np.zeros(len(code.operands), bool)
        named[code.mention] = True
        outs = code.role == vocab.ROLE_OUT
        found = self.state.outputs > 0
        found[code.owner[outs & ~named]] = False
        return found
