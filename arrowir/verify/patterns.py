"""Rules about access patterns of any instruction: their form, their place, the partitions that they start at."""

from typing import Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.analyse import footprints
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir.verify.facts import Facts, found
from arrowir.verify.registry import Found, rule

LANES = 128
_HALF = 64

# Engines that compute read and write whole quarters of the partitions; DMA does not. Scales start within a quarter.
_FREE = ("MatmultMx", "QuantizeMx")
_FREE_FAMILIES = ("dma", "indirect", "collective", "kernel", "control", "sync", "misc", "rng")


def _placed(facts: Facts) -> Array:
    """Return a mask of the operands with a pattern in SB or PSUM."""
    made = facts.footprints
    return made.addressed & made.partitioned


def _pattern_text(facts: Facts) -> Any:
    texts, numbers = facts.ir.pools.patterns.texts, facts.ir.tables["operands"]["pattern_id"]
    return lambda rows: [texts[n] if n >= 0 else "none" for n in numbers[rows].tolist()]


def _instruction(facts: Facts) -> Any:
    owner = facts.ir.tables["operands"]["instruction_id"]
    return lambda rows: facts.names("instructions", owner[rows])


def _unsound(facts: Facts) -> Found | None:
    made = facts.footprints
    patterns = made.patterns
    given = made.addressed & (facts.ir.tables["operands"]["pattern_id"] >= 0)
    return found("operands", given & ~patterns.sound[made.pattern])


def _far(facts: Facts) -> Found | None:
    made, offset = facts.footprints, facts.ir.tables["operands"]["offset"]
    bad = made.addressed & made.patterns.sound[made.pattern] & footprints.far(made.patterns, made.pattern, offset)
    shown = np.where(offset == NULL_INT, 0, offset)
    return found("operands", bad, pattern=_pattern_text(facts), offset=shown)


def _dimensions(facts: Facts) -> Found | None:
    made = facts.footprints
    count = made.patterns.dimensions[made.pattern]
    given = made.addressed & (facts.ir.tables["operands"]["pattern_id"] >= 0) & (count > 0)
    # In DRAM one pair may be all there is: no partitions come first.
    least = np.where(made.partitioned | (made.memory < 0), 2, 1)
    return found("operands", given & ((count < least) | (count > 5)))


def _negative(facts: Facts) -> Found | None:
    made = facts.footprints
    step, lanes = made.patterns.steps[made.pattern, 0], made.patterns.lanes[made.pattern]
    return found("operands", _placed(facts) & (step < 0) & (lanes > 1))


def _many(facts: Facts) -> Found | None:
    made = facts.footprints
    return found("operands", _placed(facts) & (made.patterns.lanes[made.pattern] > LANES))


def _outside(facts: Facts) -> Found | None:
    made = facts.footprints
    # A pattern of too many partitions is told by that.
    bad = ~made.inside & ~(made.partitioned & (made.patterns.lanes[made.pattern] > LANES))
    bad &= ~(made.partitioned & (made.patterns.steps[made.pattern, 0] < 0))
    return found("operands", bad, inst=_instruction(facts), pattern=_pattern_text(facts))


def _unaligned(facts: Facts) -> Found | None:
    made, locations = facts.footprints, facts.ir.tables["locations"]
    final = np.append(locations["allocated"] == 1, False)
    bad = made.decided & made.partitioned & made.inside & final[made.location]
    bad &= made.start % np.maximum(made.size, 1) != 0
    return found(
        "operands",
        bad,
        mem_type=lambda rows: facts.names("locations", made.location[rows], "type"),
        start_addr=made.start,
        mem=lambda rows: facts.names("locations", made.location[rows]),
        dtype_size=made.size,
        dtype=lambda rows: facts.names("operands", rows, "dtype"),
    )


def _computing(facts: Facts) -> Array:
    """Return a mask of the instructions whose engine starts at whole quarters."""
    texts = facts.ir.pools.codes["opcode"].texts
    free = [t in _FREE or (vocab.family(t) or "control") in _FREE_FAMILIES for t in texts]
    code = facts.ir.tables["instructions"]["opcode"]
    return ~np.append(np.array(free, bool), True)[code]


def _starting(facts: Facts) -> Array:
    """Return a mask of the operands that start where their engine has to, and are well inside."""
    made = facts.footprints
    owner = facts.ir.tables["operands"]["instruction_id"]
    return made.decided & made.partitioned & made.inside & (made.lane_step <= 1) & _computing(facts)[owner]


def _start(facts: Facts) -> Found | None:
    made = facts.footprints
    tonga = facts.levels[facts.module[facts.ir.tables["operands"]["instruction_id"]]] == 10
    quarter = np.where(tonga, _HALF, 32)
    bad = _starting(facts) & (made.partition % quarter != 0)
    return found("operands", bad, start=made.partition)


def _straddling(facts: Facts) -> Found | None:
    made = facts.footprints
    crossing = (made.partition == 32) & (made.partition + made.lanes > _HALF)
    return found("operands", _starting(facts) & crossing)


RULES = [
    rule("BIR003", "memory", "every num of a pattern is 1 or more", "correct `ap`", _unsound),
    rule("pattern_too_large", "memory", "a pattern reaches elements that a memory can have",
         "correct `ap`, or the offset", _far,
         text="Access pattern reaches elements that no memory has: {pattern} from element {offset} on"),
    rule("BIR049", "memory", "a pattern has two to five pairs", "split or join its dimensions", _dimensions,
         same=("BIR721",)),
    rule("MLOC-negstep", "memory", "partitions are stepped through upwards", "reverse the partitions", _negative),
    rule("VER-partition-1", "memory", "a pattern has at most 128 partitions", "split the access", _many),
    rule("IBIR158", "memory", "a pattern stays in its location, and in its partitions",
         "correct the pattern, the offset, or the size of the location", _outside, same=("IBIR243",)),
    rule("BIR429", "memory", "the first byte of an access is a multiple of the size of its elements",
         "align the address or the offset", _unaligned),
    rule("VER-partition-2", "memory", "a pattern that starts at partition 32 ends at 64",
         "start it at partition 0 or 64, or split it", _straddling),
    rule("VER-partition-3", "memory", "an engine starts at partition 0, 32, 64 or 96",
         "move the tensor, or copy it first", _start,
         text="Access pattern did not start at parition 0 or 64. Starts at partition {start}"),
]  # fmt: skip
