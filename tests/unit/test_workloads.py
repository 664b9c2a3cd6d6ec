"""Generated workloads: the same bytes each time, sound modules, the make-up that they stand for."""

import copy
import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from arrowir.testing import workloads
from arrowir.testing.bir import SBUF_BYTES, Json
from arrowir.testing.checking import INPUTS, OUTPUTS, instructions_of, kernels_of, problems
from arrowir.testing.planning import generate
from arrowir.testing.recipes import LAYER_KERNELS, RECIPES

DATA = Path(__file__).parents[2] / "data"
GENERATED = {
    "decode_8_layers.json": ["decode", "--layers", "8", "--scale", "0.9", "--short"],
    "tiny.json": ["tiny"],
    "loops.json": ["loops", "--layers", "2"],
    "library.json": ["library", "--layers", "3", "--short"],
    "experts.json": ["experts", "--layers", "2"],
    "kernel_lowered.json": ["kernel", "--instructions", "150", "--lowered"],
    "nested_mixed.json.gz": [
        *[
            "decode",
            "--layers",
            "4",
            "--scale",
            "0.3",
            "--nested",
            "--clashes",
            "0.1",
            "--allocated",
            "mixed",
            "--debug",
        ],
    ],
}
SMALL = {"scale": 0.05, "layers": 2}


def compact(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def caller_rows(document: Json) -> list[Json]:
    return list(instructions_of(document["functions"][0]["blocks"]))


def kernel_rows(document: Json) -> list[Json]:
    return [row for function in kernels_of(document) for row in instructions_of(function["blocks"])]


def call_sites_of(document: Json) -> list[Json]:
    return [row for row in caller_rows(document) if row["opcode"] == "NKIKernel"]


def edges_of(document: Json) -> int:
    rows = caller_rows(document) + kernel_rows(document)
    return sum(len(row.get("dependencies", [])) for row in rows)


# determinism


@pytest.mark.parametrize("options", [{"kind": "decode", **SMALL}, {"kind": "prefill", **SMALL}, {"kind": "loops"}])
def test_same_options_give_same_bytes(options: Json) -> None:
    assert compact(workloads.module(**options)) == compact(workloads.module(**options))


def test_another_seed_gives_another_module() -> None:
    assert workloads.module(**SMALL, seed=1) != workloads.module(**SMALL, seed=2)
    assert workloads.kernel(50, seed=0) != workloads.kernel(50, seed=5)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_bytes_do_not_depend_on_the_process(tmp_path: Path, hash_seed: str) -> None:
    target = tmp_path / "out.json"
    command = [sys.executable, "-m", "arrowir.testing.workloads", "decode", "--scale", "0.05", "-o", str(target)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(DATA.parent)}
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert target.read_text() == compact(workloads.module(scale=0.05))


@pytest.mark.parametrize("name", GENERATED)
def test_committed_files_come_from_their_command(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert workloads.main([*GENERATED[name], "-o", str(target)]) == 0
    made, committed = target.read_bytes(), (DATA / "generated" / name).read_bytes()
    if name.endswith(".gz"):
        made, committed = gzip.decompress(made), gzip.decompress(committed)
    assert hashlib.sha256(made).hexdigest() == hashlib.sha256(committed).hexdigest()
    assert f"{' '.join(GENERATED[name])} -o {name}" in (DATA / "README.md").read_text()


def test_committed_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DATA / "generated").iterdir()}
    assert sizes["decode_8_layers.json"] < 700_000
    assert sum(sizes.values()) < 1_500_000


# soundness

