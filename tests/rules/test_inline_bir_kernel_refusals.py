"""Rule B3: what call-sites are refused for."""

import re
from functools import partial
from typing import Any

import pytest

import arrowir as air
from arrowir import build, library
from arrowir.library import Kernel
from tests.bir_kernels import Json, call, changed, names, one_call, registered
from tests.single_pass import read, refused, run_pass

inline = partial(run_pass, "inline_bir_kernel")
fault = partial(refused, "inline_bir_kernel")

ACT = ["load0", "act0", "save0"]


# B3: what is refused


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("activation", "there is no BIR kernel `activation`; nearest is `Activation`"),
        ("RmsNorm", "nearest is `RMSNorm`"),
        ("AttentionMMSoftmaxMM", "known are `Activation`, `RMSNorm`"),
        ("", "known are `Activation`, `RMSNorm`"),
    ],
)
def test_b3_unknown_names(name: str, text: str) -> None:
    found = fault(one_call(kernel=name))
    assert found.code == "unknown_bir_kernel"
    assert text in found.message
    assert found.instruction == "C"


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"kernel_attrs": [["act", "SiLU"]]}, "`kernel_attrs` has the option `act`, kernel `Activation` has not"),
        ({"kernel_attrs": [["act_fn", "silu"]]}, "option `act_fn` takes SiLU (0), GELU (1)"),
        ({"kernel_attrs": [["act_fn", "5"]]}, "option `act_fn` takes SiLU (0)"),
        ({"kernel_attrs": [["tile_size", "2.5"]]}, "option `tile_size` takes int of at least 1, got '2.5'"),
        ({"kernel_attrs": [["tile_size", "0"]]}, "option `tile_size` takes int of at least 1"),
        ({"kernel_attrs": [["tile_size", "8"], ["tile_size", "9"]]}, "is given twice, as 8 and 9"),
        ({"kernel_attrs": [["tile_size"]]}, "`kernel_attrs` takes pairs"),
        ({"kernel_attrs": "x"}, "`kernel_attrs` takes pairs"),
        ({"tile_size": True}, "option `tile_size` takes int"),
        ({"bogus": 1}, "the call-site has the option `bogus`, kernel `Activation` has not"),
        ({"is_causal": True}, "asks for `is_causal` = True, which kernel `Activation` does not do"),
        ({"is_causal": "perhaps"}, "option `is_causal` takes bool"),
        ({"lower_bound": "low"}, "option `lower_bound` takes float"),
        ({"lnc_size": 2}, "asks for `lnc_size` = 2"),
        ({"norm_type": 1}, "asks for `norm_type` = 1"),
        ({"auto_cast": 3}, "option `auto_cast` takes str or bool"),
        ({"srcs_shape": [[128, "64"]]}, "`srcs_shape` takes a list of shapes"),
        ({"sb_buf_shape": [1]}, "`sb_buf_shape` takes 2 sizes"),
        ({"kernel_name": 3}, "`kernel_name` takes the name of a kernel, got 3"),
        ({"kernel_name": None}, "`kernel_name` takes the name of a kernel, got None"),
    ],
)
def test_b3_options(members: Json, text: str) -> None:
    found = fault(changed(one_call(), **members))
    assert found.code == "bad_kernel_option"
    assert text in found.message


@pytest.mark.parametrize(
    "members",
    [
        {"kernel_attrs": {"act_fn": "0", "tile_size": 64}},
        {"kernel_attrs": None},
        {"kernel_attrs": [["act_fn", "SiLU"], ["act_fn", "0"]]},
        {"tile_size": 64, "act_fn": "SiLU"},
        {
            "is_causal": False,
            "fused_rmsnorm": False,
            "norm_type": 0,
            "lnc_size": 1,
            "lower_bound": 0,
            "auto_cast": True,
        },
        {"store_add": False, "quant_kernel": "false", "output_layout": 0, "debug": {"lineno": 3}, "loopnest": ["i"]},
        {"srcs_shape": None, "dsts_shape": None, "auto_cast_type": None},
    ],
)
def test_b3_options_that_ask_for_nothing_else(members: Json) -> None:
    outcome = inline(changed(one_call(), **members))
    assert names(outcome.doc) == [f"C_{n}" for n in ACT]


