"""What a call-site's arguments are bound to, and the checks of a call-site (N4, N6, N7, N9)."""

from dataclasses import dataclass, field
from typing import Any

from tests.oracle.graph import Function, Instruction, Location, MemorySet, Ref, Register
from tests.oracle.names import INPUT_KINDS, OUTPUT_KINDS, PARAMETER_KINDS, find_formal
from tests.oracle.outcome import PassFailure

SOURCES = ("Beta1", "Beta2", "Beta3")


@dataclass(eq=False)
class Site:
    """A call-site that is expanded, and what the checks find out about it.

    `sets` maps the set of each formal to the location, or to the set, that is bound to it; `registers` maps
    register formals to registers of the caller. Both are about the callee as in the file.
    """

    caller: Function
    instruction: Instruction
    callee: Function
    source: str = "Beta1"
    sets: dict[MemorySet, Location | MemorySet] = field(default_factory=dict)
    registers: dict[Register, Register] = field(default_factory=dict)
    # The actuals that entries of each map name, entries that a later one overrides included.
    named: dict[str, list[Location | MemorySet]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.instruction.name

    def failure(self, code: str, message: str) -> PassFailure:
        return PassFailure(
            code,
            message,
            function=self.caller.name,
            block=self.instruction.block.name,
            instruction=self.name,
        )


def check_call_site(site: Site) -> None:
    """The order of checks: N9, plain, N4 entries, N6, positional binding, counts, sizes."""
    site.source = kernel_source(site)
    check_plain(site)
    for key in ("func_args", "func_outs"):
        bind_entries(site, key)
    check_scratchpad_count(site)
    bind_by_position(site, "func_args", INPUT_KINDS, site.instruction.operands("ins"))
    bind_by_position(site, "func_outs", OUTPUT_KINDS, own_outputs(site))
    check_counts(site)
    check_sizes(site)


def kernel_source(site: Site) -> str:
    """N9: a name or its number; absent or null is the first."""
    written = site.instruction.obj.get("kernel_source_val")
    if written is None:
        return SOURCES[0]
    if written in SOURCES:
        return str(written)
    if isinstance(written, int) and not isinstance(written, bool) and 0 <= written < len(SOURCES):
        return SOURCES[written]
    raise site.failure("unknown_kernel_source", "Unrecognized kernel source encountered.")


def check_plain(site: Site) -> None:
    """N14: what a call-site may not carry; empty ones are plain."""
    for key in ("sync_info", "predicates"):
        if site.instruction.obj.get(key):
            raise site.failure("call_site_not_plain", f"the call-site has `{key}`, which its body cannot take over")


def entries_of(site: Site, key: str) -> list[tuple[Any, Any]]:
    """N4: JSON objects and lists of pairs are read alike."""
    written = site.instruction.obj.get(key) or []
    pairs = written.items() if isinstance(written, dict) else ((pair[0], pair[1]) for pair in written)
    return list(pairs)


def bind_entries(site: Site, key: str) -> None:
    """N4: the entries of one map; the last entry for a formal wins, over both maps."""
    site.named[key] = []
    for formal_name, actual in entries_of(site, key):
        formal = find_formal(site.callee, formal_name, key)
        target = actual.target if isinstance(actual, Ref) else None
        if formal.memory_set is None and formal.register is None:
            raise site.failure(
                "unknown_parameter",
                f"`{key}` names `{formal_name}`, which is no parameter of `{site.callee.name}`",
            )
        wanted = (Location, MemorySet) if formal.memory_set is not None else Register
        if not isinstance(target, wanted):
            written = actual.raw if isinstance(actual, Ref) else actual
            raise site.failure(
                "unresolved_name",
                f"`{key}` binds `{formal_name}` to `{written}`, which `{site.caller.name}` lacks",
            )
        if formal.memory_set is not None:
            site.sets[formal.memory_set] = target
            site.named[key].append(target)
        else:
            site.registers[formal.register] = target


def scratchpad_counts(site: Site) -> tuple[int, int]:
    """N6: the numbers of SB and of PSUM scratchpads."""
    sb_shape = site.instruction.obj.get("sb_buf_shape") or []
    psum_shape = site.instruction.obj.get("psum_buf_shape") or []
    banks = (psum_shape[0] or 0) if psum_shape else 0
    return int(any(sb_shape)), max(0, banks)


def check_scratchpad_count(site: Site) -> None:
    """N6: the outputs end in the scratchpads."""
    sb, psum = scratchpad_counts(site)
    outputs = len(site.instruction.operands("outs"))
    if outputs < sb + psum:
        raise site.failure(
            "scratchpad_count",
            f"Insufficient number of outputs param, expect {sb} SB buffers and {psum} PSUM buffers, "
            f"but only got {outputs} outputs",
        )


def own_outputs(site: Site) -> list[Any]:
    """N6: the outputs without the scratchpads."""
    outputs = site.instruction.operands("outs")
    return outputs[: len(outputs) - sum(scratchpad_counts(site))]


def operand_storage(operand: Any) -> Ref | None:
    """The reference of an operand to its location, or else to its set; none for immediates and registers."""
    if isinstance(operand, dict):
        for key in ("memref", "memsetref"):
            if isinstance(operand.get(key), Ref):
                return operand[key]
    return None


def single_location(storage: Any) -> Location | None:
    """The location that is meant: itself, or the only one of a set."""
    if isinstance(storage, Location):
        return storage
    if isinstance(storage, MemorySet) and len(storage.locations) == 1:
        return storage.locations[0]
    return None


def same_storage(one: Any, other: Any) -> bool:
    single = single_location(one)
    return one is other or (single is not None and single is single_location(other))


def bind_by_position(site: Site, key: str, kinds: tuple[str, ...], operands: list[Any]) -> None:
    """N4: the i-th unmapped set of these kinds to the i-th location that the operands name."""
    unmapped = [each for each in site.callee.sets if each.kind in kinds and each not in site.sets]
    refs = [ref for ref in map(operand_storage, operands) if ref is not None]
    free = [ref for ref in refs if not any(same_storage(ref.target, other) for other in site.named[key])]
    for place, formal in enumerate(unmapped):
        if place >= len(free):
            raise site.failure(
                "unbound_parameter", f"parameter `{formal.name}` of `{site.callee.name}` is bound to nothing"
            )
        target = free[place].target
        if not isinstance(target, Location | MemorySet):
            raise site.failure("unresolved_name", f"operand names `{free[place].raw}`, which is not there")
        if not any(target is each for each in (*site.caller.locations, *site.caller.sets)):
            raise site.failure("unresolved_name", f"operand names `{target.name}` of another function")
        site.sets[formal] = target


def formals(site: Site) -> list[MemorySet]:
    return [memory_set for memory_set in site.callee.sets if memory_set.kind in PARAMETER_KINDS]


def check_counts(site: Site) -> None:
    """N4: a formal's set, and an actual given by set name, has exactly one location."""
    for formal in formals(site):
        actual = site.sets[formal]
        for memory_set in (formal, actual):
            if isinstance(memory_set, MemorySet) and len(memory_set.locations) != 1:
                raise site.failure(
                    "parameter_location_count",
                    "Input/Output DRAM memory location set should only has one location, but got "
                    f"{len(memory_set.locations)} locations",
                )


def check_sizes(site: Site) -> None:
    """N4: actual and formal have the same number of bytes."""
    for formal in formals(site):
        wanted, given = formal.locations[0], single_location(site.sets[formal])
        assert given is not None
        if wanted.total_bytes != given.total_bytes:
            raise site.failure(
                "parameter_size_mismatch",
                f"`{given.name}` {given.dims} is bound to `{wanted.name}` {wanted.dims}; bytes must be equal",
            )


def sb_scratchpad(site: Site) -> Location | None:
    """N6: the location of the SB scratchpad; none when what stands in its place is not of type SB."""
    sb, psum = scratchpad_counts(site)
    if not sb:
        return None
    ref = operand_storage(site.instruction.operands("outs")[-(sb + psum)])
    if ref is None:
        return None
    if ref.target is None:
        raise site.failure("unresolved_name", f"the SB scratchpad `{ref.raw}` is not there")
    location = single_location(ref.target)
    return location if location is not None and location.memory == "SB" else None


def sb_base(site: Site) -> int:
    """N7: the scratchpad's address, else that of the first SB location among the outputs, else 0."""
    scratchpad = sb_scratchpad(site)
    if scratchpad is not None:
        return scratchpad.number("addr")
    for operand in site.instruction.operands("outs"):
        ref = operand_storage(operand)
        location = None if ref is None else single_location(ref.target)
        if location is not None and location.memory == "SB":
            return location.number("addr")
    return 0