VARIANTS: list[Json] = [
    {"kind": "tiny"},
    {"kind": "tiny", "seed": 1},
    {"kind": "tiny", "seed": 2},
    {"kind": "loops"},
    {"kind": "decode", "layers": 3, "seed": 3, "scale": 0.5},
    {"kind": "decode", **SMALL, "arch": "sunda"},
    {"kind": "decode", **SMALL, "arch": "trn3", "nested": True},
    {"kind": "decode", **SMALL, "arch": "inferentia"},
    {"kind": "decode", **SMALL, "allocated": "mixed"},
    {"kind": "decode", **SMALL, "allocated": False, "full_keys": False},
    {"kind": "decode", **SMALL, "distinct": True, "nested": True},
    {"kind": "decode", **SMALL, "clashes": 0.3, "loops": True},
    {"kind": "decode", **SMALL, "duplicate_names": 0.1, "debug": True},
    {"kind": "mega", **SMALL},
    {"kind": "prefill", **SMALL, "seed": 2},
    {"kind": "prefill", **SMALL, "nested": True, "allocated": "mixed", "clashes": 0.3},
    {"kind": "prefill", "layers": 1, "scale": 0.02, "loops": True, "allocated": False},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: " ".join(map(str, options.values())))
def test_modules_are_sound(options: Json) -> None:
    document = workloads.module(**options)
    assert problems(document) == []
    assert json.loads(compact(document)) == document
    assert compact(document) == json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lowered", [False, True])
def test_kernels_are_sound(seed: int, lowered: bool) -> None:
    assert problems(workloads.kernel(150, seed, lowered=lowered)) == []


@pytest.mark.parametrize("path", sorted((DATA / "samples").rglob("*.json")), ids=lambda path: path.name)
def test_samples_are_sound(path: Path) -> None:
    found = problems(json.loads(path.read_text()))
    # the synthetic zoo names a function, a queue and a block that are not there, all of them `x`
    assert bool(found) == (path.name == "opcode_zoo.json")
    assert all("`x`" in line and line.endswith(("is no function", "is no queue", "is no block")) for line in found)


def _spoil(document: Json, fault: str) -> None:
    caller, callee = document["functions"][0], kernels_of(document)[0]
    site = call_sites_of(document)[0]
    row = next(row for row in instructions_of(callee["blocks"]) if row["opcode"] == "Matmult")
    if fault == "location":
        row["ins"][0]["memref"] = "nowhere"
    elif fault == "set":
        row["ins"][0]["memsetref"] = "nowhere_set"
    elif fault == "offset":
        row["ins"][0]["offset"] = 10**6
    elif fault == "pattern":
        row["outs"][0]["ap"][1][1] = 100_000
    elif fault == "edge":
        row["dependencies"] = [["nowhere", "Flow"]]
    elif fault == "function":
        site["func"] = "nowhere"
    elif fault == "formal":
        site["func_args"]["nowhere"] = next(iter(site["func_args"].values()))
    elif fault == "actual":
        site["func_args"][next(iter(site["func_args"]))] = "nowhere"
    elif fault == "size":
        callee["allocations"][0]["memorylocations"][0]["dims"][1] += 1
    elif fault == "room":
        scratch = next(item for item in caller["allocations"] if item["name"].startswith("sb_scratch"))
        scratch["memorylocations"][0]["addr"] += 200_000


FAULTS = ["location", "set", "offset", "pattern", "edge", "function", "formal", "actual", "size", "room"]


@pytest.mark.parametrize("fault", FAULTS)
def test_checker_finds_faults(fault: str) -> None:
    document = copy.deepcopy(workloads.module(layers=1, scale=0.2))
    assert problems(document) == []
    _spoil(document, fault)
    assert problems(document) != []


@pytest.mark.parametrize("kind", ["decode", "prefill", "loops"])
def test_checker_finds_symbolic_faults(kind: str) -> None:
    document = workloads.module(kind, layers=1, scale=0.02, loops=True)
    rows = [row for row in kernel_rows(document) if any("addrs" in operand for operand in row.get("ins", []))]
    operand = next(operand for operand in rows[0]["ins"] if "addrs" in operand)
    operand["addrs"][0] = {"c": 10**6, "kind": "AffExprKind", "terms": []}
    assert len(problems(document)) == 1


# make-up


