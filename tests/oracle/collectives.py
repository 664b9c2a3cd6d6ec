"""Merging of collectives of adjacent channels (rule K)."""

import json
from typing import Any

from tests.oracle.edit import edge_changes, edited, entry_ref, with_ref
from tests.oracle.expressions import Scope, fold, holds, is_expression, is_integer
from tests.oracle.graph import OPERAND_LISTS, RELATIONS, Block, Function, Instruction, refs_in, render
from tests.oracle.outcome import Outcome, PassFailure, same_document
from tests.oracle.resolve import load

KINDS = ("PermuteImplicit", "PermuteReduceImplicit")
AGREE = {
    "CCO001": "op",
    "CCO002": "engine",
    "CCO003": "kind",
    "CCO004": "replica_groups",
    "CCO005": "order",
    "CCO006": "can_read_uninit",
    "CCO007": "is_local",
    "CCO008": "src_target_pairs",
}
SAME = "Expected all consecutive CC compute ops to be of the same"
TEXTS = {
    "CCO001": f"{SAME} Op, but got {{first}} != {{curr}}",
    "CCO002": f"{SAME} Engine, but got {{first}} != {{curr}}",
    "CCO003": f"{SAME} Kind, but got {{first}} != {{curr}}",
    "CCO004": f"{SAME} ReplicaGroups",
    "CCO005": f"{SAME} HasOrder",
    "CCO006": f"{SAME} CanReadUninit",
    "CCO007": f"{SAME} IsLocal",
    "CCO008": f"{SAME} SrcTargetPairs",
    "CCO009": "Expected all consecutive CC compute ops to be of channel id starting at 0 and increasing by 1, "
    "but got first: {first}, curr: {curr}",
    "CCO010": "Expected CC op to not have both ReplicaGroups and SrcTargetPairs",
}
EDGE_KINDS = ("Invalid", "Ordered", "Anti", "Output", "Flow")
SYNC_LISTS = ("on_wait", "on_update")

Run = list[Instruction]


def run_coalesce(doc: dict[str, Any]) -> Outcome:
    """K: merge the runs of all functions."""
    module = load(doc)
    try:
        runs = [(function, runs_of(function)) for function in module.all_functions]
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic])
    for function, found in runs:
        merge_runs(function, [run for run in found if len(run) > 1])
    after = module.render()
    return Outcome("unchanged" if same_document(doc, after) else "changed", after, [])


def runs_of(function: Function) -> list[Run]:
    """K: the runs of a function; the first neighbour, in program order, that does not fit one fails the module."""
    runs: dict[Instruction, Run] = {}
    for instruction in function.instructions():
        here = channel_of(instruction)
        before = neighbour_before(instruction)
        run = None if before is None or channel_of(before) is None else runs.get(before)
        if here is None or (here != 0 and run is None):
            continue
        if here == 0:
            runs[instruction] = [instruction]
            continue
        assert run is not None
        check_fits(function, run, instruction)
        run.append(instruction)
        runs[instruction] = run
    return list({id(run): run for run in runs.values()}.values())


def neighbour_before(instruction: Instruction) -> Instruction | None:
    here = instruction.block.instructions.index(instruction)
    return instruction.block.instructions[here - 1] if here else None


def constant_of(value: Any) -> int | None:
    """U1: the value of an integer or a constant expression; axes, shards and runtime values are none."""
    if isinstance(value, dict) and (not is_expression(value) or holds(value, "ShardIDKind")):
        return None
    try:
        found = fold(value, Scope())
    except (PassFailure, TypeError):
        return None
    return found if is_integer(found) else None


def channel_of(instruction: Instruction) -> int | None:
    """K: the channel of a collective that can be merged."""
    obj = instruction.obj
    plain = not obj.get("predicates") and not obj.get("blocks")
    if obj.get("opcode") != "CollectiveCompute" or obj.get("kind") not in KINDS or not plain:
        return None
    return constant_of(obj.get("cc_channel"))


def constants_in(value: Any) -> Any:
    if isinstance(value, list):
        return [constants_in(item) for item in value]
    if isinstance(value, dict):
        number = constant_of(value)
        return {key: constants_in(item) for key, item in value.items()} if number is None else number
    return value


