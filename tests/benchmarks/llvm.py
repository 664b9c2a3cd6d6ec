"""The peer of inlining: LLVM's always-inliner, through llvmlite, on modules of the same shape."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OPERATIONS = ("fadd", "fmul", "fsub")


@dataclass(frozen=True)
class Shape:
    """Call-sites of functions that are marked `alwaysinline`."""

    sites: int
    instructions: int
    """Of each function, without its `ret`."""
    distinct: bool = False
    """Whether each call-site has a function of its own."""
    named: bool = True
    """Whether values have names, as instructions of BIR have; without, the inliner need not make new ones."""

    @property
    def inlined(self) -> int:
        """Instructions of the caller when all is inlined, with its `ret`."""
        return self.sites * self.instructions + 1


def function(name: str, instructions: int, *, named: bool = True) -> str:
    """Return a function of straight-line code: two loads, arithmetic of two operands and a result each, one store.

    Every instruction uses one of the last four values, so none is dead; floats are not reassociated, so none folds.

    Examples
    --------
    >>> print(function("f", 5))
    define internal void @f(ptr %a, ptr %b, ptr %c) alwaysinline {
      %t0 = load float, ptr %a
      %t1 = load float, ptr %b
      %t2 = fadd float %t1, %t0
      %t3 = fmul float %t2, %t0
      store float %t3, ptr %c
      ret void
    }
    """

    def value(number: int) -> str:
        return f"%t{number}" if named else f"%{number + 1}"  # the block without a name is number 0

    lines = [f"{value(0)} = load float, ptr %a", f"{value(1)} = load float, ptr %b"]
    for number in range(2, instructions - 1):
        other = number - min(number, 2 + number // 3 % 3)
        operation = _OPERATIONS[(number - 2) % 3]
        lines.append(f"{value(number)} = {operation} float {value(number - 1)}, {value(other)}")
    lines += [f"store float {value(instructions - 2)}, ptr %c", "ret void"]
    inside = "\n".join(f"  {line}" for line in lines)
    return f"define internal void @{name}(ptr %a, ptr %b, ptr %c) alwaysinline {{\n{inside}\n}}"


def text(shape: Shape) -> str:
    """Return a module in which each call reads what the one before it wrote.

    Examples
    --------
    >>> [line.strip() for line in text(Shape(2, 5)).splitlines() if "call" in line]
    ['call void @plain0(ptr @in0, ptr @in1, ptr @t0)', 'call void @plain0(ptr @t0, ptr @in1, ptr @t1)']
    """
    tensors = ["@in0 = external global float", "@in1 = external global float"]
    tensors += [f"@t{number} = external global float" for number in range(shape.sites)]
    functions = shape.sites if shape.distinct else 1
    bodies = [function(f"plain{number}", shape.instructions, named=shape.named) for number in range(functions)]
    calls: list[str] = []
    last = "@in0"
    for number in range(shape.sites):
        callee = f"@plain{number if shape.distinct else 0}"
        calls.append(f"  call void {callee}(ptr {last}, ptr @in1, ptr @t{number})")
        last = f"@t{number}"
    return "\n".join([*tensors, *bodies, "define void @main() {", *calls, "  ret void", "}"])


class AlwaysInliner:
    """The pass by itself, and modules for it to run on."""

    def __init__(self, shape: Shape, assembly: str | None = None) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm = llvm
        self.shape = shape
        self.text = text(shape) if assembly is None else assembly
        self.machine = llvm.Target.from_default_triple().create_target_machine()

    def parse(self) -> Any:
        """Return a module before the pass, in a context of its own."""
        module = self.llvm.parse_assembly(self.text, self.llvm.create_context())
        module.verify()
        return module

    def run(self, module: Any) -> Any:
        """Run the pass over a module, and return the module."""
        manager = self.llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        builder = self.llvm.create_pass_builder(self.machine, self.llvm.create_pipeline_tuning_options())
        manager.run(module, builder)
        return module

    def check(self, module: Any) -> None:
        """Raise when calls are left, functions are left, or instructions were lost."""
        (caller,) = list(module.functions)  # the others were inlined everywhere, and are gone
        found = str(caller).count("\n  ")
        assert found == self.shape.inlined, f"{found} instructions after the pass, expected {self.shape.inlined}"


def main(source: str, target: str) -> None:
    """Do what a command would: read a file of assembly, inline, write a file of bitcode."""
    inliner = AlwaysInliner(Shape(0, 0), Path(source).read_text())
    Path(target).write_bytes(inliner.run(inliner.parse()).as_bitcode())
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