def mix_of(document: Json, kind: str) -> Counter[str]:
    """Count what one layer runs, by the names of the published mix."""
    kernels = {function["name"]: list(instructions_of(function["blocks"])) for function in kernels_of(document)}
    calls = Counter(row["func"] for row in call_sites_of(document))
    mix: Counter[str] = Counter()
    for name, rows in kernels.items():
        assert name in LAYER_KERNELS[kind]
        for row in rows:
            label = row["opcode"]
            if row.get("is_transpose"):
                label = "transpose"
            elif row.get("mode") == "Transpose":
                label = "DMA transpose"
            elif label.startswith("TensorScalarA"):
                label = "AffineSelect"
            elif label.startswith("TensorScalar"):
                label = "TensorScalar"
            mix[label] += calls[name]
    return mix


MIXES = {
    "decode": (
        940,
        2.83,
        {
            "Matmult": 77.4,
            "TensorTensor": 6.4,
            "DMACopy": 5.6,
            "TensorCopy": 4.7,
            "Activation": 2.6,
            "transpose": 2.2,
            "Memset": 0.8,
            "TensorReduce": 0.3,
        },
    ),
    "prefill": (
        15_488,
        2.75,
        {
            "Matmult": 61.3,
            "transpose": 8.2,
            "TensorScalar": 8.9,
            "DMACopy": 6.5,
            "DMA transpose": 2.2,
            "TensorCopy": 4.9,
            "Activation": 3.0,
            "Memset": 1.9,
            "TensorReduce": 1.7,
            "AffineSelect": 0.8,
            "TensorTensor": 0.4,
        },
    ),
}


@pytest.mark.parametrize("kind", MIXES)
def test_layer_has_the_published_mix(kind: str) -> None:
    total, mean, expected = MIXES[kind]
    # the numbers are those of whole kernels; kernels of a quarter of the size have the same mix
    scale = 1.0 if kind == "decode" else 0.25
    document = workloads.module(kind, layers=1, scale=scale)
    mix = mix_of(document, kind)
    count = sum(mix.values())
    assert abs(count / scale - total) <= total * 0.02
    for label, percent in expected.items():
        assert abs(100 * mix[label] / count - percent) < 1.1, label
    calls = Counter(row["func"] for row in call_sites_of(document))
    operands = sum(
        calls[function["name"]] * (len(row["ins"]) + len(row["outs"]))
        for function in kernels_of(document)
        for row in instructions_of(function["blocks"])
    )
    assert abs(operands / count - mean) < 0.1


def test_kernels_have_the_counted_sizes() -> None:
    document = workloads.module(layers=1)
    for function in kernels_of(document):
        recipe = RECIPES[function["name"]]
        assert len(function["blocks"][0]["instructions"]) == recipe.instructions
        types = Counter(
            place["type"]
            for item in function["allocations"]
            if item.get("kind") == "Internal"
            for place in item["memorylocations"]
        )
        assert abs(types["SB"] - recipe.sb_tiles) <= 6
        assert types["PSUM"] == recipe.psum_tiles


def test_access_patterns_and_dtypes_are_typical() -> None:
    document = workloads.module(layers=1, loops=False)
    operands = [operand for row in kernel_rows(document) for operand in row["ins"] + row["outs"]]
    patterns = [operand["ap"] for operand in operands if "ap" in operand]
    assert 0.85 < sum(pattern[0][1] == 128 for pattern in patterns) / len(patterns) < 0.99
    dimensions = Counter(len(pattern) for pattern in patterns)
    assert set(dimensions) == {2, 3, 4, 5}
    assert (dimensions[2] + dimensions[3]) / len(patterns) > 0.95
    dtypes = Counter(operand["dtype"] for operand in operands)
    assert 0.5 < dtypes["bfloat16"] / len(operands) < 0.8
    assert any("dynamic_ap_info" in operand for operand in operands)
    assert any(operand["kind"] == "register_access" for operand in operands)


