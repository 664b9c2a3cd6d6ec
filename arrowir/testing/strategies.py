"""Hypothesis strategies for BIR modules.

All strategies give plain dicts, as `json.loads` would. They shrink towards small modules without oddities. Which
features a document uses is counted by `statistics`.

============================  =================================================================
`documents`                   anything that the format allows
`inlinable_documents`         call-sites and kernels, for `inline_nki_kernel`
`unrollable_documents`        loop nests, for `unroll`
`reservable_documents`        architectures and placements, for `runtime_memory_reservation`
`executable_documents`        programs that `air.simulate` can run, for proofs by execution
`foldable_documents`          constants, copies and dead code, for `constant_propagate`
`faulty_...`                  pairs of a document with one fault and the code of that fault
============================  =================================================================
"""

from collections.abc import Sequence

from hypothesis import strategies as st

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.call_faults import CALL_FAULTS, HUGE, NEW_EXPRESSIONS, FaultPlace
from arrowir.testing.drawing import Source
from arrowir.testing.drawn_bodies import BodyDrawer, draw_storage, storage_set
from arrowir.testing.drawn_modules import ModuleDrawer
from arrowir.testing.executable import ExecutableModule, Shape
from arrowir.testing.features import statistics
from arrowir.testing.foldable import FoldableModule
from arrowir.testing.format_documents import DocumentDrawer
from arrowir.testing.loop_faults import LOOP_FAULTS, FaultContext
from arrowir.testing.reservable import ReservationDrawer

__all__ = [
    "documents",
    "executable_documents",
    "faulty_inlinable_documents",
    "faulty_unrollable_documents",
    "foldable_documents",
    "inlinable_documents",
    "reservable_documents",
    "statistics",
    "unrollable_documents",
]


@st.composite
def documents(draw: st.DrawFn, *, bare_nonfinite: bool = True, odd_names: bool = True) -> Json:
    """Give small modules that are valid by the format and otherwise mean nothing.

    They hold operands, storage and expressions of every kind, known and unknown opcodes with their members, loops,
    branches, queues, semaphores, aliases, edges in every form, members that nobody knows, nulls, big integers, odd
    floats and names, repeated and unresolved names, in sorted and other orders.

    Parameters
    ----------
    draw : callable
        Given by Hypothesis.
    bare_nonfinite : bool
        Floats may be infinite or no number, which JSON writes as bare tokens. Such a document does not equal itself
        once it was read again: compare with `arrowir.testing.checking.difference`.
    odd_names : bool
        Names may be empty, long, or hold any character.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(documents())
    ... def test_reading(document):
    ...     assert read(json.dumps(document)) is not None
    """
    return DocumentDrawer(Source(draw), bare_nonfinite=bare_nonfinite, odd_names=odd_names).document()


@st.composite
def _sound_inlinable(draw: st.DrawFn, multi_block: bool, nested: bool) -> Json:
    return ModuleDrawer(Source(draw), multi_block=multi_block, nested=nested).draw()


def inlinable_documents(
    *, faulty: bool = False, multi_block: bool = False, nested: bool = False
) -> st.SearchStrategy[Json]:
    """Give modules on which inlining NKI kernels succeeds.

    One to three kernels and up to six call-sites, also in loops: bound by name, by position and in part by either,
    through objects and pairs, by location and by set; with and without scratchpads and addresses; bodies with loops,
    registers, dynamic accesses, edges of all three relations, waits; names that clash and names that are equal.

    Parameters
    ----------
    faulty : bool
        About half of the modules have one fault, see `faulty_inlinable_documents`.
    multi_block : bool
        Kernels may have several blocks, with branches and returns among them.
    nested : bool
        Kernels may call kernels.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(inlinable_documents(nested=True))
    ... def test_inlining(document):
    ...     assert statistics(inlined(document))["call-site"] == 0
    """
    sound = _sound_inlinable(multi_block, nested)
    if not faulty:
        return sound
    faulty_ones = faulty_inlinable_documents(multi_block=multi_block, nested=nested)
    return st.one_of(sound, faulty_ones.map(lambda pair: pair[0]))


def _codes(known: Sequence[str], codes: Sequence[str] | None) -> list[str]:
    if codes is None:
        return [code for code in known if code not in HUGE]
    unknown = [code for code in codes if code not in known]
    if unknown:
        raise ValueError(
            f"there is no fault for `{unknown[0]}`, choose from {', '.join(f'`{code}`' for code in known)}"
        )
    return list(codes)


