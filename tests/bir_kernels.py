"""Modules with call-sites of library kernels, and kernels for tests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from arrowir import build, library
from arrowir.build import FunctionBuilder, Tensor
from arrowir.library import Body, BodyBuilder, Call, Kernel, KernelError, Option, Status, Target
from arrowir.library.views import Grid
from arrowir.store import Array

Json = dict[str, Any]


def call(
    main: FunctionBuilder,
    ins: Sequence[Any],
    outs: Sequence[Any],
    kernel: str = "Activation",
    *,
    attrs: Mapping[str, str] | None = None,
    scratch: Sequence[Tensor] = (),
    **members: Any,
) -> Any:
    """Add a call-site as the compiler's front end writes it; shapes are those of the tensors."""
    sb = [tensor for tensor in scratch if tensor.memory == "SB"]
    psum = [tensor for tensor in scratch if tensor.memory == "PSUM"]
    shapes = {
        key: [list(t.shape) for t in tensors]
        for key, tensors in (("srcs_shape", ins), ("dsts_shape", outs))
        if all(isinstance(t, Tensor) for t in tensors)
    }
    written: Json = {
        "kernel_name": kernel,
        **shapes,
        "kernel_attrs": [[name, value] for name, value in (attrs or {}).items()],
        "sb_buf_shape": [sb[0].shape[0], sb[0].bytes] if sb else [0, 0],
        "psum_buf_shape": [len(psum), psum[0].shape[0], psum[0].bytes] if psum else [0, 0, 0],
        "auto_cast": "none",
        "auto_cast_type": "none",
    }
    given = [whole(t) if isinstance(t, Tensor) else t for t in (*ins, *outs)]
    return main.add("BIRKernel", given[: len(ins)], [*given[len(ins) :], *scratch], **{**written, **members})


def whole(tensor: Tensor) -> Json:
    """Return an access to all elements of a tensor in their order."""
    if len(tensor.shape) == 1:
        return tensor.access([[1, 1], [1, tensor.shape[0]]])
    return tensor.access()


def one_call(shape: Sequence[int] = (128, 64), dtypes: Sequence[str] = ("float32", "float32"), **more: Any) -> Json:
    """Return a module with one call-site `C` of a kernel of one input."""
    module = build.module()
    main = module.function("main")
    x, y = main.input("x", shape, dtypes[0]), main.output("y", shape, dtypes[1])
    call(main, [x], [y], **{"name": "C", **more})
    return module.json()


@contextmanager
def registered(*kernels: type[Kernel]) -> Iterator[None]:
    """Have kernels in the registry for a while."""
    for kernel in kernels:
        library.register(kernel)
    try:
        yield
    finally:
        for kernel in kernels:
            library.unregister(kernel.name)


class Steps(Kernel):
    """A kernel that notes what is done with it, and fails where `at` says."""

    name: ClassVar[str] = "Steps"
    options: ClassVar[tuple[Option, ...]] = (
        Option("at", "str", "", "where it fails"),
        Option("tag", "str", "", "what tells calls apart"),
    )
    seen: ClassVar[list[str]] = []
    calls: ClassVar[list[Call]] = []

    def _step(self, name: str) -> None:
        self.seen.append(name)
        if self.values.get("at") == f"{name} raises":
            raise ZeroDivisionError(name)
        if self.values.get("at") == f"{name} refuses":
            raise KernelError("kernel_shape_mismatch", f"refused in {name}")

    def build(self) -> None:
        self.calls.append(self.call)
        super().build()
        self._step(f"build {self.values['tag']}".strip())

    def commit(self, target: Target) -> None:
        self._step("commit")
        if self.values.get("at") != "nothing":
            super().commit(target)

    def result(self) -> Status:
        self._step("result")
        return Status(False, "it did not work out") if self.values.get("at") == "result" else super().result()

    def cleanup(self) -> None:
        self.seen.append("cleanup")
        super().cleanup()

    def emit(self, body: BodyBuilder) -> None:
        x, y = (Grid.of(a, a.shape[-1]) for a in self.call.arguments)
        tile = body.sb("tile", x.argument.shape, x.argument.dtype)
        body.copy(x.tile(0, x.height, 0, x.width), tile)
        body.copy(tile, y.tile(0, y.height, 0, y.width))

    @staticmethod
    def define(inputs: Sequence[Array], options: Mapping[str, Any]) -> Sequence[Array]:
        return [inputs[0]]


@contextmanager
def steps() -> Iterator[list[str]]:
    """Have `Steps` in the registry; yields what is done."""
    Steps.seen.clear()
    Steps.calls.clear()
    with registered(Steps):
        yield Steps.seen


class Product(Kernel):
    """A matrix product: ``out0[M, N] = in1[K, M].T @ in0[K, N]`` with sums in PSUM, over several tiles of K."""

    name: ClassVar[str] = "Product"
    tolerance: ClassVar[Mapping[str, float]] = {"float32": 1e-4}

    def verify(self) -> None:
        self.expect_counts((2, 2), 1)
        (k, n), (other, m), out = (a.shape for a in self.call.arguments)
        self.expect(k == other and out == (m, n) and m <= 128 and n <= 512, "[K, N], [K, M] and [M, N]")

    def emit(self, body: BodyBuilder) -> None:
        x, w, out = (Grid.of(a, a.shape[1]) for a in self.call.arguments)
        k = x.height
        tiles = [(body.sb(f"x{n}", (128, x.width)), body.sb(f"w{n}", (128, w.width))) for n in range(2)]
        sums, result = body.psum("sums", (w.width, x.width)), body.sb("result", (w.width, x.width))
        for number, begin in enumerate(range(0, k, 128)):
            rows = min(128, k - begin)
            moving = body.fetched(x, (begin, rows, 0, x.width), tiles[number % 2][0])
            weights = body.fetched(w, (begin, rows, 0, w.width), tiles[number % 2][1])
            body.add("Matmult", [moving, weights], [sums], accumulation_flag=2 if number else 1, is_transpose=False)
        body.add("TensorCopy", [sums], [result])
        body.copy(result, out.tile(0, out.height, 0, out.width))

    @staticmethod
    def define(inputs: Sequence[Array], options: Mapping[str, Any]) -> Sequence[Array]:
        return [inputs[1].T @ inputs[0]]


def made_by_hand(text: str) -> Body:
    """Return a body that is read from a document."""
    import arrowir as air

    return Body(air.read_json(text.encode(), name="body"))


def random(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Return numbers of both signs, some large, in the numpy type of a dtype."""
    import ml_dtypes

    generator = np.random.default_rng(seed)
    values = generator.normal(size=tuple(shape)) * generator.choice([0.1, 1.0, 4.0], size=tuple(shape))
    held = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    return values.astype(held)


def names(document: Json, place: int = 0, key: str = "functions") -> list[str]:
    """Return the names of the instructions of a function."""
    functions = document[key] if key == "functions" else document[key]["functions"]
    return [row["name"] for block in functions[place]["blocks"] for row in block["instructions"]]


def changed(document: Json, **members: Any) -> Json:
    """Return a document with members of its call-site changed; None takes one away."""
    site = document["functions"][0]["blocks"][0]["instructions"][-1]
    for key, value in members.items():
        if value is None:
            site.pop(key)
        else:
            site[key] = value
    return document
