"""Faults in the smaller passes are caught: by execution, or by the second implementation."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.passes.base import FAILED, STATUS, PassResult
from arrowir.testing.assertions import assert_valid
from arrowir.testing.executable import Seeded
from arrowir.testing.foldable import FoldableModule
from arrowir.testing.front_end import carrier, kernel_file
from docs.generator.rules import RULES
from tests.constant_modules import copy, fill, main
from tests.faults.branch_mutations import BRANCH_MUTATIONS
from tests.faults.further_mutations import FURTHER_MUTATIONS
from tests.faults.mutations import MUTATIONS, Mutation
from tests.kernel_files import SHAPE, put
from tests.oracle import Outcome, run_coalesce, run_constants, run_lower
from tests.oracle.builders import access, function, memory_set, op
from tests.properties.channels import collectives
from tests.properties.indirects import indirect_module
from tests.single_pass import Json, read

pytestmark = pytest.mark.usefixtures("quiet")

COALESCE, LOWER, PROPAGATE, TRANSLATE = (
    "coalesce_multichannel_cc_ops",
    "lower_generic_indirect",
    "constant_propagate",
    "translate_nki_ast_to_bir",
)
ORACLES: dict[str, Callable[..., Outcome]] = {COALESCE: run_coalesce, LOWER: run_lower, PROPAGATE: run_constants}
DRAWN = 10
SEEDS = {COALESCE: (99, 11, 68, 12, 0, 4), LOWER: (6, 0), PROPAGATE: (264, 0, 9, 33, 13, 108, 6)}
"""Modules in which faults show that are seldom drawn; they are looked at before the others."""
EXAMPLES: dict[str, list[Json]] = {
    PROPAGATE: [
        main(copy("a", "c", "y"), fill("m", "c"), copy("z", "c", "y")),
        main(copy("a", "c", "d"), fill("m", "c"), copy("z", "c", "y")),
        main(fill("m", "c"), op("k", "NKIKernel", func="k", func_outs={"a": "c"}), copy("z", "c", "y"))
        | {"nki_functions": {"functions": [function("k", [memory_set("a_set", "ExternalOutput")])]}},
        main(
            fill("m", "c"),
            op("p", "Matmult", ins=[access("x"), access("x")], outs=[access("c")], accumulation_flag=2,
               sync_info={"on_wait": []}),
        ),
    ]
}  # fmt: skip
"""What the drawn modules have never: a reader that goes, calls by maps alone, sums that nobody reads."""


def drawn(name: str, seed: int, *, executable: bool) -> tuple[Json, Json]:
    """Return a module, and the inputs that it wants."""
    if name == COALESCE:
        return collectives(Random(seed)), {}
    if name == LOWER:
        return indirect_module(Random(seed))
    return FoldableModule(Seeded(seed), executable=executable).draw(), {}


def seeds(name: str) -> list[int]:
    return [*SEEDS[name], *(seed for seed in range(DRAWN) if seed not in SEEDS[name])]


def mutants(*caught: str, of: tuple[str, ...] = tuple(ORACLES)) -> pytest.MarkDecorator:
    chosen = [m for m in FURTHER_MUTATIONS if m.caught in caught and m.of in of]
    return pytest.mark.parametrize("mutation", chosen, ids=lambda m: m.name)


def executed_differently(document: Json, inputs: Json, run: Callable[[air.IR], PassResult]) -> bool:
    ir = read(document)
    result = run(ir)
    if result.codes[0] == FAILED:
        return False
    return "different" in air.equivalent(ir, result.ir, inputs=inputs or None, trials=1).statuses.values()


def differs_from_the_oracle(name: str, documents: list[Json], result: PassResult, **options: Any) -> bool:
    for module_id, document in enumerate(documents):
        wanted = ORACLES[name](document, **options)
        if STATUS[int(result.codes[module_id])] != wanted.status:
            return True
        if json.dumps(json.loads(result.ir.to_json(module_id))) != json.dumps(wanted.doc):
            return True
    return False


@pytest.fixture(scope="module")
def batches() -> dict[str, tuple[list[Json], air.IR]]:
    """Modules of each pass, also such as cannot be executed or are refused."""
    found: dict[str, tuple[list[Json], air.IR]] = {}
    for name in ORACLES:
        documents = [drawn(name, seed, executable=False)[0] for seed in seeds(name)] + EXAMPLES.get(name, [])
        found[name] = documents, air.concat([read(each, f"m{k}") for k, each in enumerate(documents)])
    return found


def run(mutation: Mutation, ir: air.IR) -> PassResult:
    with mutation.applied():
        return air.passes.make(mutation.of, **dict(mutation.options))(ir)


@mutants("execution")
def test_execution_shows_the_fault(mutation: Mutation) -> None:
    examples = (drawn(mutation.of, seed, executable=True) for seed in seeds(mutation.of))
    assert any(executed_differently(*example, lambda ir: run(mutation, ir)) for example in examples)


@mutants("assert_valid")
def test_the_check_of_tables_shows_the_fault(mutation: Mutation, batches: dict[str, tuple[list[Json], air.IR]]) -> None:
    result = run(mutation, batches[mutation.of][1])
    with pytest.raises(AssertionError):
        assert_valid(result.ir)


@mutants("oracle")
def test_the_oracle_shows_the_fault(mutation: Mutation, batches: dict[str, tuple[list[Json], air.IR]]) -> None:
    documents, ir = batches[mutation.of]
    result = run(mutation, ir)
    assert_valid(result.ir)
    assert differs_from_the_oracle(mutation.of, documents, result, **dict(mutation.options))


@pytest.mark.parametrize("name", ORACLES)
def test_without_a_fault_the_oracle_agrees(name: str, batches: dict[str, tuple[list[Json], air.IR]]) -> None:
    documents, ir = batches[name]
    assert not differs_from_the_oracle(name, documents, air.passes.make(name)(ir))


@pytest.mark.parametrize("name", [LOWER, PROPAGATE])
def test_without_a_fault_execution_agrees(name: str) -> None:
    for seed in seeds(name):
        assert not executed_differently(*drawn(name, seed, executable=True), air.passes.make(name))


def test_faults_have_names_and_rules() -> None:
    assert [m.name for m in FURTHER_MUTATIONS if m.rule not in RULES] == []
    names = [(m.of, m.name) for m in (*MUTATIONS, *BRANCH_MUTATIONS, *FURTHER_MUTATIONS)]
    assert len(set(names)) == len(names)


# Kernel files: what the modules compute once their kernels are there is known.


def _scalar(op: str, number: float) -> Json:
    return {"op0": op, "const0": number, "reverse0": False, "op1": "bypass", "const1": 0.0, "reverse1": False}


def _difference(made: build.ModuleBuilder, name: str, factor: float, *, bank: int | None = None) -> None:
    """Add the function `c = factor a - b`; with a bank all of its memory is placed."""
    kernel = made.function(name)
    placed = bank is not None
    a, b, c = kernel.input("a", SHAPE), kernel.input("b", SHAPE), kernel.output("c", SHAPE)
    left, right = (kernel.sb(name, SHAPE, addr=at if placed else None) for name, at in (("left", 64), ("right", 0)))
    result = kernel.psum("result", SHAPE, addr=0, bank=bank) if bank is not None else left
    loads = [kernel.add("Load", [a], [left]), kernel.add("Load", [b], [right])]
    scale = kernel.add("TensorScalar", [left], [left], after=loads, **_scalar("mult", factor))
    minus = kernel.add("TensorTensor", [left, right], [result], op="subtract", after=[scale])
    copied = kernel.add("TensorCopy", [result], [left], after=[minus])
    kernel.add("Save", [left], [c], after=[copied])


def _plus_one() -> Json:
    """Return the kernel file of `c = a + 1`, which a kernel of its own computes for both cores."""
    made = build.module(arch="gen3")
    for core in range(2):
        outer = made.function(f"outer{core}")
        a, c = outer.input("a", SHAPE), outer.output("c", SHAPE)
        outer.call("inner", {"a": a}, {"c": c})
    inner = made.kernel("inner")
    a, c, tile = inner.input("a", SHAPE), inner.output("c", SHAPE), inner.sb("tile", SHAPE)
    load = inner.add("Load", [a], [tile])
    add = inner.add("TensorScalar", [tile], [tile], after=[load], **_scalar("add", 1.0))
    inner.add("Save", [tile], [c], after=[add])
    return made.json()


def _plus_constant(file: str) -> Json:
    """Return the kernel file of `c = a + w`, of which `w` is in a file."""
    made = build.module(arch="gen3")
    kernel = made.function("plus_constant")
    a, c, tile = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.sb("tile", SHAPE)
    constant, other = kernel.tensor("w", "DRAM", SHAPE, kind="Const", set_members={"file": file}), kernel.sb("o", SHAPE)
    loads = [kernel.add("Load", [a], [tile]), kernel.add("Load", [constant], [other])]
    add = kernel.add("TensorTensor", [tile, other], [tile], op="add", after=loads)
    kernel.add("Save", [tile], [c], after=[add])
    return kernel_file(made)


def _caller(core: int, *steps: tuple[str, bool]) -> Json:
    """Return a module that hands `x` through kernel files into `y`; some of these take `b` beside."""
    made = build.module(arch="gen3", attributes={"neuron_core_id": core})
    main = made.function("main")
    value, more, before = main.input("x", SHAPE), main.input("b", SHAPE), list[Any]()
    for number, (file, two) in enumerate(steps):
        last = number == len(steps) - 1
        result = main.output("y", SHAPE) if last else main.dram(f"t{number}", SHAPE)
        given = {"a": value, "b": more} if two else {"a": value}
        maps = {"func_args": {name: held.name for name, held in given.items()}, "func_outs": {"c": result.name}}
        before = [main.add("NKIKLIRKernel", list(given.values()), [result], after=before, **carrier(file), **maps)]
        value = result
    return made.json()


CONSTANT = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
X, B = (np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32) for seed in (1, 2))
Y = {
    "two_files": 3 * X - B + 1,
    "placed": X - B,
    "constant": X + CONSTANT,
}
"""What each module computes."""


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> air.IR:
    """Modules that name kernel files, one for each of what can go wrong there."""
    folder = tmp_path_factory.mktemp("artefacts")
    plain, placed = build.module(arch="gen3"), build.module(arch="gen3")
    _difference(plain, "difference0", 1.0)
    _difference(plain, "difference1", 3.0)
    _difference(placed, "placed", 1.0, bank=1)
    files = {
        "kernels/difference.json": kernel_file(plain),
        "kernels/placed.json": kernel_file(placed),
        "kernels/plus_one.json": _plus_one(),
        "kernels/plus_constant.json": _plus_constant("w.npy"),
        "sg00/two_files.json": _caller(1, ("kernels/difference.json", True), ("kernels/plus_one.json", False)),
        "sg00/placed.json": _caller(0, ("kernels/placed.json", True)),
        "sg00/constant.json": _caller(0, ("kernels/plus_constant.json", False)),
    }
    for path, document in files.items():
        put(folder / path, document)
    np.save(folder / "kernels/w.npy", CONSTANT)
    return air.read([folder / f"sg00/{name}.json" for name in Y])


def computes_what_it_should(ir: air.IR) -> bool:
    """Translate, inline, and execute."""
    translated = air.passes.make(TRANSLATE, scratchpad_addr=16384)(ir)
    inlined = air.passes.inline_nki_kernel(translated.ir)
    if not (translated.ok and inlined.ok):
        return False
    for module_id, wanted in enumerate(Y.values()):
        try:
            found = air.simulate(inlined.ir.select([module_id]), {"x": X, "b": B})
        except air.SimulationError:
            return False
        if not np.allclose(found["y"], wanted, atol=1e-5):
            return False
    return True


def test_without_a_fault_kernel_files_compute_what_they_should(callers: air.IR) -> None:
    assert computes_what_it_should(callers)


@mutants("execution", of=(TRANSLATE,))
def test_what_kernel_files_compute_shows_the_fault(mutation: Mutation, callers: air.IR) -> None:
    with mutation.applied():
        assert not computes_what_it_should(callers)