@st.composite
def _faulty_inlinable(draw: st.DrawFn, codes: list[str], multi_block: bool, nested: bool) -> tuple[Json, str]:
    code = draw(st.sampled_from(codes))
    source = Source(draw)
    version = 2 if code in NEW_EXPRESSIONS else None
    module = ModuleDrawer(source, multi_block=multi_block, nested=nested, call_sites=1, version=version)
    module.draw_functions()
    CALL_FAULTS[code](FaultPlace(module))
    return module.document(), code


def faulty_inlinable_documents(
    codes: Sequence[str] | None = None, *, multi_block: bool = False, nested: bool = False
) -> st.SearchStrategy[tuple[Json, str]]:
    """Give modules that inlining refuses, with the code of the error.

    Parameters
    ----------
    codes : sequence of str, optional
        Which faults; by default all but `too_many_instructions`, which a naive implementation does not survive.
    multi_block : bool
        Kernels may have several blocks, with branches and returns among them.
    nested : bool
        Kernels may call kernels; the fault may be at a call-site inside one.

    Returns
    -------
    SearchStrategy of (dict, str)
        The documents and codes.

    Raises
    ------
    ValueError
        There is no such fault.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(faulty_inlinable_documents(["sb_overflow", "no_callee"]))
    ... def test_refusal(pair):
    ...     document, code = pair
    ...     assert errors_of(document) == [code]
    """
    return _faulty_inlinable(_codes(list(CALL_FAULTS), codes), multi_block, nested)


class _LoopModule:
    """Draws one module of loop nests."""

    def __init__(self, source: Source, version: int | None) -> None:
        self.source = source
        self.version = version or source.of((2, 2, 1))
        self.functions: list[Json] = []

    def function(self, name: str) -> None:
        s = self.source
        s.begin()
        storages = [draw_storage(s, f"t{number}") for number in range(s.count(3))]
        allocations = [
            storage_set(s, storage, s.of(("Internal", "ExternalInput", "ExternalOutput"))) for storage in storages
        ]
        registers = [f"r{number}" for number in range(s.digit(3))]
        allocations += [bir.register(register) for register in registers]
        drawer = BodyDrawer(s, self.version, "I-", storages, registers)
        blocks = [bir.block(f"Block{number + 1}", drawer.rows(s.count(4), 3)) for number in range(s.of((1, 1, 2)))]
        drawer.add_edges(60)
        function = bir.function(name, allocations, blocks)
        form = s.digit(6)
        if form < 4:
            function["attributes"] = ([], ["need_unroll"], ["a", "need_unroll", "b"], {"need_unroll": True})[form]
        elif form == 4:
            del function["attributes"]
        self.functions.append(s.unknown(function, 5))

    def document(self) -> Json:
        s = self.source
        kernels = [self.functions.pop()] if len(self.functions) > 1 and s.chance(50) else []
        document = bir.module(self.functions, kernels, arch=s.of(("gen3", "sunda", "gen9")), version=self.version)
        return s.order(s.unknown(document, 5))


@st.composite
def _sound_unrollable(draw: st.DrawFn) -> Json:
    module = _LoopModule(Source(draw), None)
    for number in range(module.source.of((1, 1, 2))):
        module.function(f"f{number}")
    return module.document()


def unrollable_documents(*, faulty: bool = False) -> st.SearchStrategy[Json]:
    """Give modules on which unrolling succeeds.

    Nests of up to three loops, ascending and descending, some of no trips, constant expressions as bounds; symbolic
    addresses that stay in bounds; expressions as members, with parts that are known only at run time; symbolic
    immediates; edges of all three relations within, into and out of loops, over several trips; expressions of either
    version.

    Parameters
    ----------
    faulty : bool
        About half of the modules have one fault, see `faulty_unrollable_documents`.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(unrollable_documents())
    ... def test_unrolling(document):
    ...     assert statistics(unrolled(document))["opcode:Loop"] == 0
    """
    sound = _sound_unrollable()
    if not faulty:
        return sound
    return st.one_of(sound, faulty_unrollable_documents().map(lambda pair: pair[0]))