@pytest.mark.parametrize("arch", ["inferentia", "sunda", "gen3", "core_v4"])
def test_scratchpads_hold_exactly_what_kernels_need(arch: str) -> None:
    document = workloads.module(layers=1, scale=0.3, arch=arch)
    needs = {
        function["name"]: max(
            place["addr"] + place["dims"][1]
            for item in function["allocations"]
            if item.get("kind") == "Internal"
            for place in item["memorylocations"]
            if place["type"] == "SB"
        )
        for function in kernels_of(document)
    }
    places = {
        place["name"]: place for item in document["functions"][0]["allocations"] for place in item["memorylocations"]
    }
    for row in call_sites_of(document):
        assert row["sb_buf_shape"] == [128, needs[row["func"]]]
        scratch = places[row["outs"][-1 - row["psum_buf_shape"][0]]["memref"]]
        assert scratch["allocated"]
        assert scratch["dims"] == row["sb_buf_shape"]
        assert scratch["addr"] + scratch["dims"][1] <= SBUF_BYTES[arch] - 8


# variants


def test_call_sites_per_layer() -> None:
    for kind, each in (("decode", 4), ("prefill", 11)):
        document = workloads.module(kind, layers=3, scale=0.02)
        assert len(call_sites_of(document)) == 3 * each
        assert len(kernels_of(document)) == 4
    for row in call_sites_of(workloads.module(scale=0.02)):
        assert 3 <= len(row["ins"]) + len(row["outs"]) <= 10


def test_distinct_gives_each_call_its_kernel() -> None:
    document = workloads.module(**SMALL, distinct=True)
    assert len({row["func"] for row in call_sites_of(document)}) == len(call_sites_of(document)) == 8
    bodies = {compact(function["blocks"]) for function in kernels_of(document)}
    assert len(bodies) == 8


def is_allocated(function: Json) -> bool:
    return any(
        place["allocated"]
        for item in function["allocations"]
        for place in item.get("memorylocations", [])
        if place["type"] in ("SB", "PSUM")
    )


@pytest.mark.parametrize(
    ("allocated", "expected"), [(True, [True] * 4), (False, [False] * 4), ("mixed", [True, False] * 2)]
)
def test_allocation_status(allocated: bool | str, expected: list[bool]) -> None:
    document = workloads.module(**SMALL, allocated=allocated)
    assert [is_allocated(function) for function in kernels_of(document)] == expected
    for row in call_sites_of(document):
        index = [function["name"] for function in kernels_of(document)].index(row["func"])
        assert any(row["sb_buf_shape"]) == expected[index]


def test_nested_layers_are_kernels_that_call() -> None:
    document = workloads.module(**SMALL, nested=True)
    assert {row["func"] for row in call_sites_of(document)} == {"decoder_layer"}
    layer = next(function for function in kernels_of(document) if function["name"] == "decoder_layer")
    inner = [row["func"] for row in instructions_of(layer["blocks"]) if row["opcode"] == "NKIKernel"]
    assert inner == list(LAYER_KERNELS["decode"])


def test_clashes_take_names_that_inlining_gives() -> None:
    plain, document = workloads.module(**SMALL), workloads.module(**SMALL, clashes=0.25)

    def taken(doc: Json) -> tuple[int, int, int]:
        caller = doc["functions"][0]
        sets = {item["name"] for item in caller["allocations"]}
        rows = {row["name"] for row in caller_rows(doc)}
        kernels = {function["name"]: function for function in kernels_of(doc)}
        fresh_sets = fresh_rows = same = 0
        for site in call_sites_of(doc):
            callee = kernels[site["func"]]
            fresh_sets += sum(f"{site['name']}:{item['name']}" in sets for item in callee["allocations"])
            fresh_rows += sum(f"{site['name']}_{row['name']}" in rows for row in instructions_of(callee["blocks"]))
            same += sum(item["name"] in sets for item in callee["allocations"])
        return fresh_sets, fresh_rows, same

    assert taken(plain) == (0, 0, 0)
    sets, rows, same = taken(document)
    assert sets == rows == 2
    assert same > 4


