"""Kernel files: every `NKIKLIRKernel` becomes a kernel function of the module and a call-site of it.

The stages, each made for all call-sites of the batch at once:

1. read what call-sites ask for, once per distinct text (`requests`);
2. find the files (`places`), and read each once into a batch of their own (`kernel_files`);
3. choose the function of the module's core, and what it calls (`kernels`);
4. look up the argument maps (`arguments`), measure what allocated kernels need (`scratch`);
5. one edit: functions behind those of their modules, instructions rewritten where they stand (`building`).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from arrowir import diagnostics as diag
from arrowir import vocabulary
from arrowir.diagnostics import Diagnostic, OptionError
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import Sites, about, find_sites
from arrowir.passes.translating.arguments import Arguments, resolve
from arrowir.passes.translating.building import Translation, translate
from arrowir.passes.translating.kernels import KLIR, Uses, constants_of, faults_of, noticed, repeated
from arrowir.passes.translating.places import Fault, Folders, folders_of, locate
from arrowir.passes.translating.requests import Requests, read_requests
from arrowir.passes.translating.scratch import BANKS, Needs, Pads, needs_of, pads_of
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.formats.kernel_files import KernelFile, KernelFiles

Found: TypeAlias = "KernelFile | Fault"

CORE_REQUIRED = "NeuronCoreId must be set when the LNC count is greater than 1"
SKIPPED = "The kernel is compiled for LNC count lower than the current core_id {} skip lowering"

_SITES, _SIZE = range(2)
"""Stages of the checks: those of call-sites in program order, then the size of the module."""

_REQUEST, _FILE, _CORE, _KERNEL, _ARGUMENTS, _SCRATCH = range(6)
"""Order of the checks of one call-site."""


@dataclass(frozen=True)
class TranslateNkiAstToBir(Pass):
    """Bring the kernels that `NKIKLIRKernel` instructions name into the module, and make call-sites of these.

    The kernel file is BIR JSON. It is looked for inside the artefact directory and the module's own folder, and is
    never changed. Its function for the module's core becomes a kernel function, with the functions that it calls;
    expressions are spelt as the module's `version` has them. An allocated kernel gets scratchpads.

    Parameters
    ----------
    artefacts
        The artefact directory; by default the module's own folder, or the one above its levels `nc00/sg00`. Needed for
        modules that were not read from files.
    scratchpad_addr
        SB address at which the scratchpads that the pass makes are placed; by default they are left to an allocator.
    max_instructions
        Limit of the instructions of a module after the pass.

    Raises
    ------
    OptionError
        If `artefacts` is no folder that is there, or `scratchpad_addr` below 0.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/generated/front_end/sg00/bir.json")
    >>> after = air.passes.translate_nki_ast_to_bir(ir).ir
    >>> after.instructions.filter(opcode="NKIKernel")["name"].to_list()
    ['inst__add_bias', 'inst__row_scale']
    """

    name: ClassVar[str] = "translate_nki_ast_to_bir"

    artefacts: str | None = None
    scratchpad_addr: int | None = None
    max_instructions: int = MAX_INSTRUCTIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.artefacts is not None and (problem := _no_folder(self.artefacts)):
            raise OptionError(f"option `artefacts` of pass `translate_nki_ast_to_bir` names no folder: {problem}")
        if self.scratchpad_addr is not None and not 0 <= self.scratchpad_addr < 2**31:
            raise OptionError(
                "option `scratchpad_addr` of pass `translate_nki_ast_to_bir` takes an address from 0 to 2147483647, "
                f"got {self.scratchpad_addr}"
            )

    def plan(self, ir: IR, active: Array) -> Plan:
        """Read the files, make every check, look up all names."""
        started = time.perf_counter()
        status = np.full(len(ir), UNCHANGED, np.int8)
        sites = find_sites(ir, active, "", KLIR)
        if not len(sites):
            return Plan(status)
        self._log_start(ir, sites)
        errors = FirstErrors(len(ir))
        requests = read_requests(ir, sites)
        from arrowir.formats.kernel_files import KernelFiles

        files = KernelFiles(ir.pools)
        found, of_site, folders = self._find(ir, sites, requests, files, errors)
        cores, notes, taken = self._choose(ir, sites, found, of_site, files, errors)
        self.log.info("Scan BKs time (s): %f", time.perf_counter() - started)
        kept = taken & ~errors.failed[sites.module]
        if kept.any():
            todo, more = self._translation(ir, sites, requests, kept, found, of_site, cores, folders, files, errors)
            notes += more
        else:
            todo = None
        failed = errors.failed
        status[failed] = FAILED
        if todo is not None:
            good = ~failed[todo.sites.module]
            status[todo.sites.module[good]] = CHANGED
            todo = _pick(todo, good) if good.any() else None
        messages = [*errors.diagnostics(), *(n for n in notes if not failed[n.module_id or 0])]
        messages.sort(key=lambda m: m.module_id or 0)
        return Plan(status, messages, todo)

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables."""
        return translate(ir, plan.edit)

    # -- files -------------------------------------------------------------------------------------------------------

    def _find(
        self, ir: IR, sites: Sites, requests: Requests, files: "KernelFiles", errors: FirstErrors
    ) -> tuple[list[Found], Array, dict[int, Folders]]:
        """Read the files; return what came of each distinct question, the question of each call-site, and the folders.

        A question is a file name in a folder, in the spelling of a version.
        """
        sources = ir.tables["modules"]["source"][sites.module]
        version = np.where(ir.tables["modules"]["version"][sites.module] == 1, 1, 2)
        faulty = np.array([request.fault is not None for request in requests.distinct], bool)[requests.of_site]
        for site in np.flatnonzero(faulty).tolist():
            code, text = requests.distinct[requests.of_site[site]].fault or ("", "")
            self._fail(ir, sites, errors, _REQUEST, np.array([site]), lambda _, c=code, t=text: Fault(c, t))
        paths: dict[str, int] = {}
        path_of = np.array([paths.setdefault(r.binary, len(paths)) for r in requests.distinct], np.int64)
        binaries = list(paths)
        key = np.stack((sources, np.where(faulty, -1, path_of[requests.of_site]), version), axis=1).astype(np.int64)
        distinct, place = np.unique(key, axis=0, return_inverse=True)
        place = place.reshape(-1)
        names = ir.pools.names.texts
        folders = {
            s: folders_of(names[s] if s >= 0 else None, self.artefacts) for s in np.unique(distinct[:, 0]).tolist()
        }
        found: list[Found] = []
        for source, binary, spelling in distinct.tolist():
            where = locate(binaries[binary], folders[source]) if binary >= 0 else Fault("", "")
            file = where if isinstance(where, Fault) else files.get(where, spelling)
            found.append(file if isinstance(file, Fault) or file.fault is None else Fault(*file.fault))
        files.forget_texts()
        bad = np.array([isinstance(one, Fault) for one in found], bool)[place] & ~faulty
        self._fail(ir, sites, errors, _FILE, np.flatnonzero(bad), lambda s: _fault(found[place[s]]))
        for path in dict.fromkeys(one.shown for one in found if not isinstance(one, Fault)):
            self.log.info("BIR JSON file has been loaded from disk: %s", path)
        return found, place, folders

    def _choose(
        self, ir: IR, sites: Sites, found: list[Found], of_site: Array, files: "KernelFiles", errors: FirstErrors
    ) -> tuple[Array, list[Diagnostic], Array]:
        """Choose the function of each call-site's file; return it, notes, and a mask of the call-sites with one."""
        batch = files.batch()
        functions = batch.tables["functions"]
        ordinary = functions["in_nki_functions"] != 1
        count = np.append(np.bincount(functions["module_id"][ordinary], minlength=len(batch)), 1)
        part = np.array([-1 if isinstance(one, Fault) else one.part for one in found], np.int64)[of_site]
        functions_of = count[part]
        core = ir.array("modules", "neuron_core_id")[sites.module]
        unset = core < 0
        lost = np.flatnonzero((part >= 0) & unset & (functions_of > 1))
        self._fail(ir, sites, errors, _CORE, lost, lambda _: Fault("core_id_required", CORE_REQUIRED))
        empty = np.flatnonzero((part >= 0) & (functions_of == 0))
        none = lambda s: Fault(  # noqa: E731
            "kernel_file_damaged",
            f"the kernel file {_kernel(found[of_site[s]]).shown} cannot be read: it has no function under `functions`",
        )
        self._fail(ir, sites, errors, _CORE, empty, none)
        core = np.where(unset, 0, core)
        beyond = (part >= 0) & (core >= functions_of) & (functions_of > 0)
        notes: list[Diagnostic] = []
        for site in np.flatnonzero(beyond).tolist():
            text = SKIPPED.format(core[site])
            self.log.info(text)
            notes.append(about(ir, sites, site, "kernel_file_skipped", text))
        return core, notes, (part >= 0) & ~beyond

    # -- kernels -----------------------------------------------------------------------------------------------------

    def _translation(
        self,
        ir: IR,
        sites: Sites,
        requests: Requests,
        kept: Array,
        found: list[Found],
        of_site: Array,
        cores: Array,
        folders: dict[int, Folders],
        files: "KernelFiles",
        errors: FirstErrors,
    ) -> tuple[Translation, list[Diagnostic]]:
        """Look at the kernels of call-sites, and at the names in their maps."""
        number = np.flatnonzero(kept)
        mine = sites.pick(kept)
        part = np.array([-1 if isinstance(one, Fault) else one.part for one in found], np.int64)[of_site[kept]]
        pairs, use = np.unique(np.stack((mine.module, part), axis=1), axis=0, return_inverse=True)
        first = np.unique(use.reshape(-1), return_index=True)[1]
        order_of_uses = np.argsort(first)  # files in the order in which a module names them, whatever else is read
        use, first, pairs = np.argsort(order_of_uses)[use.reshape(-1)], first[order_of_uses], pairs[order_of_uses]
        kernels = [_kernel(found[of_site[number[site]]]) for site in first.tolist()]
        uses = Uses(pairs[:, 0], kernels, cores[number[first]], repeated(files.batch(), pairs[:, 1]))
        taken = uses.functions()
        if self.log.isEnabledFor(logging.INFO):
            names = uses.batch.tables["functions"].text().take(uses.callee)
            for name, core in zip(names, uses.core.tolist(), strict=True):
                self.log.info("Creating NKI function from BIR JSON: %s and core id: %d", name, core)

        source = ir.tables["modules"]["source"][uses.module].tolist()
        constants = constants_of(uses, taken, [folders[s] for s in source])
        faults = constants.faults | faults_of(uses, taken)
        bad = np.isin(use, list(faults))
        order = number.astype(np.int64)
        self._fail(ir, mine, errors, _KERNEL, np.flatnonzero(bad), lambda s: faults[int(use[s])], order)

        arguments = resolve(ir, uses.batch, requests, number, mine.function, uses.callee[use])
        self._check_arguments(ir, mine, arguments, errors, order)
        needs = needs_of(uses.batch)
        todo = self._with_scratch(ir, mine, requests, number, Translation(
            mine, use, uses, taken, arguments, constants, pads_of(*(np.empty(0, np.int64),) * 5),
            np.zeros(len(mine), np.int64), np.zeros(len(mine), np.int64), np.zeros(len(mine), np.int64),
            self.scratchpad_addr,
        ), needs, errors, order)  # fmt: skip
        self._check_size(ir, todo, errors)
        return todo, [*noticed(ir, uses, constants), *_ambiguous(ir, mine, arguments)]

    def _check_arguments(self, ir: IR, sites: Sites, arguments: Arguments, errors: FirstErrors, order: Array) -> None:
        """Fail call-sites whose maps name nothing; the first such entry counts."""
        bad = np.flatnonzero(arguments.unknown | arguments.unresolved)
        items, first = np.unique(arguments.site[bad], return_index=True)
        entry = dict(zip(items.tolist(), bad[first].tolist(), strict=True))

        def fault(site: int) -> Fault:
            k = entry[site]
            unknown = bool(arguments.unknown[k])
            name = arguments.names[int((arguments.formal if unknown else arguments.actual)[k])]
            side = "input" if arguments.direction[k] == vocabulary.DIRECTION_IN else "output"
            return Fault("unknown_parameter" if unknown else "unresolved_name", f"{name} {side} cannot be found ")

        self._fail(ir, sites, errors, _ARGUMENTS, items, fault, order)

    def _with_scratch(
        self,
        ir: IR,
        sites: Sites,
        requests: Requests,
        number: Array,
        todo: Translation,
        needs: Needs,
        errors: FirstErrors,
        order: Array,
    ) -> Translation:
        """Say which scratchpads call-sites of allocated kernels get, and which have them already."""
        callee = todo.uses.callee[todo.use]
        asked = [requests.distinct[r] for r in requests.of_site[number].tolist()]
        has_bytes, has_banks = (np.array([getattr(r, n) for r in asked], object) for n in ("sb_bytes", "psum_banks"))
        bytes_, banks, partitions = needs.sb_bytes[callee], needs.banks[callee], needs.partitions[callee]
        capacity, most = _memory(ir, sites.module)
        high = np.flatnonzero((bytes_ > capacity) | (banks > most))
        small = np.flatnonzero(
            ((has_bytes != 0) & (has_bytes < bytes_))
            | ((has_banks != 0) & (has_banks < banks))
            | ((has_bytes == 0) & (bytes_ > 0) & (has_banks != 0))
        )

        def too_high(s: int) -> Fault:
            if bytes_[s] > capacity[s]:
                text = f"the kernel's memory ends at byte {bytes_[s]} of a partition, and SBUF has {capacity[s]}"
                return Fault("sb_overflow", text)
            return Fault("psum_overflow", f"the kernel uses PSUM bank {banks[s] - 1}, and there are {most[s]} banks")

        def too_small(s: int) -> Fault:
            return Fault(
                "scratchpad_too_small",
                f"the kernel needs {bytes_[s]} bytes per partition of SB and {banks[s]} PSUM banks, and `sb_buf_shape` "
                f"and `psum_buf_shape` say that the call-site has {has_bytes[s]} and {has_banks[s]}; leave them out",
            )

        self._fail(ir, sites, errors, _SCRATCH, high, too_high, order)
        self._fail(ir, sites, errors, _SCRATCH, small, too_small, order)
        usable = np.ones(len(sites), bool)
        usable[high] = usable[small] = False
        new_bytes = np.where(usable & (has_bytes == 0), bytes_, 0).astype(np.int64)
        new_banks = np.where(usable & (has_banks == 0), banks, 0).astype(np.int64)
        pads = pads_of(np.arange(len(sites)), sites.function, new_bytes, new_banks, partitions)
        return Translation(
            todo.sites, todo.use, todo.uses, todo.taken, todo.arguments, todo.constants, pads,
            new_bytes, new_banks, np.where(new_banks > 0, partitions, 0), todo.addr,
        )  # fmt: skip

    def _check_size(self, ir: IR, todo: Translation, errors: FirstErrors) -> None:
        """Fail modules that would have too many instructions (rule O6)."""
        batch = todo.uses.batch
        rows = np.bincount(batch.array("instructions", "function_id"), minlength=batch.count("functions"))
        taken = np.flatnonzero(todo.taken)
        size = np.bincount(ir.array("instructions", "module_id"), minlength=len(ir)).astype(np.int64)
        np.add.at(size, todo.uses.module[batch.tables["functions"]["module_id"][taken]], rows[taken])
        modules, site = np.unique(todo.sites.module, return_index=True)
        large = size[modules] > self.max_instructions
        errors.add(
            _SIZE, 0, site[large], modules[large], lambda s: _too_large(todo.sites, s, size, self.max_instructions)
        )

    # -- saying ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _fail(
        ir: IR,
        sites: Sites,
        errors: FirstErrors,
        rank: int,
        items: Array,
        fault: Callable[[int], Fault],
        order: Array | None = None,
    ) -> None:
        """Fail call-sites; `fault` says why, `order` what place each has in the order of checks."""

        def message(site: int) -> Diagnostic:
            why = fault(site)
            return about(ir, sites, site, why.code, why.message)

        errors.add(_SITES, rank, items, sites.module[items], message, None if order is None else order[items])

    def _log_start(self, ir: IR, sites: Sites) -> None:
        if self.log.isEnabledFor(logging.INFO):
            self.log.info("Started running Lower KLIR Kernel into NKI kernel instruction")
            self.log.info(
                "Start of KLIR kernel lowering pass, number of insts: %d, number of allocs: %d",
                ir.count("instructions"),
                ir.count("sets") + ir.count("registers"),
            )
            for name in ir.tables["instructions"].text().take(sites.row):
                self.log.info("Found InstKLIRKernel: %s", name)


