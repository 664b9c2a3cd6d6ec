"""Functions and queues that are being built: storage, blocks, instructions, loops, branches, call-sites."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from arrowir import arguments
from arrowir.build.operands import (
    Axis,
    Edge,
    Expression,
    Instruction,
    Json,
    Operand,
    Register,
    Target,
    Tensor,
    edge,
    name_of,
    operand,
    plain,
    record,
)
from arrowir.diagnostics import OptionError

Bindings: TypeAlias = Mapping[Any, Target] | Sequence[Tensor]

_TENSOR_CLASS = {"SB": "NeuronSBTensor", "PSUM": "NeuronPSUMTensor"}


def _operands(values: Iterable[Operand], what: str) -> list[Json]:
    return [operand(value) for value in arguments.listed(values, f"`{what}`", "a list of operands")]


def _edges(entries: Iterable[Edge], what: str) -> list[Any]:
    return [edge(entry) for entry in arguments.listed(entries, f"`{what}`", "a list of edges")]


def _pairs(entries: Iterable[Sequence[Any]], what: str) -> list[list[Any]]:
    """Return what is said of semaphores: a semaphore and a value each; a wait may also have who updates it."""
    most, takes = (3, " and who updates it") if what == "wait" else (2, "")
    found = [
        arguments.listed(e, f"`{what}`", "pairs") for e in arguments.listed(entries, f"`{what}`", "a list of pairs")
    ]
    for entry in found:
        if not 2 <= len(entry) <= most:
            raise arguments.wrong(f"`{what}`", f"pairs of a semaphore and a value{takes}", entry)
    return found


class Body:
    """A list of blocks that instructions are added to: a function or a queue."""

    def __init__(self, first_block: str) -> None:
        self.blocks: list[Json] = []
        self._levels: list[list[Json]] = [self.blocks]
        self._first_block = first_block
        self._count = 0

    def block(self, name: str | None = None, **members: Any) -> str:
        """Begin a block, in the innermost loop that is open, and return its name."""
        level = self._levels[-1]
        if name is None:
            name = f"block{len(level)}" if len(self._levels) > 1 else self._first_block
            if len(self._levels) == 1 and level:
                name = f"Block{len(level) + 1}"
        level.append(record({"instructions": [], "name": name, **members}))
        return name

    def add(
        self,
        opcode: str,
        ins: Iterable[Operand] = (),
        outs: Iterable[Operand] = (),
        *,
        engine: str = "Unassigned",
        name: str | None = None,
        indirection: Iterable[Operand] | None = None,
        after: Iterable[Edge] = (),
        carried: Iterable[Edge] = (),
        unroll: Iterable[Edge] = (),
        wait: Iterable[Sequence[Any]] = (),
        update: Iterable[Sequence[int]] = (),
        **members: Any,
    ) -> Instruction:
        """Add an instruction.

        Parameters
        ----------
        opcode, engine
            What it does and who does it.
        ins, outs, indirection
            Operands: a tensor (all of it), an access made from one, a register, a number (an immediate), or a JSON
            object.
        name
            By default ``I-1``, ``I-2``, ... within the function.
        after, carried, unroll
            Edges: plain, loop-carried and unroll dependencies. Each is an instruction or a name (a Flow edge), or a
            sequence of that, the kind, and what else the entry holds: ``(load, "Anti")``, ``(mul, "Flow", [1])``.
        wait, update
            Semaphores: ``(semaphore, value)``, and for a wait optionally the instruction that updates it.
        members
            Other members of the JSON object; expressions in them may be `Expression`.

        Returns
        -------
        Instruction
            A handle for edges.

        Examples
        --------
        >>> from arrowir import build
        >>> main = build.module().function()
        >>> tile = main.sb("tile", [128, 4])
        >>> memset = main.add("Memset", [], [tile], mode="Const", constant=0, engine="Pool", update=[(3, 1)])
        >>> main.add("TensorScalar", [tile, 2.0], [tile], after=[memset], wait=[(3, 1, memset)]).members["sync_info"]
        {'on_wait': [{'from': 'I-1', 'id': 3, 'wait_value': 1}]}
        """
        waits = [
            record({"id": semaphore, "wait_value": value, "from": name_of(by[0]) if by else None})
            for semaphore, value, *by in _pairs(wait, "wait")
        ]
        updates = [{"id": semaphore, "update_value": value} for semaphore, value in _pairs(update, "update")]
        sync = record({"on_wait": waits or None, "on_update": updates or None})
        self._count += 1
        made = record(
            {
                "name": name if name is not None else f"I-{self._count}",
                "opcode": opcode,
                "engine": engine,
                "ins": _operands(ins, "ins"),
                "outs": _operands(outs, "outs"),
                "indirection_ins": None if indirection is None else _operands(indirection, "indirection"),
                "dependencies": _edges(after, "after") or None,
                "loop_carried_dependencies": _edges(carried, "carried") or None,
                "unroll_dependencies": _edges(unroll, "unroll") or None,
                "sync_info": sync or None,
                **{key: plain(value) for key, value in members.items()},
            }
        )
        if not self._levels[-1]:
            self.block()
        self._levels[-1][-1]["instructions"].append(made)
        return Instruction(made["name"], made)

    @contextmanager
    def nested(self, opcode: str, **members: Any) -> Generator[Instruction]:
        """Add an instruction with blocks: what is added inside the ``with`` goes into them.

        Parameters
        ----------
        opcode
            Like ``"DoWhile"`` or ``"DMABlock"``.
        members
            As for `add`.
        """
        blocks: list[Json] = []
        owner = self.add(opcode, **members, blocks=blocks)
        owner.members["blocks"] = blocks
        self._levels.append(blocks)
        try:
            yield owner
        finally:
            self._levels.pop()

    @contextmanager
    def loop(
        self,
        lb: int | Expression,
        ub: int | Expression,
        stride: int = 1,
        *,
        axis: str | None = None,
        opcode: str = "Loop",
        **members: Any,
    ) -> Generator[Axis]:
        """Add a loop: what is added inside the ``with`` is its body.

        Parameters
        ----------
        lb, ub, stride
            The values that the axis takes are those of ``range(lb, ub, stride)``.
        axis
            Name of the induction variable; by default ``i``, ``j``, ``k``, ... by depth.
        opcode
            ``"Loop"`` or ``"DynamicForLoop"``.
        members
            As for `add`.

        Yields
        ------
        Axis
            The induction variable, to be used in addresses.

        Examples
        --------
        >>> from arrowir import build
        >>> main = build.module().function()
        >>> tile = main.sb("tile", [128, 512])
        >>> with main.loop(0, 4) as i:
        ...     part = tile.at(0, 128 * i, pattern=[[512, 128], [1, 128]])
        ...     memset = main.add("Memset", [], [part], mode="Const", constant=0)
        >>> main.json()["blocks"][0]["instructions"][0]["LoopAxis"]
        {'lb': 0, 'name': 'i', 'stride': 1, 'ub': 4}
        """
        axis = axis or "ijklmnopqrstuvwxyz"[(len(self._levels) - 1) % 18]
        bounds: Json = {"lb": lb, "stride": stride, "ub": ub}
        if opcode != "Loop":  # the bounds of the others are expressions, constant ones too
            bounds = {key: Expression.of(value) for key, value in bounds.items()}
        key = "LoopAxis" if opcode == "Loop" else f"{opcode}Axis"
        with self.nested(opcode, **{key: record({"name": axis, **bounds})}, **members) as owner:
            yield Axis(axis, owner)

    def branch(self, target: str | None, **members: Any) -> Instruction:
        """Add an unconditional branch to a block."""
        return self.add("UnconditionalBranch", target=target, **members)

    def compare(
        self, left: Register, comp_op: str, right: Register | int, on_true: str, on_false: str, **members: Any
    ) -> Instruction:
        """Add a branch on a comparison, ``"IS_LTIMM"`` and the like, of a register with a number or a register."""
        return self.add(
            "CompareAndBranch",
            [left, right],
            comp_op=comp_op,
            on_true=on_true,
            on_false=on_false,
            **members,
        )


def _location(tensor: Tensor, name: str, addr: int | None, number: int, members: Mapping[str, Any]) -> Json:
    return record(
        {
            "Skind": "memory_location",
            "name": name,
            "type": tensor.memory,
            "dims": [tensor.shape[0], tensor.bytes],
            "addr": addr or 0,
            "allocated": addr is not None,
            "tensor_id": number,
            **members,
        }
    )


class FunctionBuilder(Body):
    """A function that is being built; made by `ModuleBuilder.function` and `ModuleBuilder.kernel`."""

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        super().__init__("Block1")
        self.name = name
        self.allocations: list[Json] = []
        self._members = members

    def tensor(
        self,
        name: str,
        memory: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        kind: str = "Internal",
        addr: int | None = None,
        set_name: str | None = None,
        set_members: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> Tensor:
        """Add a set with one location, both sized by shape and dtype.

        Parameters
        ----------
        name
            Name of the location.
        memory
            ``"SB"``, ``"PSUM"``, ``"DRAM"`` or another memory type.
        shape
            The logical shape, partitions first.
        dtype
            Type of the elements.
        kind
            Kind of the tensor.
        addr
            Address; a location with one is allocated, without one it is not.
        set_name
            Name of the set; by default that of the location and ``_set``.
        set_members, members
            Further members of the set, and of the location: `base`, `bank`, `pinned`, `runtime_reserved`, `alias`, ...

        Returns
        -------
        Tensor
            A handle for operands.

        Raises
        ------
        OptionError
            If the dtype is unknown, or the shape is empty.
        """
        shape = arguments.listed(shape, f"the shape of `{name}`", "a list of integers")
        if not shape:
            raise OptionError(f"`{name}` has no dimensions; a shape needs one at least")
        if any(type(extent) is not int for extent in shape):
            raise arguments.wrong(f"the shape of `{name}`", "a list of integers", shape)
        arguments.text(memory, "a memory type")
        for key in arguments.typed(set_members or {}, Mapping, "`set_members`", "members by name"):
            arguments.text(key, "the name of a member")
        tensor = Tensor(name, set_name if set_name is not None else f"{name}_set", memory, tuple(shape), dtype)
        self.allocations.append(
            record(
                {
                    "Skind": "memory_location_set",
                    "name": tensor.set_name,
                    "kind": kind,
                    "tensor_class": _TENSOR_CLASS.get(memory, "Tensor"),
                    "dtype": dtype,
                    "addr_space": ("Local" if kind == "Internal" else "Shared") if memory == "DRAM" else None,
                    "tensor_shape": list(shape),
                    "memorylocations": [_location(tensor, name, addr, 0, members)],
                    "tensorId2MemLocSize": 1,
                    **(set_members or {}),
                }
            )
        )
        return tensor

    def sb(self, name: str, shape: Sequence[int], dtype: str = "float32", **members: Any) -> Tensor:
        """Add a tensor in SBUF; parameters as for `tensor`."""
        return self.tensor(name, "SB", shape, dtype, **members)

    def psum(self, name: str, shape: Sequence[int], dtype: str = "float32", **members: Any) -> Tensor:
        """Add a tensor in PSUM; parameters as for `tensor`."""
        return self.tensor(name, "PSUM", shape, dtype, **members)

    def dram(self, name: str, shape: Sequence[int], dtype: str = "float32", **members: Any) -> Tensor:
        """Add a tensor in DRAM; parameters as for `tensor`."""
        return self.tensor(name, "DRAM", shape, dtype, **members)

    def input(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, kind: str = "ExternalInput", **members: Any
    ) -> Tensor:
        """Add an input in DRAM; parameters as for `tensor`."""
        return self.tensor(name, "DRAM", shape, dtype, kind=kind, **members)

    def output(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, kind: str = "ExternalOutput", **members: Any
    ) -> Tensor:
        """Add an output in DRAM; parameters as for `tensor`."""
        return self.tensor(name, "DRAM", shape, dtype, kind=kind, **members)

    def place(self, tensor: Tensor, name: str, *, addr: int | None = None, **members: Any) -> Tensor:
        """Add one more location to the set of a tensor, and return a handle for it.

        Raises
        ------
        OptionError
            If the tensor is not of this function.
        """
        arguments.typed(tensor, Tensor, "`place`", "a tensor")
        owner = next((a for a in reversed(self.allocations) if a["name"] == tensor.set_name), None)
        if owner is None:
            raise OptionError(f"function `{self.name}` has no set `{tensor.set_name}`; add the tensor to it first")
        number = len(owner["memorylocations"])
        owner["memorylocations"].append(_location(tensor, name, addr, number, members))
        owner["tensorId2MemLocSize"] = number + 1
        return Tensor(name, tensor.set_name, tensor.memory, tensor.shape, tensor.dtype)

    def register(self, name: str, **members: Any) -> Register:
        """Add a register."""
        self.allocations.append(record({"Skind": "register", "name": name, **members}))
        return Register(name)

    def call(
        self,
        kernel: "FunctionBuilder | str",
        args: Bindings = (),
        outs: Bindings = (),
        *,
        scratch: Sequence[Tensor] = (),
        **members: Any,
    ) -> Instruction:
        """Add a call-site (`NKIKernel`).

        Parameters
        ----------
        kernel
            The kernel function, or a name.
        args, outs
            What its parameters are bound to: a map from formal to actual (tensors, registers or names), which becomes
            `func_args` and `func_outs`; or a sequence of tensors, which bind by position. The tensors become operands.
        scratch
            Scratchpads: tensors in SBUF, then in PSUM. They are appended to the outputs, and give `sb_buf_shape` and
            `psum_buf_shape`.
        members
            As for `Body.add`.
        """
        for tensor in arguments.listed(scratch, "`scratch`", "a list of tensors"):
            arguments.typed(tensor, Tensor, "`scratch`", "a list of tensors")
        sb = [tensor for tensor in scratch if tensor.memory == "SB"]
        psum = [tensor for tensor in scratch if tensor.memory == "PSUM"]
        shapes: Json = {
            "sb_buf_shape": [sb[0].shape[0], sb[0].bytes] if sb else [0, 0],
            "psum_buf_shape": [len(psum), psum[0].shape[0], psum[0].bytes] if psum else [0, 0, 0],
        }

        def tensors(given: Bindings) -> list[Tensor]:
            takes = "a map from formal to actual, or a list of tensors"
            actuals = given.values() if isinstance(given, Mapping) else arguments.listed(given, "an argument", takes)
            return [actual for actual in actuals if isinstance(actual, Tensor)]

        def names(given: Bindings) -> dict[str, str] | None:
            return {name_of(f): name_of(a) for f, a in given.items()} if isinstance(given, Mapping) else None

        return self.add(
            "NKIKernel",
            tensors(args),
            [*tensors(outs), *scratch],
            func=name_of(kernel),
            func_args=names(args),
            func_outs=names(outs),
            **{**shapes, **members},
        )

    def json(self) -> Json:
        """Return the function's JSON object."""
        return record(
            {
                "name": self.name,
                "attributes": [],
                "allocations": self.allocations,
                "blocks": self.blocks,
                **self._members,
            }
        )


class QueueBuilder(Body):
    """A DMA queue that is being built; made by `ModuleBuilder.queue`."""

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        super().__init__("Block1")
        self.name = name
        self._members = members

    def json(self) -> Json:
        """Return the queue's JSON object."""
        return record({"name": self.name, "blocks": self.blocks, **self._members})