def test_clashes_give_an_actual_the_name_of_another_formal() -> None:
    document = workloads.module(**SMALL, clashes=0.25)
    site = next(row for row in call_sites_of(document) if row["func"] == "attention_tkg")
    assert site["func_args"]["qkv"] == "attn"
    assert site["func_outs"]["attn"] == "qkv"


def test_edges_and_debug_are_options() -> None:
    assert edges_of(workloads.module(**SMALL)) > 50
    assert edges_of(workloads.module(**SMALL, edges=False)) == 0
    assert edges_of(workloads.call_sites(3, 20, edges=False)) == 0
    rows = kernel_rows(workloads.module(**SMALL, debug=True))
    assert all({"filename", "lineno", "op_name"} == set(row["debug"]) for row in rows)
    assert not any("debug" in row for row in kernel_rows(workloads.module(**SMALL)))


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.0), (0.1, 0.03, 0.2), (1.0, 0.9, 1.0)])
def test_names_repeat_as_often_as_asked(share: float, low: float, high: float) -> None:
    document = workloads.kernel(300, duplicate_names=share)
    names = [row["name"] for row in caller_rows(document)]
    assert low <= 1 - len(set(names)) / len(names) <= high


def test_loop_kernels_are_nests_with_symbolic_addresses() -> None:
    rows = kernel_rows(workloads.module("loops"))
    text = compact({"rows": rows})
    for wanted in (
        '"Loop"',
        '"symbolic_ap"',
        '"loop_carried_dependencies"',
        '"loopnest"',
        '"ModuloKind"',
        '"stride":-1',
    ):
        assert wanted in text
    assert max(len(row.get("loopnest", [])) for row in rows) == 3
    assert any(isinstance(row.get("accumulation_flag"), dict) for row in rows)
    used = kernel_rows(workloads.module(**SMALL, loops=True))
    assert any(row["opcode"] == "Loop" for row in used)
    assert any(row["opcode"] != "Loop" and "loopnest" not in row for row in used)


# benchmark shape


@pytest.mark.parametrize("operands", range(1, 7))
def test_call_sites_have_exactly_so_many_operands(operands: int) -> None:
    document = workloads.call_sites(5, 40, operands)
    assert problems(document) == []
    assert len(call_sites_of(document)) == 5
    (kernel,) = kernels_of(document)
    rows = kernel["blocks"][0]["instructions"]
    assert len(rows) == 40
    assert {len(row["ins"]) + len(row["outs"]) for row in rows} == {operands}
    kinds = Counter(item["kind"] for item in kernel["allocations"])
    assert sum(kinds[kind] for kind in INPUTS) == 2
    assert sum(kinds[kind] for kind in OUTPUTS) == 1
    assert kinds["Internal"] == 8


def test_call_sites_make_distinct_kernels_and_several_modules() -> None:
    assert len(kernels_of(workloads.call_sites(4, 10, distinct=True))) == 4
    made = workloads.call_sites(2, 10, modules=3)
    assert isinstance(made, list)
    assert len(made) == 3
    with pytest.raises(ValueError, match="at least 1"):
        workloads.call_sites(2, 0)


# kernel dumps


@pytest.mark.parametrize("instructions", [20, 100, 500])
@pytest.mark.parametrize("seed", [0, 3])
def test_kernel_has_exactly_so_many_instructions(instructions: int, seed: int) -> None:
    assert len(caller_rows(workloads.kernel(instructions, seed))) == instructions


