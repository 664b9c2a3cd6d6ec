"""How `arrowir info` tells what fits: SBUF per partition and PSUM per bank against the architecture."""

import json
from typing import Any

import pytest

from arrowir import build, vocabulary
from arrowir.analyse.fit import VERDICTS, fit
from tests.command_line import SCALE_ADD, TINY, Command


def of(main: build.FunctionBuilder, module: build.ModuleBuilder) -> dict[str, Any]:
    (found,) = fit(module.ir())
    assert main.name == "sg0000"
    return found


@pytest.fixture
def module() -> build.ModuleBuilder:
    return build.module(arch="gen3")


@pytest.fixture
def main(module: build.ModuleBuilder) -> build.FunctionBuilder:
    return module.function()


def test_sums_are_those_of_the_fullest_partition(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.sb("a", [64, 100], "uint8", addr=0)
    main.sb("b", [32, 30], "uint8", addr=0, base=64)
    main.sb("c", [64, 7], "uint8", addr=200)
    main.sb("d", [128, 1000], "uint8")
    assert of(main, module)["SB"] == {
        "capacity_bytes": 229_376,
        "reserved_bytes": 16_392,
        "usable_bytes": 212_984,
        "allocated_bytes": 107,
        "unallocated_bytes": 1000,
        "highest_byte": 207,
        "largest_bytes": 1000,
        "fit": "fits",
    }


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [
        ([(1000, 0), (1000, None)], "fits"),
        ([(112_984, None), (100_000, None)], "fits"),
        ([(112_985, None), (100_000, None)], "only with reuse"),
        ([(229_377, None)], "too large"),
        ([(8, 229_368)], "fits"),
        ([(9, 229_368)], "out of bounds"),
        ([(1000, 400_000)], "out of bounds"),
        ([(1000, -64)], "out of bounds"),
        ([(200_000, 0), (200_000, 0)], "fits"),
    ],
)
def test_verdicts(sizes: Any, verdict: str, main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    for number, (size, addr) in enumerate(sizes):
        main.sb(f"t{number}", [128, size], "uint8", addr=addr)
    assert of(main, module)["SB"]["fit"] == verdict
    assert verdict in VERDICTS


def test_psum_has_banks(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.psum("p", [128, 512], addr=0, bank=3)
    main.psum("q", [128, 512])
    found = of(main, module)["PSUM"]
    assert (found["banks"], found["bank_bytes"], found["capacity_bytes"]) == (8, 2048, 16_384)
    assert found["reserved_bytes"] == 0
    assert (found["allocated_bytes"], found["unallocated_bytes"], found["fit"]) == (2048, 2048, "fits")
    assert found["bank_highest_bytes"] == [0, 0, 0, 2048, 0, 0, 0, 0]
    main.psum("whole", [128, 256], addr=2 * 2048 + 512, bank=2)  # where it is in the partition, not in the bank
    assert of(main, module)["PSUM"]["bank_highest_bytes"] == [0, 0, 1536, 2048, 0, 0, 0, 0]
    main.psum("last", [128, 512], addr=7 * 2048, bank=7)
    assert of(main, module)["PSUM"]["fit"] == "fits"
    main.psum("r", [128, 1024], addr=0, bank=6)  # two banks
    assert of(main, module)["PSUM"]["fit"] == "fits"
    main.psum("s", [128, 1024], addr=0, bank=7)
    assert of(main, module)["PSUM"]["fit"] == "out of bounds"


def test_n24_an_unknown_arch_has_no_verdict() -> None:
    module = build.module(arch="gen9")
    main = module.function()
    main.sb("t", [128, 100])
    found = of(main, module)["SB"]
    assert (found["capacity_bytes"], found["usable_bytes"], found["fit"]) == (None, None, "unknown")


def test_kernels_lie_in_scratchpads_and_do_not_count(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    module.kernel("k").sb("t", [128, 400_000], "uint8", addr=0)
    main.sb("t", [128, 1], "uint8", addr=0)
    assert of(main, module)["SB"]["highest_byte"] == 1


def test_r05_reserved_and_usable_bytes_are_apart_and_within_the_capacity() -> None:
    for arch in vocabulary.ARCHES:
        if arch.sbuf_bytes is not None:
            assert arch.reserved_bytes is not None
            assert 0 < arch.reserved_bytes < arch.sbuf_bytes
            above = vocabulary.EVAL_RESERVED_BYTES if arch.level > vocabulary.EVAL_RESERVED_ABOVE_LEVEL else 0
            assert arch.reserved_bytes == vocabulary.DYNAMIC_DMA_SCRATCH_BYTES + above


def test_info_says_it(command: Command) -> None:
    code, out, _ = command("info", TINY, SCALE_ADD, "--json")
    tiny, scale_add = json.loads(out)["modules"]
    assert code == 0
    assert tiny["memory"]["SBUF"]["fit"]["fit"] == "fits"
    assert tiny["memory"]["SBUF"]["status"] == "allocated"
    assert scale_add["memory"]["SBUF"]["status"] == "unallocated"
    assert scale_add["memory"]["SBUF"]["fit"]["highest_byte"] == 0
    _, out, _ = command("info", TINY)
    assert "usable bytes" in out
    assert "212984" in out
