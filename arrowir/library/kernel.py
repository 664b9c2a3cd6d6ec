"""What a library kernel is: the four steps in which a call-site gets its body (rule B2).

A kernel is a class; the factory makes an instance for a call, and the pass drives it through `build`, `commit`,
`result` and `cleanup`. The base class does what all kernels need. A subclass says what its options are, which calls it
can take, what it puts in their place, and what that computes, as a definition in numpy.

How a matrix product or an attention fits in: its scratch is `body.sb` for tiles of operands and `body.psum` for a bank
of sums each; its body loads tiles, multiplies them (`Matmult`, accumulating over the inner dimension), scales, masks
and exponentiates rows with `Activation` and `TensorReduce` as the norms here do, and saves. Several tiles in flight are
several pieces of scratch that it takes in turn; edges follow from what uses which.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from arrowir import vocabulary
from arrowir.library.bodies import Body, BodyBuilder
from arrowir.library.call import Argument, Call
from arrowir.library.options import Option, read_options
from arrowir.library.status import OK, KernelError, Status, too_large
from arrowir.library.views import item_bytes
from arrowir.store import Array

BASE_PARTITION = "Kernel inputs/outputs must be allocated at base partition 0"

FLOATS = ("float32", "bfloat16", "float16")
"""Types that kernels of floats take."""


class Target(Protocol):
    """Where a body goes: the pass, which puts it in place of every call-site of the call at once."""

    def splice(self, body: Body) -> None:
        """Take the body over.

        Raises
        ------
        KernelError
            If it does not fit the call-sites.
        """
        ...


class Kernel:
    """Base of library kernels.

    A subclass sets `name`, `summary` and `options`, and overrides `verify`, `size`, `emit` and `define`. One that makes
    its body in another way overrides the steps themselves.

    Parameters
    ----------
    call
        What to make a body for.

    Attributes
    ----------
    values : dict
        The options of the call, by name; known after `build` has read them.
    status : Status
        What `result` gives.
    """

    name: ClassVar[str]
    """The `kernel_name` of its call-sites, case-sensitive."""
    options: ClassVar[tuple[Option, ...]] = ()
    tolerance: ClassVar[Mapping[str, float]] = {}
    """By dtype of an output how far a body may be from the definition: times the value where that is above 1."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.values: dict[str, Any] = {}
        self.status: Status = OK
        self.body: Body | None = None
        self.instructions = 0
        """Size of the body, as far as `size` has told it."""

    # -- the four steps -----------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Read options, verify shapes, and make the body."""
        try:
            self.values = read_options(self.name, self.options, self.call.members)
            check_structure(self.call)
            self.verify()
            self.instructions = _count(self.name, self.size())
            if self.instructions > self.call.limit:
                raise too_large(f"{self.instructions:,} instructions", self.call.limit)
            builder = BodyBuilder(self.call)
            self.emit(builder)
            self.body = builder.finish()
        except KernelError as error:
            self.status = error.status

    def commit(self, target: Target) -> None:
        """Hand the body over, if there is one."""
        if self.body is None or not self.status.ok:
            return
        try:
            target.splice(self.body)
        except KernelError as error:
            self.status = error.status

    def result(self) -> Status:
        """Say how it went."""
        return self.status

    def cleanup(self) -> None:
        """Let go of what the steps held; called whatever happened."""
        self.body = None

    # -- what a kernel says -------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Check that the kernel can take the call: number, shapes and dtypes of the arguments.

        Raises
        ------
        KernelError
            If it cannot (`kernel_shape_mismatch`); the message says what was expected.
        """

    def size(self) -> int:
        """Return how many instructions the body will have, before it is made (rule O6); 0 where that is not known."""
        return 0

    def emit(self, body: BodyBuilder) -> None:
        """Add the instructions of the body."""
        raise NotImplementedError

    @staticmethod
    def define(inputs: Sequence[Array], options: Mapping[str, Any]) -> Sequence[Array]:
        """Return what the kernel computes, in plain numpy.

        Parameters
        ----------
        inputs
            The inputs as float64, in the shapes of `srcs_shape`.
        options
            The values of the options.

        Returns
        -------
        sequence of numpy.ndarray
            The outputs in order; they are rounded to float32, and then to the dtype of the output.
        """
        raise NotImplementedError

    # -- for subclasses -----------------------------------------------------------------------------------------------

    def expect(self, good: bool, expected: str) -> None:
        """Refuse the call unless something holds.

        Raises
        ------
        KernelError
            If it does not (`kernel_shape_mismatch`).
        """
        if not good:
            found = ", ".join(f"`{a.name}` {list(a.shape)} {a.dtype}" for a in self.call.arguments)
            raise KernelError(
                "kernel_shape_mismatch", f"kernel `{self.name}` expected {expected}, found {found or 'no arguments'}"
            )

    def expect_counts(self, inputs: tuple[int, int], outputs: int) -> None:
        """Refuse other numbers of inputs (least, most) and outputs."""
        least, most = inputs
        some = f"{least}" if least == most else f"{least} to {most}"
        good = least <= len(self.call.inputs) <= most and len(self.call.outputs) == outputs
        self.expect(good, f"{some} inputs and {outputs} outputs")

    def expect_dtypes(self, known: Sequence[str] = FLOATS) -> None:
        """Refuse arguments of other dtypes."""
        self.expect(all(a.dtype in known for a in self.call.arguments), f"the dtypes {', '.join(known)}")


def _count(kernel: str, size: object) -> int:
    """Return what `size` of a kernel gave, if it is a number of instructions."""
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0:
        return int(size)
    raise KernelError(
        "kernel_failed",
        f"`size` of kernel `{kernel}` returned {size!r:.60}; expected a number of instructions, or 0",
    )


def check_structure(call: Call) -> None:
    """Check what holds for every kernel: base partitions, numbers and sizes of shapes, inputs that outputs overwrite.

    Raises
    ------
    KernelError
        If it does not hold.
    """
    if any(a.base for a in call.arguments):
        raise KernelError("kernel_base_partition", BASE_PARTITION)
    for key, given in (("srcs_shape", call.inputs), ("dsts_shape", call.outputs)):
        _check_shapes(key, call.members.get(key), given)
    for source in call.inputs:
        for target in call.outputs:
            if source.shares == target.shares and not _apart_or_same(source, target):
                raise KernelError(
                    "kernel_shape_mismatch",
                    f"`{target.name}` shares elements with `{source.name}` and is not the same access; expected one "
                    "that is, or storage of its own",
                )


def _check_shapes(key: str, shapes: Any, given: Sequence[Argument]) -> None:
    if shapes is None:
        return
    if not _is_shapes(shapes):
        raise KernelError("bad_kernel_option", f"`{key}` takes a list of shapes, got {shapes!r:.60}")
    what = "inputs" if key == "srcs_shape" else "outputs"
    if len(shapes) != len(given):
        raise KernelError(
            "kernel_shape_mismatch", f"`{key}` has {len(shapes)} shapes; expected one for each of {len(given)} {what}"
        )
    for shape, argument in zip(shapes, given, strict=True):
        accessed, named = _product(num for _, num in argument.pattern), _product(shape)
        if accessed != named:
            raise KernelError(
                "kernel_shape_mismatch",
                f"`{argument.name}` is {shape} in `{key}`, which is {named} elements; expected the {accessed} elements "
                f"of its access {[list(pair) for pair in argument.pattern]}",
            )


def _is_shapes(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape) for shape in value
    )


def _apart_or_same(one: Argument, other: Argument) -> bool:
    if (one.pattern, one.offset, one.dtype) == (other.pattern, other.offset, other.dtype):
        return True
    spans = [_span(a) for a in (one, other)]
    return spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0]


def _span(argument: Argument) -> tuple[int, int]:
    """Return the bytes from the first element to behind the last one."""
    reach = [step * (num - 1) for step, num in argument.pattern]
    low = argument.offset + sum(r for r in reach if r < 0)
    high = argument.offset + sum(r for r in reach if r > 0)
    size = item_bytes(argument.dtype)
    return low * size, (high + 1) * size


def _product(numbers: Any) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def sbuf_bytes(arch: str | None) -> int | None:
    """Return the SBUF bytes of a partition; None where the architecture has no model."""
    found = vocabulary.arch(arch)
    return None if found is None else found.sbuf_bytes