def test_lowered_kernel_has_what_lower_sync_adds() -> None:
    document = workloads.kernel(200, lowered=True)
    names = [block["name"] for block in document["functions"][0]["blocks"]]
    assert names == ["Block1", "Block1_LoopBody_1", "Block1_LoopExit_1"]
    rows = caller_rows(document)
    opcodes = Counter(row["opcode"] for row in rows)
    wanted = (
        "CompareAndBranch",
        "RegisterAlu",
        "RegisterMove",
        "AllEngineBarrier",
        "GroupResetSemaphores",
        "DMATrigger",
    )
    assert all(opcodes[opcode] for opcode in wanted)
    kinds = Counter(operand["kind"] for row in rows for operand in row["ins"] + row["outs"])
    assert set(kinds) == {"physical_ap", "register_ap", "register_access", "imm_value"}
    assert len({row["name"] for row in rows}) < len(rows)
    triggers = [name for row in rows if row["opcode"] == "DMATrigger" for name in row["dma_blocks"]]
    blocks = [row for queue in document["queues"] for block in queue["blocks"] for row in block["instructions"]]
    assert triggers == [row["name"] for row in blocks]
    assert all(row["blocks"][0]["instructions"][0]["opcode"] == "DMADescriptorCopy" for row in blocks)
    places = [place for item in document["functions"][0]["allocations"] for place in item.get("memorylocations", [])]
    assert all(place["allocated"] for place in places)
    assert any(row.get("loop_carried_dependencies") for row in rows)


@pytest.mark.parametrize("seed", range(5))
def test_waits_of_a_lowered_kernel_are_met_in_program_order(seed: int) -> None:
    document = workloads.kernel(200, seed, lowered=True)
    blocks = {row["name"]: row for queue in document["queues"] for b in queue["blocks"] for row in b["instructions"]}
    waits = 0
    for block in document["functions"][0]["blocks"]:
        counts: Counter[int] = Counter()
        for row in block["instructions"]:
            for wait in row.get("sync_info", {}).get("on_wait", []):
                waits += 1
                assert 0 < wait["wait_value"] <= counts[wait["id"]]
            for source in [row, *(blocks[name] for name in row.get("dma_blocks", []))]:
                for update in source.get("sync_info", {}).get("on_update", []):
                    counts[update["id"]] += update["update_value"]
    assert waits > 20


# presets and files


@pytest.mark.parametrize(
    ("name", "sites"), [("tiny", 1), ("decode-32", 128), ("decode-80", 320), ("prefill-4", 44), ("prefill-80", 880)]
)
def test_presets_have_the_published_call_sites(name: str, sites: int) -> None:
    options = {} if name == "tiny" else {"scale": 0.01}
    assert len(call_sites_of(workloads.preset(name, **options))) == sites


def test_megakernel_preset_has_the_published_counts() -> None:
    document = workloads.preset("mega-40", scale=0.01)
    rows = caller_rows(document)
    opcodes = Counter(row["opcode"] for row in rows)
    assert opcodes["NKIKernel"] == 160
    assert sum(bool(row.get("is_transpose")) for row in rows) == 7584
    assert opcodes["CollectiveCompute"] == 80
    assert opcodes["LoadActFuncSet"] == 1060


def test_unknown_choices_are_refused() -> None:
    for call in (lambda: workloads.preset("decode-7"), lambda: workloads.module("nothing")):
        with pytest.raises(ValueError, match="choose one of"):
            call()
    with pytest.raises(ValueError, match="no hardware model"):
        workloads.module(arch="gen9")


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.json.zst"])
def test_files_are_compressed_by_suffix(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert workloads.main(["kernel", "--instructions", "40", "--lowered", "--seed", "2", "-o", str(target)]) == 0
    data = target.read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    elif name.endswith(".zst"):
        import pyarrow as pa

        data = pa.CompressedInputStream(str(target), "zstd").read()
    assert json.loads(data) == workloads.kernel(40, 2, lowered=True)


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["decode", "--lowered"], ["decode", "--arch", "gen9"], ["decode", "--allocated", "some"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        workloads.main([*arguments, "-o", str(tmp_path / "x.json")])
    assert caught.value.code == 2


def test_chunks_are_the_document_and_come_function_by_function() -> None:
    generated = generate("decode", **SMALL)
    chunks = list(generated.chunks())
    assert "".join(chunks) == compact(generated.document())
    assert sum(chunk.lstrip(",").startswith('{"allocations"') for chunk in chunks) == 5
    # planning the largest workload makes no kernel
    pieces = generate("prefill", layers=32, distinct=True).chunks()
    assert next(pieces) == '{"arch":'
