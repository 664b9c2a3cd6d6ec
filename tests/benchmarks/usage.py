"""What a run uses beside time on the clock: memory and processor time, of the process or of its children."""

import ctypes
import gc
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024


def settle() -> None:
    """Give memory that nothing uses back to the system, so that a run's own use of it is seen."""
    gc.collect()
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
        if trim is not None:
            trim(0)


class Peak:
    """The most memory that the process holds above what it holds now.

    Linux can start its high-water mark anew. Elsewhere the mark is that of the whole life of the process, and says
    something only when the process never held as much before.
    """

    def __init__(self) -> None:
        try:
            _CLEAR.write_text("5")
            self._base = _kilobytes("VmRSS")
        except OSError:
            self._base = None
            self._lifetime = _lifetime(resource.RUSAGE_SELF)

    def bytes(self) -> int | None:
        """Return the peak since the object was made; None when it is not known."""
        if self._base is not None:
            return max(0, _kilobytes("VmHWM") - self._base) * 1024
        return (_lifetime(resource.RUSAGE_SELF) - self._lifetime) or None


def of_children() -> int:
    """Return the most memory that any one child process held, of those that have ended."""
    return _lifetime(resource.RUSAGE_CHILDREN)


def processor_seconds(*, children: bool) -> float:
    """Return the processor time used so far, on all threads together; of child processes once they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _lifetime(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * _RUSAGE_UNIT


def _kilobytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"{_STATUS} has no `{field}`")