@st.composite
def _faulty_unrollable(draw: st.DrawFn, codes: list[str]) -> tuple[Json, str]:
    code = draw(st.sampled_from(codes))
    source = Source(draw)
    module = _LoopModule(source, 2 if code in NEW_EXPRESSIONS else None)
    module.function("f0")
    context = FaultContext(source, module.version)
    row = LOOP_FAULTS[code](context)
    function = module.functions[0]
    rows = function["blocks"][0]["instructions"]
    rows.insert(source.digit(len(rows) + 1), row)
    function["allocations"].extend(context.sets)
    return module.document(), code


def faulty_unrollable_documents(codes: Sequence[str] | None = None) -> st.SearchStrategy[tuple[Json, str]]:
    """Give modules that unrolling refuses, with the code of the error.

    Parameters
    ----------
    codes : sequence of str, optional
        Which faults; by default all but `too_many_instructions`, which a naive implementation does not survive.

    Returns
    -------
    SearchStrategy of (dict, str)
        The documents and codes.

    Raises
    ------
    ValueError
        There is no such fault.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(faulty_unrollable_documents(["zero_stride"]))
    ... def test_refusal(pair):
    ...     document, code = pair
    ...     assert errors_of(document) == [code]
    """
    return _faulty_unrollable(_codes(list(LOOP_FAULTS), codes))


@st.composite
def reservable_documents(draw: st.DrawFn) -> Json:
    """Give modules for the reservation of runtime memory, those that it refuses among them.

    All architectures and their aliases, unknown and absent ones; no, one or two functions; pinned and allocated
    locations in every memory, at and above the capacity; sets and locations of the reserved name that exist already,
    with and without the flag, with tensor ids that are absent, repeated or negative.

    Parameters
    ----------
    draw : callable
        Given by Hypothesis.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(reservable_documents())
    ... def test_reservation(document):
    ...     assert len(reserved(document)["functions"]) == len(document["functions"])
    """
    return ReservationDrawer(Source(draw)).draw()


@st.composite
def executable_documents(
    draw: st.DrawFn,
    *,
    calls: bool = True,
    nested: bool = True,
    blocks: bool = True,
    unrollable: bool = False,
    lowerable: bool = False,
) -> Json:
    """Give programs that can be executed: they come to an end, read nothing unwritten, and leave no location.

    One ordinary function and up to three kernels, called several times, by name and by position, also in loops.
    Tensors of several shapes and dtypes in DRAM, SB and PSUM; accesses to parts, with steps also negative, symbolic,
    and moved by registers; nested loops, and some whose trips stand in registers; several blocks with branches on
    registers, back edges that are counted, `Break` and early `Return`; names that clash with those that inlining makes.

    Inputs are meant to be what `arrowir.equivalent` draws: floats of at most 4 in size, integers from 0 to 127.

    Parameters
    ----------
    draw : callable
        Given by Hypothesis.
    calls : bool
        Kernels are called.
    nested : bool
        Kernels may call kernels.
    blocks : bool
        Functions may have several blocks.
    unrollable : bool
        Loops have one block each and constant bounds, so that all of them are unrolled.
    lowerable : bool
        Kernels have loops of all kinds too, and `unroll` takes all of them.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(executable_documents())
    ... def test_a_pass(document):
    ...     before = read(document)
    ...     assert air.equivalent(before, some_pass(before).ir).ok
    """
    return ExecutableModule(Source(draw), Shape(calls, nested, blocks, unrollable, lowerable)).draw()


@st.composite
def foldable_documents(draw: st.DrawFn, *, executable: bool = False) -> Json:
    """Give modules in which constants decide much, and much is read by nothing.

    Up to two functions and a kernel that they call; few small tensors, of which many are filled once; copies of all
    kinds, selections, logical operations and products by constants; edges of every relation; what must not be touched:
    aliases, pinned storage, queues, effects, unknown opcodes. Some have a `Select` whose predicate is none.

    Parameters
    ----------
    draw : callable
        Given by Hypothesis.
    executable : bool
        Only what the simulator executes, so that results can be compared.

    Returns
    -------
    SearchStrategy of dict
        The documents.

    Examples
    --------
    >>> from hypothesis import given
    >>> @given(foldable_documents(executable=True))
    ... def test_a_pass(document):
    ...     before = read(document)
    ...     assert air.equivalent(before, some_pass(before).ir).ok
    """
    return FoldableModule(Source(draw), executable=executable).draw()