def test_b3_options_with_null_have_their_default() -> None:
    document = one_call()
    document["functions"][0]["blocks"][0]["instructions"][0] |= {"act_fn": None, "is_causal": None, "norm_type": None}
    assert inline(document).status == "changed"


def norm(shape: Any = (128, 64), factors: int = 1, kind: Any = None, out: Any = None, **more: Any) -> Json:
    module = build.module()
    main = module.function("main")
    x, y = main.input("x", shape), main.output("y", out or shape)
    gains = [main.input(f"g{n}", more.get("gains", (shape[-1],))) for n in range(factors)]
    members = {} if kind is None else {"norm_type": kind}
    call(main, [x, *gains], [y], "RMSNorm", name="C", **members)
    return module.json()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (one_call(srcs_shape=[[64, 64]]), "is [64, 64] in `srcs_shape`, which is 4096 elements; expected the 8192"),
        (one_call(srcs_shape=[[128, 64], [1]]), "`srcs_shape` has 2 shapes; expected one for each of 1 inputs"),
        (one_call(dsts_shape=[]), "`dsts_shape` has 0 shapes; expected one for each of 1 outputs"),
        (one_call((128, 64), ("int32", "float32")), "expected the dtypes float32, bfloat16, float16"),
        (norm(factors=0), "kernel `RMSNorm` expected 2 inputs and 1 outputs, found `in0` [128, 64] float32"),
        (norm(factors=1, kind=3), "expected 1 inputs"),
        (norm(factors=3, kind=2), "expected 1 to 3 inputs"),
        (norm(out=(64, 128)), "expected an output of the shape of the input"),
        (norm(gains=(32,)), "expected gamma and beta of the shape [64]"),
        (norm((1, 60_000)), "expected rows whose scratch, "),
    ],
)
def test_b3_shapes(document: Json, text: str) -> None:
    found = fault(document)
    assert found.code == "kernel_shape_mismatch"
    assert text in found.message


def test_b3_another_norm_is_refused() -> None:
    found = fault(norm(kind=0))
    assert found.code == "bad_kernel_option"
    assert "takes RMS_NORM (1), LAYER_NORM (2), RMS_NORM_SKIP_GAMMA (3), got 0" in found.message


@pytest.mark.parametrize("place", [0, 1])
def test_b3_base_partitions(place: int) -> None:
    document = one_call()
    document["functions"][0]["allocations"][place]["memorylocations"][0]["base"] = 32
    found = fault(document)
    assert found.code == "kernel_base_partition"
    assert found.message == "Kernel inputs/outputs must be allocated at base partition 0"


def test_b3_an_output_over_other_elements_of_an_input_is_refused() -> None:
    module = build.module()
    main = module.function()
    t = main.dram("t", (128, 64))
    call(main, [t.access([[64, 64], [1, 64]])], [t.access([[64, 64], [1, 64]], offset=64)], name="C")
    found = fault(module.json())
    assert found.code == "kernel_shape_mismatch"
    assert "`out0` shares elements with `in0`" in found.message
    module = build.module()
    main = module.function()
    t = main.dram("t", (128, 64), kind="ExternalOutput")
    half = [[64, 64], [1, 64]]
    call(main, [t.access(half)], [t.access(half, offset=4096)], name="apart")
    call(main, [t.access(half)], [t.access(half)], name="same")
    outcome = inline(module.json())
    assert outcome.status == "changed"
    assert air.equivalent(outcome.before, outcome.ir, tolerance=1e-5).ok


