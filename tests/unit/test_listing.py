"""The readable listing: golden text of samples, and each kind of line on modules made for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arrowir import IR, OptionError, build, listing, read_json
from arrowir.listing import values

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.mark.parametrize("sample", ["bir_json_example.json", "klr009/two_in.bir.json"])
def test_samples_read_as_before(sample: str, golden: Callable[[str, str], None]) -> None:
    name = Path(sample).name.partition(".")[0]
    golden(f"listing_{name}", read_json(SAMPLES / sample).text(0))


def lines(module: build.ModuleBuilder) -> list[str]:
    """Return the lines of a module without their indentation."""
    return [line.strip() for line in module.ir("m").text(0).splitlines()]


def line(module: build.ModuleBuilder, word: str) -> str:
    """Return the only line that holds a word."""
    (found,) = [text for text in lines(module) if word in text]
    return found


@pytest.fixture
def module() -> build.ModuleBuilder:
    return build.module()


@pytest.fixture
def main(module: build.ModuleBuilder) -> build.FunctionBuilder:
    return module.function()


def test_storage(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    main.sb("tile", [64, 16], "bfloat16", addr=4096, base=64, pinned=True, runtime_reserved=True)
    main.psum("bank", [128, 4], addr=0, bank=3)
    main.input("x", [128, 4], set_name="other")
    main.dram("old", [128, 4], alias=[["other", "x", 3]], set_members={"origin": "NKI", "NBlocks": 2})
    main.register("r0", width=64)
    assert lines(module)[2:8] == [
        "function sg0000",
        "tile@SB<64,4096>(64x32)#Internal  bfloat16[64,16]  allocated pinned reserved",
        "bank@PSUM<0,0>(128x16)#Internal  float32[128,4]  bank=3 allocated",
        "x@DRAM<0>(128x16)#ExternalInput  float32[128,4] Shared in other",
        "old@DRAM<0>(128x16)#Internal  float32[128,4] Local origin=NKI  NBlocks=2  alias=x(must)",
        "register r0  width=64",
    ]


def test_a_set_of_several_locations_has_a_line_for_each(
    module: build.ModuleBuilder, main: build.FunctionBuilder
) -> None:
    first = main.sb("t0", [128, 4], set_name="t", addr=0)
    main.place(first, "t1", addr=16)
    assert lines(module)[3:6] == [
        "set t#Internal  float32[128,4]",
        "t0@SB<0,0>(128x16)#Internal  allocated",
        "t1@SB<0,16>(128x16)#Internal  allocated tensor_id=1",
    ]


def test_operands(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    tile, r = main.sb("tile", [128, 512]), main.register("r")
    with main.loop(0, 4) as i:
        main.add("A", [tile[:, 8:16], 2.5, r], [tile.access([[512, 128], [-1, 4]], 3, "uint8")])
        main.add("B", [tile.at(0, 128 * i + 1)], [tile.via(r, const_ap_offset=4)], indirection=[tile])
        main.add("C", [build.imm([1, 2]), {"kind": "imm_value", "dtype": "float32", "value": "-inf"}])
        main.add("D", [{"kind": "symbolic_imm_value", "dtype": "int8", "value_list": [{"value": 7}], "expr": i.json()}])
        main.add("E", [{"kind": "rare_ap", "memref": "nowhere", "dtype": "int8"}])
    full = "[[512,128],[1,512]]"
    assert [text.partition("  ")[2] for text in lines(module) if " Unassigned  " in text] == [
        "i in range(0, 4)",
        "tile[[512,128],[1,8]]+8:float32, 2.5:float32, %r:int32 -> tile[[512,128],[-1,4]]+3:uint8",
        f"tile_set{full}@[0,128*i+1]:float32 by tile{full}+0:float32 -> tile_set{full}@%r:float32{{const_ap_offset=4}}",
        "[1,2]:int32, -inf:float32",
        "[{value:7}][i]:int8",
        "?nowhere:int8 kind=rare_ap",
    ]


def test_dynamic_access_shows_its_expressions(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    tile, r = main.sb("tile", [128, 4]), main.register("r")
    info = {"c": 0, "aff_expr": [{"coef": 4, "offset_expr": (2 * r.value + 1).json()}]}
    main.add("A", [tile.access(dynamic_ap_info=info)])
    assert line(module, "dynamic").endswith("{dynamic_ap_info={c:0,aff_expr:[{coef:4,offset_expr:2*%r+1}]}}")


def test_keys_that_say_nothing_are_left_out(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    main.add("TensorTensor", op="add", acc="Idle", zebra=False, origin="NKI", loopnest=["i"], debug={"lineno": 7})
    main.add("TensorTensor", op="max", acc="Zero", apple=True, optin_passes=3, text="two words", deep={"a": [1, "b"]})
    assert lines(module)[-2:] == [
        "0 I-1 TensorTensor Unassigned  op=add zebra=false",
        '1 I-2 TensorTensor Unassigned  acc=Zero apple deep={a:[1,b]} op=max text="two words"  optin=3',
    ]


def test_a_key_that_the_opcode_needs_is_shown_with_any_value(
    module: build.ModuleBuilder, main: build.FunctionBuilder
) -> None:
    main.add("TensorScalar", op0="add", const0=0.0, reverse0=False, op1="bypass", const1=0.0, reverse1=False)
    assert line(module, "I-1").endswith("const0=0.0 const1=0.0 op0=add op1=bypass reverse0=false reverse1=false")


def test_long_values_are_cut(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    main.add("NoOp", numbers=list(range(1000)))
    text = line(module, "numbers=")
    assert text.endswith("...(3891 characters)")
    assert len(text) < 240


def test_edges_and_semaphores(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    first = main.add("NoOp", update=[(3, 1)])
    with main.loop(0, 2) as i:
        main.add(
            "NoOp",
            after=[first, (first, "Anti"), "lost"],
            carried=[(first, "Flow", [2])],
            unroll=[(first, "Output", [i + 1], [])],
            wait=[(3, 1, first), (4, 2, "dma_block")],
            update=[(5, 1)],
        )
    assert lines(module)[-4:] == [
        "0 I-1 NoOp Unassigned  update s3+=1",
        "1 I-2 Loop Unassigned  i in range(0, 2)",
        "block block0",
        (
            "2 I-3 NoOp Unassigned  after I-1 (Flow), I-1 (Anti), ?lost (Flow)  carried after I-1 (Flow, [2])  "
            "unroll after I-1 (Output, [i+1], [])  wait s3>=1 from I-1, wait s4>=2 from dma_block, update s5+=1"
        ),
    ]


def test_calls_and_branches(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    kernel = module.kernel("add one")
    a, c = kernel.input("a", [128, 4]), kernel.output("c", [128, 4])
    x, r = main.input("x", [128, 4]), main.register("r")
    main.call(kernel, {a: x, "n": r}, {c: "nowhere"}, name="call")
    main.call("gone", name="lost")
    main.compare(r, "IS_EQIMM", 0, "Block1", "elsewhere", name="test")
    made = "\n".join(lines(module))
    assert 'kernel "add one"' in made
    assert '0 call NKIKernel Unassigned  calls "add one"(a=x, n=%r, out c=?nowhere)' in made
    assert "1 lost NKIKernel Unassigned  calls ?gone()" in made
    assert "%r:int32, 0:int32  comp_op=IS_EQIMM  on_true=Block1 on_false=?elsewhere" in made


def test_loops_show_their_range(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    n = main.register("n")
    with main.loop(9, -1, -3), main.loop(0, n.value, opcode="DynamicForLoop"):
        main.add("NoOp")
    text = module.ir("m").text(0).splitlines()
    assert text[-5:] == [
        "    0 I-1 Loop Unassigned  i in range(9, -1, -3)",
        "      block block0#1",
        "        1 I-2 DynamicForLoop Unassigned  j in range(0, %n)",
        "          block block0#2",
        "            2 I-3 NoOp Unassigned",
    ]


def test_queues(module: build.ModuleBuilder, main: build.FunctionBuilder) -> None:
    x, t = main.input("x", [128, 4]), main.sb("t", [128, 4])
    queue = module.queue("q0", num_dma_engines=16)
    with queue.nested("DMABlock", name="d0", engine="DMA"):
        queue.add("DMADescriptorCopy", [x[:2]], [t[:2]], engine="DMA")
    assert lines(module)[-5:] == [
        "queue q0  num_dma_engines=16",
        "block Block1",
        "0 d0 DMABlock DMA",
        "block block0",
        "1 I-2 DMADescriptorCopy DMA  x[[4,2],[1,4]]+0:float32 -> t[[4,2],[1,4]]+0:float32",
    ]


def test_repeated_names_get_numbers_and_unique_ones_do_not(
    module: build.ModuleBuilder, main: build.FunctionBuilder
) -> None:
    main.input("out", [128, 4])
    out = main.output("out", [128, 4])
    main.add("Load", [], [], name="x")
    main.add("Save", [out], [out], name="x")
    main.add("NoOp", after=["x"], name="y")
    other = module.function("other")  # the same name in another function tells nothing apart there
    other.add("NoOp", name="x")
    other.add("NoOp", name="z", after=["x"])
    text = lines(module)
    assert [t.partition("@")[0] for t in text if t.startswith("out")] == ["out#1", "out#2"]
    access = "[[4,128],[1,4]]+0:float32"
    assert f"1 x Save Unassigned  out#1{access} -> out#2{access}" in text
    assert "2 y NoOp Unassigned  after x#1 (Flow)" in text
    assert "1 z NoOp Unassigned  after x (Flow)" in text


NAMES = ["a/b:c.d-e+f$g", "with space", "hash#1", "\u2028line", "emoji \U0001f600", 'quote"', "\x00", "x" * 300, "?a"]


def test_m17_odd_names_are_escaped_and_come_back() -> None:
    module = build.module()
    main = module.function()
    tensors = [main.sb(name, [1, 1]) for name in NAMES]
    main.add("NoOp", tensors)
    text = module.ir("m").text(0)
    assert text.isascii()
    assert text.splitlines() == text.split("\n")[:-1]  # no name breaks a line
    shown = [t.strip().rpartition("@SB")[0] for t in text.splitlines() if "@SB<" in t]
    assert [json.loads(s) if s.startswith('"') else s for s in shown] == NAMES
    assert [s.startswith('"') for s in shown] == [False, True, True, True, True, True, True, False, True]


def test_all_modules_are_listed_and_one_is_listed_the_same() -> None:
    from arrowir import concat

    parts: list[IR] = []
    for name in ("first", "second"):
        module = build.module()
        main = module.function()
        tile = main.sb(f"{name}_tile", [128, 4])
        with main.loop(0, 2) as i:
            main.add("Memset", [], [tile.at(0, i)], constant=i * 2, mode="Const", after=[i.instruction])
        parts.append(module.ir(name))
    both = concat(parts)
    assert both.text() == "\n".join(part.text() for part in parts)
    assert [both.text(m) for m in (0, 1)] == [part.text(0) for part in parts]
    with pytest.raises(OptionError, match="module ids go from 0 to 1, got 2"):
        both.text(2)


def test_deep_nests_are_listed() -> None:
    loop = '{"opcode":"Loop","LoopAxis":{"name":"i","lb":0,"ub":1,"stride":1},"blocks":[{"name":"b","instructions":['
    deepest = '{"name":"deepest","opcode":"NoOp","engine":"SP","ins":[],"outs":[]}'
    code = f'[{{"name":"b","instructions":[{loop * 400}{deepest}{"]}]}" * 400}]}}]'
    document = f'{{"version":2,"functions":[{{"name":"f","allocations":[],"blocks":{code}}}]}}'
    text = read_json(document.encode()).text(0)
    assert text.splitlines()[-1] == "  " * 802 + "400 deepest NoOp SP"


def test_an_empty_module_has_a_line() -> None:
    assert build.module(arch=None).ir("none").text() == "module none  version 2  attributes={}\n"


def expr(kind: str, **members: Any) -> dict[str, Any]:
    return {"kind": kind, **members}


I = expr("AffIVKind", axis="i")  # noqa: E741
SUM = expr("SumKind", n_terms=2, terms=[I, expr("MultKind", scale=-2, var=expr("ModuloKind", numer=I, denom=3))])


@pytest.mark.parametrize(
    ("found", "formula"),
    [
        (expr("AffExprKind", terms=[], c=0), "0"),
        (expr("AffExprKind", terms=[{"idx": I, "coeff": 1}, {"idx": I, "coeff": -1}], c=-3), "i-i-3"),
        (expr("AffExprKind", terms=[{"idx": expr("ShardIDKind", ub=2), "coeff": 8}], c=1), "8*shard+1"),
        (expr("IntRuntimeValueKind", regref="r 1"), '%"r 1"'),
        (SUM, "i-2*(i%3)"),
        (expr("FloorDivKind", numer=SUM, denom=4), "(i-2*(i%3))//4"),
        (expr("CCModKind", numer=I, denom=4), "i%4"),
        (expr("CCDivKind", numer=I, denom=4, replica_groups_id=1), "ccdiv(i,4,1)"),
        (expr("CCGetRankKind", iteration_id=0, channel_id=2), "rank(0,2)"),
        (expr("IndirectArgId", arg_id=1), "index(1)"),
        ({"terms": [{"AxisLabel": "j", "coef": 3}], "c": 2}, "3*j+2"),
        ({"terms": [{"AxisLabel": "j", "coef": 3}], "c": 2, "op": "Div", "op_param": 5}, "(3*j+2)//5"),
        ({"terms": [{"AxisLabel": "j", "coef": 1}], "c": 0, "op": "Mod", "op_param": 5}, "j%5"),
        ({"terms": [], "c": 0, "op": "IndirectArgId", "op_param": 1}, "IndirectArgId(0,1)"),
        (expr("NewKind", axis="i"), None),
        (expr("AffExprKind", terms=[{"idx": I}], c=0), None),
        (expr("AffExprKind", terms=7, c=0), None),
        (expr("AffExprKind", terms=[], c="1"), None),
        ([I], None),
        (3, None),
    ],
)
def test_expressions_are_formulas(found: Any, formula: str | None) -> None:
    assert values.expression(found) == formula


@pytest.mark.parametrize("depth", [10, 5000])
def test_deep_expressions_are_shown_or_left_as_text(depth: int) -> None:
    text = '{"kind":"FloorDivKind","denom":2,"numer":' * depth + '{"kind":"AffIVKind","axis":"i"}' + "}" * depth
    shown = values.value(text)
    assert shown.startswith("(((((((((i//2)//2)//2)" if depth == 10 else '{"kind":"FloorDivKind"')


def test_provenance_is_shown_on_request() -> None:
    from arrowir import passes

    module = build.module()
    kernel = module.kernel("twice")
    a, c = kernel.input("a", [128, 4]), kernel.output("c", [128, 4])
    kernel.add("Load", [a], [c], name="L")
    main = module.function()
    x, y = main.input("x", [128, 4]), main.output("y", [128, 4])
    main.call(kernel, {a: x}, {c: y}, name="site")
    main.add("NoOp", name="own")
    after = passes.InlineNkiKernel()(module.ir("m")).ir
    plain = listing.text(after, 0).splitlines()
    shown = listing.text(after, 0, provenance=True).splitlines()
    assert [s for s in shown if s not in plain] == [f"{plain[-2]}  ; twice @ site, was L"]
    assert "own" in plain[-1]
    assert shown[-1] == plain[-1]
    assert after.text(0, provenance=True).splitlines() == shown


def test_provenance_of_storage_and_blocks() -> None:
    from arrowir import passes

    module = build.module()
    kernel = module.kernel("k")
    tile = kernel.sb("t0", [128, 4], set_name="t", addr=0)
    kernel.place(tile, "t1", addr=16)
    kernel.sb("alone", [128, 4], addr=32)
    kernel.register("r")
    kernel.branch("Rest")
    kernel.block("Rest")
    kernel.add("NoOp", name="last")
    main = module.function()
    main.call(kernel, name="site")
    main.add("NoOp", name="own")
    shown = passes.InlineNkiKernel()(module.ir("m")).ir.text(0, provenance=True).splitlines()
    notes = [line.strip().partition("  ;") for line in shown]
    assert [(line.split("@")[0].split("  ")[0], note) for line, mark, note in notes if mark] == [
        ("set site:t#Internal", " k @ site, was t"),
        ("site:t0", " k @ site, was t0"),
        ("site:t1", " k @ site, was t1"),
        ("site:alone", " k @ site, was alone"),
        ("register site:r", " k @ site, was r"),
        ("0 site_I-1 UnconditionalBranch Unassigned", " k @ site, was I-1"),
        ("block site_Rest", " k @ site, was Rest"),
        ("1 site_last NoOp Unassigned", " k @ site, was last"),
    ]
