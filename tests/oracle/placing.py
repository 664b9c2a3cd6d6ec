"""Where the rows of a body go: in place of the call-site (N12), or in blocks of their own (N13, N20)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.binding import Site
from tests.oracle.canonical import Canonical
from tests.oracle.edit import edited, sorted_object
from tests.oracle.graph import Block, Instruction, Node, Ref

# After one of these a block needs no branch to where it goes on.
TERMINATORS = ("Terminator", "CompareAndBranch", "UnconditionalBranch", "Return", "Exit", "Break")


@dataclass(eq=False)
class Flow:
    """The blocks that a body of several blocks gets in the caller.

    `blocks` has the clones of the body's blocks that stand by themselves: all, but for the entry that is
    appended to the caller's block.
    """

    site: Site
    body: Canonical
    blocks: dict[Node, Block] = field(default_factory=dict)
    continuation: Block | None = None

    def returns(self, original: Instruction) -> bool:
        """N13: whether the clone becomes a branch to the continuation."""
        return self.continuation is not None and original.opcode == "Return"

    def clone_name(self, original: Instruction) -> str:
        return f"{self.site.name}_{'br_to_continuation' if self.returns(original) else original.name}"


@dataclass(eq=False)
class Expansion:
    """A call-site and what comes in its place; `clones` are in body order."""

    site: Site
    flow: Flow
    clones: dict[Instruction, Instruction]
    roots: list[Instruction]
    sinks: list[Instruction]
    start: Instruction | None = None
    done: Instruction | None = None

    @property
    def exits(self) -> list[Instruction]:
        """N14: what others depend on instead of the call-site."""
        return self.sinks if self.done is None else [self.done]

    def returns(self) -> Iterator[tuple[Instruction, dict[str, Any]]]:
        """N13: the clones of `Return`s, and what changes in them but for the name."""
        for original, clone in self.clones.items():
            if self.flow.returns(original):
                target = Ref("", self.flow.continuation)
                yield clone, {"engine": engine_of(self.site), "opcode": "UnconditionalBranch", "target": target}

    def parts(self) -> list[list[Instruction]]:
        """The rows of each block of the body, the helpers of N14 among them."""
        parts = [
            [self.clones[each] for each in block.instructions if each in self.clones]
            for block in self.flow.body.function.blocks
        ]
        if self.done is not None:
            last = list(self.clones.values())[-1]
            part = next(part for part in parts if last in part)
            part.insert(len(part) - 1 if last.opcode in TERMINATORS else len(part), self.done)
        if self.start is not None:
            parts[0].insert(0, self.start)
        return parts


def engine_of(site: Site) -> Any:
    return site.instruction.obj.get("engine", "Unassigned")


def new_row(site: Site, opcode: str = "NoOp", **more: Any) -> Instruction:
    """N13: new branches and NoOps have these members, and the call-site's engine."""
    members = {"name": "", "opcode": opcode, "engine": engine_of(site), "ins": [], "outs": []} | more
    return Instruction(sorted_object(**members), site.instruction.block)


def branch_to(site: Site, block: Block) -> Instruction:
    return new_row(site, "UnconditionalBranch", target=Ref("", block))


def flow_of(site: Site, body: Canonical, wanted: dict[Node, str]) -> Flow:
    """N13: make the blocks, without rows; none for a body that is spliced (N12)."""
    flow = Flow(site, body)
    if not body.is_split:
        return flow
    block = site.instruction.block
    own = body.function.blocks if body.branches_to_entry else body.function.blocks[1:]
    for original in own:
        flow.blocks[original] = Block(dict(original.obj), block.siblings, block.owner)
        wanted[flow.blocks[original]] = f"{site.name}_{original.name}"
    flow.continuation = Block(sorted_object(name="", instructions=[]), block.siblings, block.owner)
    wanted[flow.continuation] = f"{site.name}_continuation"
    return flow


def put_in_place(expansion: Expansion, wanted: dict[Node, str]) -> None:
    """N12, N13: the rows go where they belong; no block is left without any."""
    site, flow = expansion.site, expansion.flow
    block = site.instruction.block
    place = block.instructions.index(site.instruction)
    before, after = block.instructions[:place], block.instructions[place + 1 :]
    parts = expansion.parts()
    if flow.continuation is None:
        body = parts[0] if parts else []
        fill(site, block, [*before, *body, *after], wanted)
        return
    add_last_branch(flow, parts[-1], wanted)
    own_parts = parts
    if flow.body.branches_to_entry:
        to_entry = branch_to(site, flow.blocks[flow.body.function.blocks[0]])
        wanted[to_entry] = f"{site.name}_br_to_entry"
        before.append(to_entry)
    else:
        before += parts[0]
        own_parts = parts[1:]
    fill(site, block, before, wanted)
    for clone, part in zip(flow.blocks.values(), own_parts, strict=True):
        fill(site, clone, part, wanted)
    fill(site, flow.continuation, after, wanted, noop="continuation_noop")
    following = block.siblings.index(block) + 1
    block.siblings[following:following] = [*flow.blocks.values(), flow.continuation]


def add_last_branch(flow: Flow, rows: list[Instruction], wanted: dict[Node, str]) -> None:
    """N13: the end of the last block, unless it goes somewhere already."""
    last = flow.body.function.blocks[-1].instructions[-1:]
    assert flow.continuation is not None
    if not last or last[0].opcode not in TERMINATORS:
        branch = branch_to(flow.site, flow.continuation)
        wanted[branch] = f"{flow.site.name}_br_to_continuation"
        rows.append(branch)


def fill(
    site: Site,
    block: Block,
    rows: list[Instruction],
    wanted: dict[Node, str],
    *,
    noop: str = "noop",
) -> None:
    """Give a block its rows; N13: one NoOp if there are none."""
    if not rows:
        rows = [new_row(site)]
        wanted[rows[0]] = f"{site.name}_{noop}"
    for row in rows:
        row.block = block
    block.obj = edited(block.obj, {"instructions": rows})