def _no_folder(path: str) -> str:
    """Say why a path is that of no folder; nothing where it is."""
    if not path:
        return "it is empty"
    try:
        if Path(path).is_dir():
            return ""
        return f"`{path}` is a file" if Path(path).exists() else f"`{path}` does not exist"
    except (OSError, ValueError):  # a path that no file can have
        return f"{path!r:.60} is no path"


def _fault(found: Found) -> Fault:
    assert isinstance(found, Fault)
    return found


def _kernel(found: Found) -> "KernelFile":
    assert not isinstance(found, Fault)
    return found


def _memory(ir: IR, module: Array) -> tuple[Array, Array]:
    """Return SBUF bytes per partition and PSUM banks of the architectures of modules; of unknown ones a lot of SBUF."""
    level = ir.array("modules", "arch_level")[module]
    capacity, banks = np.full(len(level), 2**31 - 1, np.int64), np.full(len(level), BANKS, np.int64)
    for arch in vocabulary.ARCHES:
        if arch.sbuf_bytes is not None and arch.psum_banks is not None:
            capacity[level == arch.level], banks[level == arch.level] = arch.sbuf_bytes, arch.psum_banks
    return capacity, banks


def _too_large(sites: Sites, site: int, size: Array, most: int) -> Diagnostic:
    module = int(sites.module[site])
    text = (
        f"the module would have {size[module]:,} instructions, more than the {most:,} allowed; raise `max_instructions`"
    )
    return diag.make("too_many_instructions", text, module_id=module)