def fact(instruction: Instruction, key: str) -> Any:
    """K: absent, null, empty and default agree; references agree where they mean one thing."""
    value = constants_in(instruction.obj.get(key))
    defaults = {"op": "bypass", "engine": "Unassigned", "can_read_uninit": False, "is_local": False}
    value = value or defaults.get(key, [])
    if defaults.get(key) is False and is_integer(value):
        value = bool(value)
    return comparable(value)


def comparable(value: Any) -> str:
    meant = [("ref", id(ref.target)) if ref.target else ("name", ref.raw) for ref in refs_in(value)]
    return json.dumps([render(value), meant], sort_keys=True)


def check_fits(function: Function, run: Run, member: Instruction) -> None:
    first = run[0]
    for code, key in AGREE.items():
        if fact(first, key) != fact(member, key):
            told = {}
            if key in ("op", "engine", "kind"):
                told = {"first": json.loads(fact(first, key))[0], "curr": json.loads(fact(member, key))[0]}
            raise mismatch(code, function, member, **told)
    last, here = channel_of(run[-1]), channel_of(member)
    assert last is not None
    if here != last + 1:
        raise mismatch("CCO009", function, member, first=channel_of(first), curr=here)
    if member.obj.get("replica_groups") and member.obj.get("src_target_pairs"):
        raise mismatch("CCO010", function, member)


def mismatch(code: str, function: Function, member: Instruction, **told: Any) -> PassFailure:
    failure = PassFailure(
        "collective_run_mismatch",
        TEXTS[code].format(**told),
        function=function.name,
        block=member.block.name,
        instruction=member.name,
    )
    object.__setattr__(failure.diagnostic, "compiler_code", code)
    return failure


def merge_runs(function: Function, runs: list[Run]) -> None:
    into = {member: run[0] for run in runs for member in run}
    for run in runs:
        merge(run)
    for instruction in function.instructions():
        for ref in refs_in(instruction.obj):
            if isinstance(ref.target, Instruction) and ref.target in into:
                ref.target = into[ref.target]
    for instruction in list(function.instructions()):
        if instruction in into and into[instruction] is not instruction:
            remove(instruction.block, instruction)
            continue
        lists = {relation: instruction.entries(relation) for relation in RELATIONS}
        kept = {relation: kept_entries(entries, instruction, into) for relation, entries in lists.items()}
        instruction.obj = edited(instruction.obj, edge_changes(instruction.obj, kept)[0])


def merge(run: Run) -> None:
    """K: the first's row; operands, edges and `sync_info` lists of all, in order; edges inside the run go."""
    first = run[0]
    changes: dict[str, Any] = {}
    for key in OPERAND_LISTS:
        if together := [operand for member in run for operand in member.operands(key)]:
            changes[key] = together
    edges = {
        relation: [entry for member in run for entry in member.entries(relation) if entry_ref(entry).target not in run]
        for relation in RELATIONS
    }
    changed_edges, drop = edge_changes(first.obj, edges)
    sync = [member.obj.get("sync_info") or {} for member in run]
    if any(each.get(key) for each in sync[1:] for key in SYNC_LISTS):
        lists = {key: [item for each in sync for item in each.get(key) or []] for key in SYNC_LISTS}
        changes["sync_info"] = edited(sync[0], {key: items for key, items in lists.items() if items})
    first.obj = edited(first.obj, changes | changed_edges, drop)


def remove(block: Block, instruction: Instruction) -> None:
    block.obj["instructions"] = [each for each in block.instructions if each is not instruction]


def kept_entries(entries: list[Any], of: Instruction, into: dict[Instruction, Instruction]) -> list[Any]:
    """K: of equal entries on or of a merged instruction the first is kept."""
    heads = set(into.values())
    known: set[Any] = set()
    kept = []
    for entry in entries:
        ref = entry_ref(entry)
        if of in heads or ref.target in heads:
            same = equal_key(entry)
            if same in known:
                continue
            known.add(same)
        kept.append(with_ref(entry, ref))
    return kept


def equal_key(entry: Any) -> Any:
    """K: target, kind and what follows the kind; a bare name is `Flow`."""
    ref = entry_ref(entry)
    kind = entry[1] if isinstance(entry, list) and len(entry) > 1 else "Flow"
    kind = EDGE_KINDS[kind] if is_integer(kind) and 0 <= kind < len(EDGE_KINDS) else kind
    rest = entry[2:] if isinstance(entry, list) else []
    return (id(ref.target) if ref.target else ref.raw, str(kind), comparable(rest))
