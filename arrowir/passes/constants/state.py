"""What is known while instructions are rewritten and removed: constants, readers, writers (rules C1, C4)."""

from functools import cached_property

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.passes.constants import attributes
from arrowir.passes.constants.accesses import SIZE, Accesses, known
from arrowir.passes.constants.code import Code
from arrowir.runs import expand
from arrowir.store import Array, distinct

KEPT, MEMSET, COPY, COPY_MEMSET, REMOVED = range(5)
"""What has become of an instruction: a Memset, a GenericCopy, a Memset by way of a GenericCopy, nothing."""


class State:
    """Facts about code that change as it is rewritten. Instructions and operands are numbered as in `Code`.

    Parameters
    ----------
    code
        The instructions.
    assume_finite
        Whether there is neither NaN nor infinity.
    """

    def __init__(self, code: Code, *, assume_finite: bool) -> None:
        self.code = code
        self.extra = code.ir.tables["instructions"]["extra"][code.rows]
        self.form = np.full(len(code), KEPT, np.int8)
        self.bits = np.zeros(len(code), np.uint64)
        """What a Memset fills with."""
        self.source = code.first[:-1].copy()
        """The operand that a copy reads."""
        self.lives = np.ones(len(code.mention), bool)
        """Mask of the mentions that are still there."""
        locations = code.ir.count("locations")
        self.readers = np.bincount(code.location[~code.writes], minlength=locations)
        self.writers = np.bincount(code.location[code.writes], minlength=locations)
        self._sum = np.bincount(
            code.location[code.writes], weights=np.flatnonzero(code.writes), minlength=locations
        ).astype(np.int64)
        """Sum of the mentions that write a location: where there is one, that is it."""
        self.constant = np.full(locations, -1, np.int64)
        """The operand that writes a constant location, -1 where a location is none (rule C1)."""
        memsets = np.flatnonzero((code.opcode == vocab.OP_MEMSET) & (self.inputs == 0) & (self.outputs == 1))
        bits, fixed = attributes.memset_bits(code.ir, self.extra[memsets])
        self.bits[memsets] = bits
        memsets = memsets[fixed]
        self.has_constants = bool(len(memsets))
        """Whether anything may ever be constant."""
        if self.has_constants:
            memsets = memsets[self._fits(memsets)]
            self.fills = np.zeros(len(code), bool)
            """Mask of the instructions that fill their output with `bits`."""
            self.fills[memsets] = True
            self.always = ~attributes.predicated(code.ir, self.extra)
            self._look_at_rewrites(assume_finite)

    @cached_property
    def inputs(self) -> Array:
        """How many operands other than outputs each instruction has."""
        return np.diff(self.code.first) - self.outputs

    @cached_property
    def outputs(self) -> Array:
        """How many outputs each instruction has."""
        return self.code.counts(vocab.ROLE_OUT)

    @cached_property
    def accesses(self) -> Accesses:
        """What operands access."""
        return Accesses(self.code)

    @cached_property
    def output(self) -> Array:
        """The operand that is each instruction's first output, or what is behind its operands."""
        return self.code.first[1:] - self.outputs

    def _fits(self, memsets: Array) -> Array:
        """Tell whether a Memset's bits are a pattern of its output's dtype."""
        size = SIZE[known(self.accesses.dtype[self.output[memsets]])]
        return (size == 8) | (self.bits[memsets] < (np.uint64(1) << (8 * (size % 8)).astype(np.uint64)))

    def _look_at_rewrites(self, assume_finite: bool) -> None:
        """Say which instructions have the form that a rewrite wants: few, plain operands."""
        code, accesses = self.code, self.accesses
        self.kind = attributes.rewriting_kinds(code.ir, code.opcode, self.extra, assume_finite=assume_finite)
        wanted = np.array([0, 1, 3, 2, 2, 2, 2])[self.kind]
        fits = (self.inputs == wanted) & (code.counts(vocab.ROLE_INDIRECTION) == 0) & (self.outputs == 1)
        some = np.flatnonzero(fits & (self.kind != attributes.NOTHING))
        out = self.output[some]
        good = accesses.plain[out]
        copies = self.kind[some] == attributes.COPY
        good &= ~copies | (accesses.dtype[out] == accesses.dtype[self.source[some]])
        rest = np.ones(len(code), bool)
        rest[some[good]] = False
        self.kind[rest] = attributes.NOTHING

    # -- constants ----------------------------------------------------------------------------------------------------

    def value(self, operand: Array) -> tuple[Array, Array]:
        """Return whether operands read a constant in its own dtype, and its bits."""
        accesses = self.accesses
        location = accesses.location[operand]
        writer = np.where((location >= 0) & accesses.inside[operand], self.constant[np.maximum(location, 0)], -1)
        found = writer >= 0
        found[found] = accesses.dtype[writer[found]] == accesses.dtype[operand[found]]
        bits = self.bits[self.code.owner[np.maximum(writer, 0)]] if len(self.bits) else np.zeros(0, np.uint64)
        return found, np.where(found, bits, np.uint64(0))

    def settle(self, locations: Array) -> Array:
        """Find out which of some locations are constant now and were not; return the instructions that read them."""
        code = self.code
        locations = distinct(locations)
        new = locations[code.open[locations] & (self.writers[locations] == 1) & (self.constant[locations] < 0)]
        mention = self._sum[new]
        operand, writer = code.mention[mention], code.user[mention]
        good = self.fills[writer] & self.always[writer] & self.accesses.covers[operand]
        good &= self.accesses.location[operand] == new
        new, operand, writer = new[good], operand[good], writer[good]
        reading, which = self._reading(new)
        early = code.position[code.user[reading]] < code.position[writer[which]]
        late = np.bincount(which[early], minlength=len(new)) == 0
        self.constant[new[late]] = operand[late]
        return distinct(code.user[reading[late[which]]])

    def _reading(self, locations: Array) -> tuple[Array, Array]:
        """Return the mentions that read locations, each with the number of its location among these."""
        order, first = self.code.by_location
        count = first[locations + 1] - first[locations]
        mention, which = order[expand(first[locations], count)], np.repeat(np.arange(len(locations)), count)
        some = self.lives[mention] & ~self.code.writes[mention]
        return mention[some], which[some]

    # -- changes ------------------------------------------------------------------------------------------------------

    def drop(self, instructions: Array, *, but: Array | None = None, outputs: bool = False) -> Array:
        """Take inputs from instructions, and outputs too where they go; return the locations concerned.

        `but` names an operand of each that stays.
        """
        code = self.code
        first = code.mentions_of[instructions]
        count = code.mentions_of[instructions + 1] - first
        mention = expand(first, count)
        goes = self.lives[mention] if outputs else self.lives[mention] & ~code.writes[mention]
        if but is not None:
            goes &= code.mention[mention] != np.repeat(but, count)
        mention = mention[goes]
        self.lives[mention] = False
        reads, writes = mention[~code.writes[mention]], mention[code.writes[mention]]
        np.subtract.at(self.readers, code.location[reads], 1)
        np.subtract.at(self.writers, code.location[writes], 1)
        np.subtract.at(self._sum, code.location[writes], writes)
        return code.location[mention]

    def fill(self, instructions: Array, bits: Array) -> Array:
        """Make Memsets of instructions; return the locations concerned."""
        self.form[instructions] = np.where(self.form[instructions] == COPY, COPY_MEMSET, MEMSET)
        self.bits[instructions], self.fills[instructions] = bits, True
        self.kind[instructions] = attributes.NOTHING
        written = self.accesses.location[self.output[instructions]]
        return np.concatenate((self.drop(instructions), written[written >= 0]))

    def copy(self, instructions: Array, source: Array) -> Array:
        """Make GenericCopies of instructions; return the locations concerned."""
        dtype = self.accesses.dtype
        self.form[instructions], self.source[instructions] = COPY, source
        same = dtype[source] == dtype[self.output[instructions]]
        self.kind[instructions] = np.where(same, attributes.COPY, attributes.NOTHING)
        return self.drop(instructions, but=source)

    def remove(self, instructions: Array) -> Array:
        """Remove instructions; return the locations concerned."""
        self.form[instructions] = REMOVED
        if self.has_constants:
            self.kind[instructions] = attributes.NOTHING
        return self.drop(instructions, outputs=True)
