"""What a front end leaves behind: a module that names kernel files, those files, and a tensor map.

The kernels can be executed: one adds a bias, one scales and is in the old spelling of expressions.
"""

from pathlib import Path
from typing import Any

from arrowir import build
from arrowir.formats.expression_versions import convert
from arrowir.testing.bir import Json

ROWS, COLUMNS, PARTS = 128, 512, 4
WIDTH = COLUMNS // PARTS
SHAPE = (ROWS, COLUMNS)


def files(*, allocated: bool = False) -> dict[str, Json]:
    """Return the documents of an artefact directory by their paths in it.

    Parameters
    ----------
    allocated
        Whether the kernels' tiles have addresses.

    Returns
    -------
    dict
        `sg00/bir.json`, `sg00/tensor_map.json`, and two kernel files, one of each version of the format.

    Examples
    --------
    >>> found = files()
    >>> list(found)
    ['kernels/add_bias.json', 'kernels/row_scale.json', 'sg00/bir.json', 'sg00/tensor_map.json']
    >>> [found[f"kernels/{name}.json"]["version"] for name in ("add_bias", "row_scale")]
    [2, 1]
    """
    return {
        "kernels/add_bias.json": add_bias(allocated=allocated),
        "kernels/row_scale.json": old(row_scale(allocated=allocated)),
        "sg00/bir.json": caller(),
        "sg00/tensor_map.json": tensor_map(),
    }


def write(folder: Path, *, allocated: bool = False) -> None:
    """Write the documents below a folder, compact, with sorted members.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder))
    ...     sorted(path.name for path in Path(folder, "sg00").iterdir())
    ['bir.json', 'tensor_map.json']
    """
    import json

    for path, document in files(allocated=allocated).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def kernel_file(made: build.ModuleBuilder) -> Json:
    """Return a kernel file of a module that is being built: it has no kernel functions of its own."""
    document = made.json()
    del document["nki_functions"]
    return document


def old(document: Json) -> Json:
    """Return a document in version 1 of the format; it is changed."""
    convert(document, 1)
    document["version"] = 1
    return document


def add_bias(*, allocated: bool = False) -> Json:
    """Return the kernel file of `out = x + bias`, part by part."""
    made = build.module(arch="gen3", attributes={"neuron_core_id": 0})
    kernel = made.function("add_bias")
    x, bias, out = kernel.input("x", SHAPE), kernel.input("bias", SHAPE), kernel.output("out", SHAPE)
    left, right = (
        kernel.sb(name, (ROWS, WIDTH), addr=place * WIDTH * 4 if allocated else None)
        for place, name in enumerate(("x_tile", "bias_tile"))
    )
    with kernel.loop(0, PARTS) as i:
        load = kernel.add("Load", [_part(x, i * WIDTH)], [left], engine="SP")
        more = kernel.add("Load", [_part(bias, i * WIDTH)], [right], engine="SP")
        add = kernel.add("TensorTensor", [left, right], [left], engine="DVE", op="add", after=[load, more])
        kernel.add("Save", [left], [_part(out, i * WIDTH)], engine="SP", after=[add], carried=[(load, "Anti")])
    return kernel_file(made)


def row_scale(*, allocated: bool = False) -> Json:
    """Return the kernel file of `scaled = 2 * x`, the last part first."""
    made = build.module(arch="gen3", attributes={"neuron_core_id": 0})
    kernel = made.function("row_scale")
    x, out = kernel.input("x", SHAPE), kernel.output("scaled", SHAPE)
    tile = kernel.sb("tile", (ROWS, WIDTH), addr=0 if allocated else None)
    keys: Json = {"op0": "mult", "const0": 2.0, "reverse0": False, "op1": "bypass", "const1": 0.0, "reverse1": False}
    with kernel.loop(0, PARTS) as i:
        place = ((PARTS - 1) * WIDTH + i * WIDTH) % COLUMNS
        load = kernel.add("Load", [_part(x, place)], [tile], engine="SP")
        scale = kernel.add("TensorScalar", [tile], [tile], engine="DVE", after=[load], **keys)
        kernel.add("Save", [tile], [_part(out, place)], engine="SP", after=[scale])
    return kernel_file(made)


def _part(tensor: build.Tensor, column: Any) -> Any:
    return tensor.at(0, column, pattern=[[COLUMNS, ROWS], [1, WIDTH]])


def caller() -> Json:
    """Return the module: it hands an input and a bias to one kernel, and the result to the other."""
    made = build.module(arch="gen3", attributes={"neuron_core_id": 0})
    main = made.function("sg0000")
    x, bias, y = main.input("input0", SHAPE), main.input("input1", SHAPE), main.output("output0", SHAPE)
    middle = main.dram("t0", SHAPE)
    first = main.add(
        "NKIKLIRKernel", [x, bias], [middle], name="I-1", **carrier("kernels/add_bias.json"),
        func_args={"x": "input0", "bias": "input1"}, func_outs={"out": "t0"},
    )  # fmt: skip
    main.add(
        "NKIKLIRKernel", [middle], [y], name="I-2", after=[first], **carrier("../kernels/row_scale.json"),
        func_args={"x": "t0"}, func_outs={"scaled": "output0"},
    )  # fmt: skip
    return made.json()


def carrier(path: str, **more: Any) -> Json:
    """Return the members of an `NKIKLIRKernel` that say which kernel file it carries."""
    return {
        "enable_device_dump": False,
        "kernel_format": "bir",
        "klir_binary": path,
        "nki_binary_version_identifier": "1",
        **more,
    }


def tensor_map() -> Json:
    """Return the tensor map of the module; one entry names a parameter of a kernel."""
    return {
        "alias_map": [{"input_name": "input0", "must_alias": False, "output_name": "scaled"}],
        "inputs": [{"name": name, "shape": list(SHAPE)} for name in ("input0", "input1")],
        "outputs": [{"name": "scaled", "shape": list(SHAPE)}],
    }