def test_b3_what_is_no_plain_access() -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    with main.loop(0, 2, name="loop") as i:
        call(main, [x.at(i, 0, pattern=[[8, 64], [1, 8]])], [y.access([[8, 64], [1, 8]])], name="C")
    assert fault(module.json()).code == "not_supported"
    document = one_call()
    document["functions"][0]["blocks"][0]["instructions"][0]["ins"][0] |= {"memref": "nobody", "memsetref": "nobody"}
    found = fault(document)
    assert (found.code, "`in0` names `nobody`" in found.message) == ("unresolved_name", True)


def test_b3_bodies_that_cannot_be_spliced() -> None:
    loops = build.module()
    main = loops.function()
    a, b = main.input("a", (128, 64)), main.output("b", (128, 64))
    with main.loop(0, 2):
        main.add("DMACopy", [a], [b], mode="Copy")
    empty = build.module()
    empty.function()
    placed = build.module()
    main = placed.function()
    main.input("a", (128, 64)), main.output("b", (128, 64)), main.sb("t", (128, 4), addr=0)
    lost = build.module()
    main = lost.function()
    a, b = main.input("a", (128, 64)), main.output("b", (128, 64))
    main.add("DMACopy", [{**a.access(), "memref": "gone", "memsetref": "gone"}], [b], mode="Copy")
    strange = build.module()
    main = strange.function()
    a, b = main.input("a", (128, 64)), main.output("b", (128, 64))
    main.add("DMACopi", [a], [b], name="odd", mode="Copy")
    for module, text in (
        (strange, "instruction `odd` of the body has the opcode `DMACopi`, which there is none of"),
        (loops, "has blocks inside an instruction"),
        (empty, "the body has 0 inputs, and the call-site has 1"),
        (placed, "must have no addresses"),
        (lost, "names what is not there"),
        (build.module(), "no batch of one module with a function"),
    ):

        class Given(Kernel):
            name = "Given"
            ir = module.ir()

            def build(self) -> None:
                self.body = library.Body(self.ir)

        with registered(Given):
            found = fault(one_call(kernel="Given"))
            assert found.code == "kernel_failed"
            assert text in found.message


ODD: list[Any] = [
    None, True, 0, -1, 1.5, 2**70, "", "x", "1", "nan", [], [1], ["a"], [[1]], [["a", "b"]], [[1, 2]], [[128, 64]], {},
    {"a": 1}, {"kind": "AffExprKind", "terms": [], "c": 1}, [[None]], [["tile_size", None]], [["tile_size", "1e9"]],
    [["tile_size", [1]]], [["eps", "inf"]], [[128, 64], "x"], [-1, 2], [128, 2, 3], [1, 1, 1], [0, 0],
]  # fmt: skip
KEYS = (
    *("kernel_name", "srcs_shape", "dsts_shape", "kernel_attrs", "sb_buf_shape", "psum_buf_shape", "auto_cast"),
    *("is_causal", "norm_type", "lower_bound", "act_fn", "tile_size", "debug", "predicates", "optin_passes"),
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kernel", ["Activation", "RMSNorm"])
def test_b3_whatever_a_member_holds_is_taken_or_refused(key: str, kernel: str) -> None:
    documents: list[Json] = []
    for value in ODD:
        document = one_call((128, 64), kernel=kernel, norm_type=3 if kernel == "RMSNorm" else 0)
        document["functions"][0]["blocks"][0]["instructions"][0][key] = value
        documents.append(document)
    read_ones: list[air.IR] = []
    for document in documents:
        try:
            read_ones.append(read(document))
        except air.FormatError:  # a known member of a wrong type
            continue
    assert read_ones
    ir = air.concat(read_ones)
    for allocation in (True, False):
        result = air.passes.inline_bir_kernel(ir, sb_allocation=allocation)
        codes = set(result.diagnostics["code"])
        assert codes <= {
            *("bad_kernel_option", "kernel_shape_mismatch", "unknown_bir_kernel", "scratchpad_count"),
            *("scratchpad_too_small", "call_site_not_plain", "too_many_instructions"),
        }


@pytest.mark.parametrize("part", ["ap", "offset", "dtype", "kind", "memref", "memsetref"])
def test_b3_whatever_an_operand_holds_is_taken_or_refused(part: str) -> None:
    values = [None, 0, -5, 10**9, "x", "float8e4", "imm_value", [], [[1, 1]], [[0, 128], [0, 64]], [[-1, 128], [1, 64]]]
    values += [[[1, 0], [1, 1]], [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]], [[1, 10**9], [1, 10**9]]]
    read_ones: list[air.IR] = []
    for value in values:
        for side in ("ins", "outs"):
            document = one_call()
            document["functions"][0]["blocks"][0]["instructions"][0][side][0][part] = value
            try:
                read_ones.append(read(document))
            except air.FormatError:
                continue
    assert read_ones
    result = air.passes.inline_bir_kernel(air.concat(read_ones))
    assert "internal_error" not in set(result.diagnostics["code"])


