"""A builder for hand-made modules, in tests and notebooks.

It puts a BIR JSON document together and reads that, so that there is one way into the tables. Names, engines and access
patterns have defaults, and every object takes further members by keyword. Nothing is checked that the reader or a pass
checks, so that a faulty module can be built on purpose.

Examples
--------
A kernel that adds one, and a caller that runs it on a tensor in DRAM:

>>> from arrowir import build
>>> module = build.module(arch="gen3")
>>> kernel = module.kernel("add_one")
>>> a, c, tile = kernel.input("a", [128, 512]), kernel.output("c", [128, 512]), kernel.sb("tile", [128, 512])
>>> load = kernel.add("Load", [a], [tile])
>>> add = kernel.add("TensorScalar", [tile], [tile], after=[load], op0="add", const0=1.0)
>>> save = kernel.add("Save", [tile], [c], after=[add])
>>> main = module.function("sg0000")
>>> x, y = main.input("x", [128, 512]), main.output("y", [128, 512])
>>> call = main.call(kernel, {a: x}, {c: y})
>>> [f["name"] for f in module.json()["functions"]], call.name
(['sg0000'], 'I-1')
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir.arguments import wrong
from arrowir.build.bodies import Body, FunctionBuilder, QueueBuilder
from arrowir.build.operands import (
    Axis,
    Expression,
    Instruction,
    Json,
    Register,
    Tensor,
    imm,
    record,
    shard_id,
)
from arrowir.diagnostics import OptionError

if TYPE_CHECKING:
    from arrowir.ir import IR

__all__ = [
    "Axis",
    "Body",
    "Expression",
    "FunctionBuilder",
    "Instruction",
    "ModuleBuilder",
    "QueueBuilder",
    "Register",
    "Tensor",
    "imm",
    "module",
    "shard_id",
]


class ModuleBuilder:
    """A module that is being built; made by `module`."""

    def __init__(self, arch: str | None, members: Mapping[str, Any]) -> None:
        self._members = {"arch": arch, "attributes": {}, "version": 2, **members}
        self._functions: list[FunctionBuilder] = []
        self._kernels: list[FunctionBuilder] = []
        self._queues: list[QueueBuilder] = []

    def function(self, name: str = "sg0000", **members: Any) -> FunctionBuilder:
        """Add an ordinary function."""
        self._functions.append(FunctionBuilder(name, members))
        return self._functions[-1]

    def kernel(self, name: str, **members: Any) -> FunctionBuilder:
        """Add a kernel function, under `nki_functions`."""
        self._kernels.append(FunctionBuilder(name, members))
        return self._kernels[-1]

    def queue(self, name: str, **members: Any) -> QueueBuilder:
        """Add a DMA queue."""
        self._queues.append(QueueBuilder(name, members))
        return self._queues[-1]

    def json(self) -> Json:
        """Return the BIR JSON document; it is a copy, which may be changed.

        Raises
        ------
        OptionError
            If loops are nested too deeply for Python's JSON writer, or a member has a value that JSON does not have.
        """
        document = record(
            {
                "functions": [f.json() for f in self._functions],
                "nki_functions": {"functions": [k.json() for k in self._kernels]},
                "queues": [q.json() for q in self._queues] or None,
                **self._members,
            }
        )
        return json.loads(_text(document))

    def ir(self, name: str = "module") -> "IR":
        """Read the document into a batch of one module.

        Parameters
        ----------
        name
            Name of the module.

        Raises
        ------
        FormatError
            If the document is no BIR module.
        """
        from arrowir.formats import bir_json

        return bir_json.read_json(_text(self.json()).encode(), name=name)


def _text(document: Json) -> str:
    try:
        return json.dumps(document, default=_number)
    except RecursionError:
        raise OptionError("the module is nested too deeply to be written; nest fewer loops") from None


def _number(value: object) -> int | float:
    """Return a number of numpy as one of Python."""
    if isinstance(value, np.integer | np.floating):
        return value.item()
    raise wrong("a member of a module", "text, numbers, true, false, None, and lists and maps of these", value)


def module(arch: str | None = "gen3", **members: Any) -> ModuleBuilder:
    """Begin a module.

    Parameters
    ----------
    arch
        The architecture; None leaves it out.
    members
        Further members of the document, like `version` and `attributes`. Expressions are written in version 2 form.

    Returns
    -------
    ModuleBuilder
        Functions, kernels and queues are added to it; `ir()` reads it, `json()` gives the document.

    Examples
    --------
    >>> module(arch="trn2").json()
    {'arch': 'trn2', 'attributes': {}, 'functions': [], 'nki_functions': {'functions': []}, 'version': 2}
    >>> module(arch="trn2").ir("empty")
    <arrowir.IR: 1 modules, 0 functions, 0 instructions, 0 operands, 0 locations>
    """
    return ModuleBuilder(arch, members)
