"""Rules about `TensorScalarCache`: a running value along each partition."""

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import FLOATS, INTEGERS
from arrowir.verify.registry import Found

_TSC = "TensorScalarCache"
_BITS = ("bitwise_not", "arith_shift_left", "arith_shift_right", "bitwise_and", "bitwise_or", "bitwise_xor",
         "logical_shift_left", "logical_shift_right")  # fmt: skip
_SECOND = ("add", "subtract", "mult", "min", "max")
_COMMANDS = ("ZeroAccumulate", "AddAccumulate", "LoadAccumulate")
_KNOWN = (*(name for name in FLOATS if name != "float32r"), *(name for name in INTEGERS if "64" not in name))


def _scan(g: Group) -> Array:
    return g.key("mode").among("TensorScan")


def _old(g: Group) -> Array:
    return g.level == 20


def _loading(g: Group) -> Array:
    return g.key("acc").among("LoadAccumulate")


def _immediate(g: Group, place: int) -> Found | None:
    o = g.arg(place)
    return g.at(o, o.is_imm & ~o.is_dtype("float32"), actual=o.dtype_text)


def _nonzero(g: Group) -> Found | None:
    o = g.arg(1)
    values, known = o.immediate()
    return g.at(o, _scan(g) & known & (values != 0), actual=values)


def _no_immediate(g: Group) -> Found | None:
    o = g.arg(1)
    return g.at(o, _scan(g) & ~o.is_imm, actual=o.kind_text)


def _key(g: Group, name: str, bad: Array) -> Found | None:
    return g.on(bad, actual=g.key(name).text)


def _reduced(g: Group) -> Found | None:
    out, data = g.out(1), g.arg(0)
    bad = out.is_ap & data.is_ap & (out.lanes != data.lanes)
    return g.at(out, bad, actual=out.lanes, expected=data.lanes)


def _symbolic(g: Group) -> list[Found]:
    """Return the lists of immediates that hold something else than zeros."""

    def nonzero(value: object) -> bool:
        items = value.get("value_list") if isinstance(value, dict) else None
        plain = [i.get("value") if isinstance(i, dict) else i for i in items] if isinstance(items, list) else []
        return any(v != 0 for v in plain if isinstance(v, int | float))

    bad = g.facts.test("operands", nonzero, '"value_list"')
    found = []
    for operand in g.args():
        mask = operand.there & np.append(bad, False)[operand.ids]
        one = g.at(operand, mask, actual="another")
        found += [one] if one is not None else []
    return found


_COUNT, _KIND = "correct the operands", "give it an operand of that kind"

RULES = [
    of(_TSC, "BVF001", "it has two or three inputs", _COUNT, lambda g: g.on(~np.isin(g.n_in, (2, 3)), actual=g.n_in)),
    of(_TSC, "BVF002", "the first input is memory", _KIND,
       lambda g: g.at(g.arg(0), ~g.arg(0).is_ap, actual=g.arg(0).kind_text)),
    of(_TSC, "BVF003", "it has one or two outputs", _COUNT, lambda g: g.on(~np.isin(g.n_out, (1, 2)), actual=g.n_out)),
    of(_TSC, "BVF004", "the first output is memory", _KIND,
       lambda g: g.at(g.out(0), ~g.out(0).is_ap, actual=g.out(0).kind_text)),
    of(_TSC, "BVF005", "the first immediate is float32", "convert it", lambda g: _immediate(g, 1)),
    of(_TSC, "BVF006", "the second immediate is float32", "convert it", lambda g: _immediate(g, 2)),
    of(_TSC, "BVF007", "a third input is what is loaded", "set `acc` to `LoadAccumulate`",
       lambda g: _key(g, "acc", (g.n_in == 3) & g.key("acc").among("ZeroAccumulate", "AddAccumulate"))),
    of(_TSC, "BVF008", "what is loaded is a third input", "add the input",
       lambda g: g.on(_loading(g) & (g.n_in == 2), actual=g.n_in)),
    of(_TSC, "BVF009", "the second output is memory", _KIND,
       lambda g: g.at(g.out(1), ~g.out(1).is_ap, actual=g.out(1).kind_text)),
    of(_TSC, "BVF010", "the second output is one element for each partition", "correct the pattern",
       lambda g: g.at(g.out(1), g.out(1).is_ap & (g.out(1).each != 1), actual=g.out(1).each)),
    of(_TSC, "BVF011", "the second output has as many partitions as the input", "correct the pattern", _reduced),
    of(_TSC, "BVF012", "the second output is a float", "convert it",
       lambda g: g.at(g.out(1), g.out(1).is_ap & ~g.out(1).is_dtype(*FLOATS), actual=g.out(1).dtype_text)),
    of(_TSC, "BVF013", "the first input is a number of up to 32 bits", "convert it",
       lambda g: g.at(g.arg(0), g.arg(0).is_ap & ~g.arg(0).is_dtype(*_KNOWN), actual=g.arg(0).dtype_text)),
    of(_TSC, "BVF014", "the first output is a number of up to 32 bits", "convert it",
       lambda g: g.at(g.out(0), g.out(0).is_ap & ~g.out(0).is_dtype(*_KNOWN), actual=g.out(0).dtype_text)),
    of(_TSC, "BVF015", "the first operation is arithmetic", "use another `op0`",
       lambda g: _key(g, "op0", ~_scan(g) & g.key("op0").among(*_BITS))),
    of(_TSC, "BVF016", "the second operation is add, subtract, mult, min or max", "use another `op1`",
       lambda g: _key(g, "op1", g.key("op1").other_than(*_SECOND, "rsqrt"))),
    of(_TSC, "BVF017", "a scan has no first operation", "set `op0` to `bypass`",
       lambda g: _key(g, "op0", _scan(g) & g.key("op0").other_than("bypass", "rsqrt"))),
    of(_TSC, "BVF018", "a scan does not reverse its operands", "leave out `reverse0`",
       lambda g: g.on(_scan(g) & g.key("reverse0").among(True) & ~_old(g))),
    of(_TSC, "BVF019", "CoreV2 does not reverse the first operands", "leave out `reverse0`",
       lambda g: g.on(_old(g) & g.key("reverse0").among(True))),
    of(_TSC, "BVF020", "CoreV2 does not reverse the second operands", "leave out `reverse1`",
       lambda g: g.on(_old(g) & g.key("reverse1").among(True))),
    of(_TSC, "BVF021", "it is done by DVE", "set the engine `DVE`",
       lambda g: g.on(g.assigned & ~g.engine("DVE", "ALL"), actual=g.engine_text)),
    of(_TSC, "BVF022", "the accumulation starts, goes on, or loads", "use another `acc`",
       lambda g: _key(g, "acc", g.key("acc").other_than(*_COMMANDS))),
    of(_TSC, "BVF023", "the second input of a scan is an immediate", _KIND, _no_immediate),
    of(_TSC, "BVF024", "the second input of a scan is 0", "set it to 0", _nonzero),
    of(_TSC, "BVF025", "the operations are other than rsqrt", "use another operation",
       lambda g: g.on(g.key("op0").among("rsqrt") | g.key("op1").among("rsqrt"))),
    of(_TSC, "BVF026", "symbolic immediates are 0", "set them to 0", _symbolic),
]  # fmt: skip