@pytest.mark.parametrize("size", [-1, -(2**40), 1.5, None, "3", True])
def test_b3_o6_a_size_that_is_no_number_of_instructions(size: Any) -> None:
    class Sized(Kernel):
        name = "Sized"

        def size(self) -> int:
            return size

        def emit(self, body: library.BodyBuilder) -> None:
            pytest.fail("made")

    with registered(Sized):
        found = fault(one_call(kernel="Sized"))
    assert found.code == "kernel_failed"
    assert found.message.startswith(f"`size` of kernel `Sized` returned {size!r}; expected a number of instructions")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": ""}, "option '' of a library kernel has no name"),
        ({"name": 3}, "option 3 of a library kernel has no name"),
        ({"name": "kernel_name"}, "has the name of a member that every call-site has"),
        ({"name": "engine"}, "has the name of a member that every call-site has"),
        ({"kind": "integer"}, "is of the kind 'integer'; there are `bool`, `int`, `float`, `str`"),
        ({"default": "1"}, "has the default '1'; expected int"),
        ({"default": 1.5}, "has the default 1.5; expected int"),
        ({"default": True}, "has the default True; expected int"),
        ({"default": 0, "least": 1}, "has the default 0; expected int of at least 1"),
        ({"least": "1"}, "has the least value '1'"),
        ({"kind": "str", "default": "a", "least": 1}, "has the least value 1"),
        ({"choices": {"A": 0}}, r"has the default 1; expected A \(0\)"),
        ({"choices": {"A": 0}, "default": "B"}, r"has the default 'B'; expected A \(0\)"),
        ({"choices": {"A": "0"}, "default": "A"}, "has the choices"),
        ({"choices": ["A"], "default": "A"}, "has the choices"),
        ({"choices": {"A": 0}, "kind": "str", "default": "A"}, "has the choices"),
        ({"kind": "float", "default": float("nan")}, "has the default nan; expected float"),
    ],
)
def test_b3_options_that_are_declared_wrongly(given: Json, text: str) -> None:
    with pytest.raises(air.OptionError, match=text):
        library.Option(**{"name": "n", "kind": "int", "default": 1, "meaning": "", **given})


def test_b3_options_that_are_declared_well() -> None:
    library.Option("n", "float", 1, "", least=0.5)
    library.Option("n", "bool", None, "")
    library.Option("n", "int", "A", "", choices={"A": 0})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (3, "has the `options` 3; expected a tuple"),
        (("n",), "has the `options` ('n',); expected a tuple"),
        ((library.Option("n", "int", 1, ""), library.Option("n", "str", "", "")), "declares the option `n` twice"),
    ],
)
def test_b3_a_kernel_with_wrong_options_is_not_registered(given: Any, text: str) -> None:
    class Odd(Kernel):
        name = "Odd"
        options = given

    with pytest.raises(air.OptionError, match=re.escape(text)):
        library.register(Odd)