def _ambiguous(ir: IR, sites: Sites, arguments: Arguments) -> list[Diagnostic]:
    """Return a note for each name in an argument map that several things of a function have (rule R2)."""
    found: dict[tuple[int, int], Diagnostic] = {}
    for k in np.flatnonzero(arguments.several).tolist():
        site = int(arguments.site[k])
        name, function = arguments.names[int(arguments.actual[k])], int(sites.function[site])
        kind = "location" if arguments.location[k] >= 0 and arguments.set_id[k] < 0 else "set"
        kind = "register" if arguments.register[k] >= 0 else kind
        text = f"several {kind}s are called `{name}`; an argument map means the first that fits its direction"
        found.setdefault((function, int(arguments.actual[k])), about(ir, sites, site, "ambiguous_name", text))
    return list(found.values())


def _pick(todo: Translation, good: Array) -> Translation:
    """Leave out the call-sites of failed modules, and what they alone would bring."""
    if good.all():
        return todo
    uses, number = todo.uses, np.cumsum(good) - 1
    module = uses.batch.tables["functions"]["module_id"]
    used = np.zeros(len(uses), bool)
    used[todo.use[good]] = True
    entries, pads = good[todo.arguments.site], good[todo.pads.site]
    arguments = todo.arguments.pick(entries)
    columns = {name: value[pads] for name, value in vars(todo.pads).items()}
    return Translation(
        todo.sites.pick(good), todo.use[good], uses, todo.taken & used[module],
        replace(arguments, site=number[arguments.site]), todo.constants,
        Pads(**{**columns, "site": number[columns["site"]]}),
        todo.sb_bytes[good], todo.banks[good], todo.partitions[good], todo.addr,
    )  # fmt: skip
