"""Whatever a document holds: it is read and written without loss, or refused; and its names mean what the rules say."""

import json
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrowir.diagnostics import FormatError
from arrowir.formats.bir_json import read_documents, read_json, to_json
from arrowir.formats.rebinding import rebinding_names
from arrowir.ir import IR
from arrowir.testing.assertions import assert_valid
from arrowir.testing.strategies import documents
from tests.documents import compact
from tests.oracle.graph import Block, Function, Instruction, Module, Ref
from tests.oracle.resolve import load

relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@relaxed
@given(documents())
def test_f1_documents_come_back_as_they_were(document: Any) -> None:
    text = compact(document)
    ir = read_json(text.encode())
    assert_valid(ir)
    assert to_json(ir).decode() == text
    assert to_json(ir, indent=1).decode() == json.dumps(document, indent=1, ensure_ascii=False)


@relaxed
@given(documents())
def test_r7_nothing_that_was_read_means_another_row_when_it_is_read_back(document: Any) -> None:
    assert rebinding_names(read_json(compact(document).encode())) == []


@settings(relaxed, max_examples=15)
@given(st.lists(documents(), min_size=2, max_size=4))
def test_o5_a_module_does_not_depend_on_the_batch_around_it(batch: list[Any]) -> None:
    texts = [compact(document) for document in batch]
    ir, _ = read_documents([text.encode() for text in texts])
    assert_valid(ir)
    assert [to_json(ir, module_id).decode() for module_id in range(len(ir))] == texts


# -- spoilt documents ----

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, -(2**63), 2**70, 1.5, float("inf"), "", "x", "\x01", 'e"\\\n', [], {}, [1, 2], [[1,
    2]], ["x"],
    {"a": 1}, {"instructions": []}, [{"instructions": []}], {"kind": "AffIVKind", "axis": "i"},
    {"terms": [{"AxisLabel": "q", "coef": 1}], "c": 0}, {"kind": "IntRuntimeValueKind", "regref": "r"},
)  # fmt: skip
KEYS = ("zz", "name", "blocks", "kind", "alias", "target", "memref", "func", "opcode", "debug", "sync_info", "LoopAxis",
        "a b", "\x01", "Skind", "memorylocations", "arguments", "func_args", "dims", "nki_functions",
        "queues")  # fmt: skip


def containers(document: Any) -> Iterator[Any]:
    stack = [document]
    while stack:
        found = stack.pop()
        yield found
        stack.extend(x for x in (found.values() if isinstance(found, dict) else found) if isinstance(x, dict | list))


def read_or_refused(data: bytes) -> IR | FormatError:
    try:
        return read_json(data)
    except FormatError as error:
        return error


def spoil(document: Any, choice: random.Random) -> None:
    """Change one thing somewhere: take it away, put another value there, move it, add one."""
    holder = choice.choice(list(containers(document)))
    value = json.loads(json.dumps(choice.choice(VALUES)))
    if isinstance(holder, list):
        place = choice.randrange(len(holder) + 1)
        holder[place : place + choice.randrange(2)] = [value][: choice.randrange(2)]
    elif not holder or choice.random() < 0.3:
        holder[choice.choice(KEYS)] = value
    else:
        key = choice.choice(list(holder))
        old = holder.pop(key) if choice.random() < 0.5 else value
        if choice.random() < 0.7:
            holder[key] = old


