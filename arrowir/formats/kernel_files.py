"""Kernel files: each read once in a run of the pass, in the spelling of each version that asks for it."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arrowir import schema
from arrowir.diagnostics import Diagnostic, FormatError
from arrowir.formats import assemble, bir_json, content, json_text
from arrowir.formats.expression_versions import NotConvertibleError, convert
from arrowir.ir import IR
from arrowir.store import Pools

OLD, NEW = 1, 2
"""Versions of the format; they differ in how expressions are spelt."""


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel file in one spelling: a module of the batch of kernel files."""

    path: str
    """Its real path."""
    shown: str
    """The path as text."""
    part: int = -1
    """Its number in the batch."""
    noticed: tuple[Diagnostic, ...] = ()
    fault: tuple[str, str] | None = None
    """Code and message of why there is nothing in the batch."""


@dataclass
class KernelFiles:
    """Reads kernel files into one batch, whose text is interned in the pools of the batch that asks.

    A file is known by its real path, size and time: it is read once, however many modules name it.
    """

    pools: Pools
    parts: list[assemble.Part] = field(default_factory=list[assemble.Part])
    _known: dict[tuple[str, int, int, int], KernelFile] = field(
        default_factory=dict[tuple[str, int, int, int], KernelFile]
    )
    _texts: dict[tuple[str, int, int], "str | FormatError"] = field(
        default_factory=dict[tuple[str, int, int], "str | FormatError"]
    )

    def get(self, path: str, version: int) -> KernelFile:
        """Return a file in the spelling of a version.

        Parameters
        ----------
        path
            Its real path.
        version
            1, or any other number for 2.
        """
        shown = content.shown(path)
        try:
            status = Path(path).stat()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return _damaged(path, FormatError(f"{reason[:1].lower()}{reason[1:]}", path=shown))
        identity = path, status.st_size, status.st_mtime_ns
        key = (*identity, OLD if version == OLD else NEW)
        if key not in self._known:
            if identity not in self._texts:
                self._texts[identity] = read_text(path, shown)
            text = self._texts[identity]
            read = isinstance(text, str)
            self._known[key] = self._read(path, shown, text, key[3]) if read else _damaged(path, text)
        return self._known[key]

    def _read(self, path: str, shown: str, text: str, version: int) -> KernelFile:
        begins = {table: sum(part.lengths[table] for part in self.parts) for table in schema.STORED}
        try:
            with bir_json.no_collector():
                document = json_text.parse(text, shown)
                if isinstance(document.value, dict) and _version(document.value) != version:
                    convert(document.value, version)
                part, noticed = bir_json.read_parsed(
                    self.pools,
                    document,
                    shown,
                    bir_json.stem(shown),
                    len(self.parts),
                    begins,
                    surrogates=bir_json.may_hold_surrogates(text),
                )
        except FormatError as error:
            return _damaged(path, error)
        except NotConvertibleError as error:
            what = f"version {version}, which the module has, has no spelling for its `{error.path}`"
            return _refused(path, shown, f"{what}: {error.reason}")
        if not part.lengths["functions"]:
            return _damaged(path, FormatError("it has no function", path=shown))
        if part.lengths["queues"]:
            what = "it has DMA queues, for which a kernel has no place; take the file from before lowering"
            return _refused(path, shown, what)
        self.parts.append(part)
        return KernelFile(path, shown, len(self.parts) - 1, tuple(replace(row, module_id=None) for row in noticed))

    def batch(self) -> IR:
        """Return the batch of all files read so far."""
        return IR(assemble.tables_of(self.parts), self.pools)

    def forget_texts(self) -> None:
        """Let go of the text of the files."""
        self._texts.clear()


def read_text(path: str, shown: str) -> str | FormatError:
    """Return the text of a file, or what is wrong with it."""
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - a pipe would be waited for
            raise FormatError("it is no file", path=shown)
        return content.decode(content.read_bytes(path, shown), shown)
    except FormatError as error:
        return error


def _damaged(path: str, error: FormatError) -> KernelFile:
    reason = error.message.removeprefix("cannot be read: ")
    fault = "kernel_file_damaged", f"the kernel file {error.place} cannot be read: {reason}"
    return KernelFile(path, error.path or "", fault=fault)


def _refused(path: str, shown: str, what: str) -> KernelFile:
    return KernelFile(path, shown, fault=("not_supported", f"the kernel file {shown} cannot be taken over: {what}"))


def _version(document: dict[str, Any]) -> int:
    return OLD if document.get("version") == OLD else NEW
