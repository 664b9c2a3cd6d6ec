"""The kernel functions that modules get: which ones, under which names, and that they can be taken over."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arrowir import batches, extras, vocabulary
from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.names import fresh_names, picked
from arrowir.passes.translating.places import Fault, Folders
from arrowir.store import Array, Strings

if TYPE_CHECKING:
    from arrowir.formats.kernel_files import KernelFile

KLIR = vocabulary.OPCODES.code("NKIKLIRKernel")


@dataclass(frozen=True)
class Uses:
    """What modules take over: one item for each module and kernel file that it names."""

    module: Array
    kernel: "list[KernelFile]"
    core: Array
    """The ordinary function of the file that is called."""
    batch: IR
    """The kernel files, one module for each use."""

    def __len__(self) -> int:
        return len(self.kernel)

    @property
    def callee(self) -> Array:
        """The function that call-sites call, by its row in `batch`."""
        return np.searchsorted(self.batch.tables["functions"]["module_id"], np.arange(len(self))) + self.core

    def functions(self) -> Array:
        """Return a mask of the functions that are taken over: callees, and what they call in their own files."""
        batch = self.batch
        taken = np.zeros(batch.count("functions"), bool)
        taken[self.callee] = True
        caller, callee = batch.array("calls", "function_id"), batch.tables["calls"]["callee_id"]
        known = (caller >= 0) & (callee >= 0)
        caller, callee = caller[known], callee[known]
        while (new := taken[caller] & ~taken[callee]).any():
            taken[callee[new]] = True
        return taken


def names_of(ir: IR, uses: Uses, taken: Array) -> Strings:
    """Return the names of functions that are taken over, free in their module; in the order of rows."""
    functions = uses.batch.tables["functions"]
    rows = np.flatnonzero(taken)
    scope = uses.module[functions["module_id"][rows]].astype(np.int32)
    there = ir.tables["functions"]
    return fresh_names(there.text(), there["module_id"], picked(functions.text(), rows), scope)


def faults_of(uses: Uses, taken: Array) -> dict[int, Fault]:
    """Return by use what keeps its kernel from being taken over."""
    batch = uses.batch
    found: dict[int, Fault] = {}
    module = batch.tables["functions"]["module_id"]
    names = np.diff(batch.tables["functions"].text().offsets)
    for row in np.flatnonzero(taken & (names == 0)).tolist():
        what = f"the kernel file {uses.kernel[module[row]].shown} cannot be read: a function has no name"
        found.setdefault(int(module[row]), Fault("kernel_file_damaged", what))
    inner = np.flatnonzero(batch.tables["instructions"]["opcode"] == KLIR)
    function = batch.array("instructions", "function_id")[inner]
    inner = inner[(function >= 0) & taken[np.maximum(function, 0)]]
    for row in inner.tolist():
        use = int(batch.array("instructions", "module_id")[row])
        name = batch.tables["instructions"].text()[row]
        what = (
            f"the kernel file {uses.kernel[use].shown} cannot be taken over: its instruction `{name}` "
            "names a kernel file too; have that kernel compiled into the same file"
        )
        found.setdefault(use, Fault("not_supported", what))
    return found


@dataclass(frozen=True)
class Constants:
    """Files of constants, seen from the folder of the module that takes them over."""

    rows: Array
    """Sets whose text changes."""
    extra: Array
    faults: dict[int, Fault]
    missing: list[tuple[int, int, str]]
    """Use, set and path of files that are not there."""


def constants_of(uses: Uses, taken: Array, folders: list[Folders]) -> Constants:
    """Find the files that constants name, beside the kernel file, and name them from the module's own folder.

    Parameters
    ----------
    uses, taken
        What is taken over.
    folders
        The folders of each use's module.
    """
    batch = uses.batch
    sets, pool = batch.tables["sets"], batch.pools.extras
    rows = np.flatnonzero((sets["kind"] == vocabulary.KIND_CONST) & (sets["extra"] >= 0) & taken[sets["function_id"]])
    module = batch.array("sets", "module_id")[rows]
    faults: dict[int, Fault] = {}
    missing: list[tuple[int, int, str]] = []
    changed: list[tuple[int, int]] = []
    for row, use, extra in zip(rows.tolist(), module.tolist(), sets["extra"][rows].tolist(), strict=True):
        text = pool[extra]
        file = extras.parse(text).get("file")
        if not isinstance(file, str) or not file:
            continue
        home = folders[use].own or folders[use].artefacts or ""
        try:
            place = os.path.normpath(Path(uses.kernel[use].path).parent / file)
            inside, there = folders[use].holds(os.path.realpath(place)), Path(place).is_file()
        except (OSError, ValueError):  # a name that no file can have
            inside, there, place = True, False, file
        if not inside:
            listed = " and ".join(f"`{folder}`" for folder in folders[use].all)
            what = f"the file `{file}` of constant `{sets.text()[row]}` lies outside of {listed}; move it there"
            faults.setdefault(use, Fault("kernel_file_outside", what))
            continue
        if not there:
            missing.append((use, row, file))
        now = os.path.relpath(place, home) if Path(place).is_absolute() else file
        if now != file:
            parts = [(key, extras.dump(now) if key == "file" else value) for key, value in extras.members(text)]
            changed.append((row, pool.intern(extras.join(parts))))
    found = np.array(changed, np.int64).reshape(-1, 2)
    return Constants(found[:, 0], found[:, 1], faults, missing)


def noticed(ir: IR, uses: Uses, constants: Constants) -> list[Diagnostic]:
    """Return what was noticed in the kernel files, once for each module that takes them over."""
    found: list[Diagnostic] = []
    levels, other = ir.array("modules", "arch_level"), uses.batch.array("modules", "arch_level")
    for use in range(len(uses)):
        module, kernel = int(uses.module[use]), uses.kernel[use]
        about = f"kernel file `{kernel.shown}`"
        found += [_without_ids(replace(row, message=f"{about}: {row.message}"), module) for row in kernel.noticed]
        if levels[module] != other[use] and other[use] >= 0:
            arches = [
                b.pools.names[b.tables["modules"]["arch"][m]] if b.tables["modules"]["arch"][m] >= 0 else "unknown"
                for b, m in ((ir, module), (uses.batch, use))
            ]
            text = f"{about} was compiled for `{arches[1]}`, and the module is for `{arches[0]}`"
            found.append(diag.make("kernel_arch_differs", text, module_id=module))
    sets = uses.batch.tables["sets"]
    for use, row, file in constants.missing:
        function = uses.batch.tables["functions"].text()[int(sets["function_id"][row])]
        name = sets.text()[row]
        text = f"the file `{file}` of constant `{name}` is not beside `{uses.kernel[use].shown}`"
        found.append(
            diag.make("constant_file_missing", text, module_id=int(uses.module[use]), function=function, set=name)
        )
    return found


def _without_ids(row: Diagnostic, module: int) -> Diagnostic:
    """Let a row be about a module; the functions that it names are none of the batch that the pass was given."""
    names = ("function_id", "block_id", "instruction_id", "set_id", "location_id")
    return replace(row, module="", module_id=module, **dict.fromkeys(names, None))


def repeated(files: IR, parts: Array) -> IR:
    """Return a batch with one module for each use of a kernel file."""
    return batches.select_modules(files, parts)