@relaxed
@given(documents(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_f3_spoilt_documents_are_refused_or_come_back_as_they_were(
    document: Any, choice: random.Random, times: int
) -> None:
    for _ in range(times):
        spoil(document, choice)
    text = compact(document)
    found = read_or_refused(text.encode())
    if isinstance(found, FormatError):
        assert found.json_path is not None
        return
    assert_valid(found)
    assert to_json(found).decode() == text
    assert rebinding_names(found) == []


@relaxed
@given(documents(), st.integers(0, 10**6), st.sampled_from([b"", b"\0", b"}", b'"', b"\xff", b"[[", b"1e400", b"\\u"]))
def test_f2_damaged_text_is_refused_or_read(document: Any, place: int, put: bytes) -> None:
    data = compact(document).encode()
    place %= len(data)
    for damaged in (data[:place], data[:place] + put + data[place + 1 :]):
        found = read_or_refused(damaged)
        if isinstance(found, FormatError):
            assert found.offset is not None or found.json_path is not None
        else:
            assert_valid(found)


# -- names, by another implementation of the rules ----


def breadth_first(function: Function) -> Iterator[Block]:
    blocks = list(function.blocks)
    for block in blocks:
        yield block
        for instruction in block.instructions:
            blocks.extend(instruction.blocks)


class Numbers:
    """Row numbers of the oracle's nodes."""

    def __init__(self, module: Module) -> None:
        self.of: dict[int, int] = {}
        self.instructions: list[Instruction] = []
        functions = module.all_functions
        blocks = [block for function in functions for block in breadth_first(function)]
        self.instructions = [instruction for block in blocks for instruction in block.instructions]
        groups: list[list[Any]] = [
            functions,
            blocks,
            self.instructions,
            [each for function in functions for each in function.sets],
            [each for function in functions for each in function.locations],
            [each for function in functions for each in function.registers],
        ]
        for group in groups:
            self.of.update((id(node), number) for number, node in enumerate(group))
        self.sizes = [len(group) for group in groups]

    def row(self, value: Any) -> int | None:
        return self.of[id(value.target)] if isinstance(value, Ref) and value.target is not None else None


def meant(numbers: Numbers) -> dict[str, list[Any]]:
    """Return what the names of all instructions mean, by the oracle."""
    found: dict[str, list[Any]] = {"operands": [], "edges": [], "branches": [], "waits": [], "calls": []}
    row = numbers.row
    for number, instruction in enumerate(numbers.instructions):
        for key in ("ins", "indirection_ins", "outs"):
            for operand in instruction.operands(key):
                location, own = row(operand.get("memref")), row(operand.get("memsetref"))
                # Beside a location that resolved, the name of a set is read in the light of it.
                own = None if location is not None else own
                found["operands"].append((number, location, own, row(operand.get("regref"))))
        for key in ("dependencies", "loop_carried_dependencies", "unroll_dependencies"):
            for entry in instruction.entries(key):
                found["edges"].append((number, row(entry[0] if isinstance(entry, list) else entry)))
        for key in ("target", "on_true", "on_false"):
            value = instruction.obj.get(key)
            if isinstance(value, Ref) and instruction.opcode != "Call":
                found["branches"].append((number, key, row(value)))
        for wait in (instruction.obj.get("sync_info") or {}).get("on_wait") or []:
            found["waits"].append((number, row(wait.get("from"))))
        callee = instruction.obj.get({"NKIKernel": "func", "Call": "target"}.get(instruction.opcode, ""))
        if isinstance(callee, Ref):
            found["calls"].append((number, row(callee)))
    return found


def held(ir: IR, opcodes: list[str]) -> dict[str, list[Any]]:
    """Return the same from the tables, rows of queues left out."""
    mine = (
        ir.instructions.select("id", "function_id").filter(ir.instructions["function_id"].is_not_null())["id"].to_list()
    )
    here = set(mine)
    operands = ir.operands.select("instruction_id", "location_id", "set_id", "register_id").rows()
    branches = ir.branches.select("instruction_id", "slot", "block_id").rows()
    waits = ir.semaphores.filter(ir.semaphores["side"] == "wait").select("instruction_id", "from_instruction_id").rows()
    calls = ir.calls.select("instruction_id", "callee_id", "candidates").rows()
    jumps = ("UnconditionalBranch", "CompareAndBranch")
    return {
        "operands": [(i, at, None if at is not None else own, r) for i, at, own, r in operands if i in here],
        "edges": [
            row for row in ir.dependencies.select("instruction_id", "on_instruction_id").rows() if row[0] in here
        ],
        "branches": [row for row in branches if row[0] in here and opcodes[row[0]] in jumps],
        "waits": [row for row in waits if row[0] in here],
        "calls": [(i, callee if count == 1 else None) for i, callee, count in calls if i in here],
    }


@relaxed
@given(documents(bare_nonfinite=False))
def test_r2_to_r4_names_mean_what_another_implementation_says(document: Any) -> None:
    numbers = Numbers(load(document))
    ir = read_json(compact(document).encode())
    tables = ("functions", "blocks", "instructions", "sets", "locations", "registers")
    in_queues = [
        0,
        int((ir.tables["blocks"]["queue_id"] >= 0).sum()),
        int((ir.array("instructions", "function_id") < 0).sum()),
    ]
    sizes = [ir.count(t) - n for t, n in zip(tables, [*in_queues, 0, 0, 0], strict=True)]
    assert numbers.sizes == sizes
    opcodes = [instruction.opcode for instruction in numbers.instructions]
    assert held(ir, opcodes) == meant(numbers)
