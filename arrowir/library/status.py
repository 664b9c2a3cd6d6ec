"""How a kernel ends: a status, and the exception that carries one."""

from dataclasses import dataclass

from arrowir.diagnostics import ArrowIRError


@dataclass(frozen=True, slots=True)
class Status:
    """What a kernel says of itself after its steps (rule B2).

    Parameters
    ----------
    ok
        Whether it has done what it should.
    message
        What is wrong, for a person.
    code
        The diagnostic's code where it is not ok.
    """

    ok: bool = True
    message: str = ""
    code: str = "kernel_failed"


OK = Status()


class KernelError(ArrowIRError):
    """A kernel cannot do what a call-site asks for; `status` says why.

    Parameters
    ----------
    code
        A registered code, `kernel_shape_mismatch` for instance; one of one's own kernel is ``"kernel_failed"``.
    message
        What was found and what was expected.
    """

    def __init__(self, code: str, message: str) -> None:
        self.status = Status(False, message, code)
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return KernelError, (self.status.code, self.status.message)


def too_large(what: str, limit: int) -> KernelError:
    """Return the error for a body that would be too large (rule O6); `what` says how much it would have."""
    return KernelError(
        "too_many_instructions",
        f"the body would have {what}, more than the {limit:,} instructions that it may have; "
        "use larger tiles, or cut the call-site into several",
    )
