"""Rules about element by element arithmetic, statistics, random numbers, and fills."""

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import INTEGERS
from arrowir.verify.registry import Found

_TT, _TSP = "TensorTensor", "TensorScalarPtr"


def _idle(g: Group) -> Found | None:
    acc = g.key("acc")
    return g.on(acc.other_than("Idle", "Accumulate"), actual=acc.text)


def _integer_psum(g: Group) -> Found | None:
    operands = (g.arg(0), g.arg(1), g.out(0))
    integer = np.all([o.is_dtype(*INTEGERS) for o in operands], axis=0)
    return g.on(g.engine("Pool") & integer & np.any([o.in_psum for o in operands], axis=0))


def _three(g: Group) -> Array:
    return g.key("is_scalar_tensor_tensor").among(True)


def _input_dims(g: Group) -> Found | None:
    data, other = g.arg(0), g.arg(2)
    wrong = [o.is_ap & ~np.isin(o.dims, (2, 3)) for o in (data, other)]
    return g.on(_three(g) & (wrong[0] | wrong[1]), pattern1_size=data.dims, pattern2_size=other.dims)


def _output_dims(g: Group) -> Found | None:
    out = g.out(0)
    return g.at(out, _three(g) & out.is_ap & ~np.isin(out.dims, (2, 3)), output_pattern_size=out.dims)


def _statistics(g: Group) -> Found | None:
    out = g.out(0)
    return g.at(out, out.is_ap & (out.each != 2), actual=out.each)


# -- random numbers and fills ----


def _random(g: Group, level: int, *engines: str) -> Found | None:
    random = g.key("mode").among("Random")
    return g.on(random & (g.level == level) & g.assigned & ~g.engine(*engines, "ALL"))


def _seed_size(g: Group) -> Found | None:
    seed = g.arg(0)
    return g.at(seed, (seed.size > 0) & (seed.size != 4))


def _seed(g: Group, engine: str, columns: int) -> Found | None:
    seed = g.arg(0)
    return g.at(seed, g.engine(engine) & seed.is_ap & (seed.each != columns), dim=seed.each)


def _fill(g: Group, *, nan: bool) -> Found | None:
    value = g.key("fill_value")
    is_nan = value.test(lambda v: v == "nan" or (isinstance(v, float) and v != v))
    if nan:
        return g.on(is_nan & (g.n_in != 2), args=g.n_in)
    return g.on(~is_nan & (g.n_in != 1), args=g.n_in, value=value.text)


def _custom(g: Group) -> Found | None:
    return g.on(g.level > 20)


_COUNT = "correct the operands"

RULES = [
    of(_TSP, "BIR253", "the accumulation is none that adds to what is there alone", "use another `acc`",
       lambda g: g.on(g.key("acc").among("Accumulate"))),
    of(_TT, "BIR254", "the accumulation is none that adds to what is there alone", "use `Idle`",
       lambda g: g.on(g.key("acc").among("Accumulate"))),
    of(_TT, "BIR534", "two tensors are combined without an accumulation", "use `Idle`", _idle),
    of(_TT, "EBIR006", "integers are combined outside of PSUM", "copy the operand to SB first", _integer_psum),
    of(_TSP, "BIR133", "the inputs of a scalar-tensor-tensor operation have 2 or 3 dimensions", "join dimensions",
       _input_dims),
    of(_TSP, "BIR134", "the output of a scalar-tensor-tensor operation has 2 or 3 dimensions", "join dimensions",
       _output_dims),
    of("BNStatsAggregate", "BIR226", "the output is a mean and a variance for each partition", _COUNT, _statistics),
    of("Memset", "BIR401", "random fills are made by DVE on CoreV2", "set the engine `DVE`",
       lambda g: _random(g, 20, "DVE")),
    of("Memset", "BIR402", "random fills are made by DVE or Pool on gen3", "set the engine `DVE` or `Pool`",
       lambda g: _random(g, 30, "DVE", "Pool")),
    of("Rand", "BIR403", "a seed has 32 bits", "convert the seed", _seed_size),
    of("RandSetState", "BIR481", "a seed of Pool has six columns", _COUNT, lambda g: _seed(g, "Pool", 6)),
    of("RandSetState", "BIR482", "a seed of DVE has 24 columns", _COUNT, lambda g: _seed(g, "DVE", 24)),
    of("TensorScalarAffineSelect", "SIM040", "where NaN fills, it is an input, too", _COUNT,
       lambda g: _fill(g, nan=True)),
    of("TensorScalarAffineSelect", "SIM041", "where a number fills, there is one input", _COUNT,
       lambda g: _fill(g, nan=False)),
    of("CustomOp", "BIR131", "custom operations are known up to CoreV2", "leave it out", _custom),
]  # fmt: skip
