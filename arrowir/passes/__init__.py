"""Passes by the compiler's registered names (rule P4), imported when they are first used.

`arrowir.passes.unroll(ir)` runs one pass, and `arrowir.passes.Unroll` is its class. A pass lives in the module of its
name, so that name has to be both: the modules of passes can be called.

Examples
--------
>>> import arrowir as air
>>> air.passes.names()
['runtime_memory_reservation', 'inline_nki_kernel', 'unroll', ...]
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from arrowir.ir import IR
    from arrowir.passes.base import Pass, PassResult, Plan
    from arrowir.passes.coalesce_multichannel_cc_ops import CoalesceMultichannelCcOps
    from arrowir.passes.constant_propagate import ConstantPropagate
    from arrowir.passes.inline_bir_kernel import InlineBirKernel
    from arrowir.passes.inline_nki_kernel import InlineNkiKernel
    from arrowir.passes.lower_generic_indirect import LowerGenericIndirect
    from arrowir.passes.pipeline import RunResult, Step, default_steps, run
    from arrowir.passes.runtime_memory_reservation import RuntimeMemoryReservation
    from arrowir.passes.translate_nki_ast_to_bir import TranslateNkiAstToBir
    from arrowir.passes.unroll import Unroll

    def runtime_memory_reservation(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `RuntimeMemoryReservation` with these options."""
        ...

    def inline_nki_kernel(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `InlineNkiKernel` with these options."""
        ...

    def unroll(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `Unroll` with these options."""
        ...

    def inline_bir_kernel(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `InlineBirKernel` with these options."""
        ...

    def lower_generic_indirect(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `LowerGenericIndirect` with these options."""
        ...

    def coalesce_multichannel_cc_ops(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `CoalesceMultichannelCcOps` with these options."""
        ...

    def constant_propagate(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `ConstantPropagate` with these options."""
        ...

    def translate_nki_ast_to_bir(ir: IR, *, strict: bool = False, **options: Any) -> PassResult:
        """Run `TranslateNkiAstToBir` with these options."""
        ...


__all__ = [
    "CoalesceMultichannelCcOps",
    "ConstantPropagate",
    "InlineBirKernel",
    "InlineNkiKernel",
    "LowerGenericIndirect",
    "Pass",
    "PassResult",
    "Plan",
    "RunResult",
    "RuntimeMemoryReservation",
    "Step",
    "TranslateNkiAstToBir",
    "Unroll",
    "coalesce_multichannel_cc_ops",
    "constant_propagate",
    "default_steps",
    "get",
    "inline_bir_kernel",
    "inline_nki_kernel",
    "lower_generic_indirect",
    "make",
    "names",
    "register",
    "run",
    "runtime_memory_reservation",
    "translate_nki_ast_to_bir",
    "unroll",
]

BUILT_IN: dict[str, str] = {
    "runtime_memory_reservation": "RuntimeMemoryReservation",
    "inline_nki_kernel": "InlineNkiKernel",
    "unroll": "Unroll",
    "inline_bir_kernel": "InlineBirKernel",
    "coalesce_multichannel_cc_ops": "CoalesceMultichannelCcOps",
    "lower_generic_indirect": "LowerGenericIndirect",
    "constant_propagate": "ConstantPropagate",
    "translate_nki_ast_to_bir": "TranslateNkiAstToBir",
}
"""Class of each pass of this package; its module has the name of the pass."""

_registered: "dict[str, type[Pass]]" = {}
_P = TypeVar("_P", bound="type[Pass]")


def names() -> list[str]:
    """Return the names of the registered passes: those of the package, then those of users in the order they came."""
    return list({**BUILT_IN, **_registered})


def get(name: str) -> "type[Pass]":
    """Return the class of a registered pass.

    Parameters
    ----------
    name
        A registered name.

    Raises
    ------
    OptionError
        If it is no text, or there is none of that name; the message has the compiler's text and the names nearest to it
        (rule P1).

    Examples
    --------
    >>> import arrowir as air
    >>> air.passes.get("unroll").__name__
    'Unroll'
    >>> air.passes.get("unrol")
    Traceback (most recent call last):
    arrowir.diagnostics.OptionError: Backend pass: unrol is not registered! did you mean `unroll`?
    """
    from arrowir import arguments

    arguments.text(name, "the name of a pass")
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        return getattr(import_module(f"{__name__}.{name}"), BUILT_IN[name])
    from difflib import get_close_matches

    from arrowir.diagnostics import OptionError

    if near := get_close_matches(name, names(), 3):
        hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?"
    else:
        hint = f"registered are {_quoted(names())}"
    raise OptionError(f"Backend pass: {name} is not registered! {hint}")


def make(name: str, /, **options: Any) -> "Pass":
    """Return a registered pass with some options set; names and types of the options are checked.

    Parameters
    ----------
    name
        A registered name.
    options
        Options of the pass; the others have their defaults.

    Raises
    ------
    OptionError
        If there is no such pass, if it has no such option, or if a value is not of the option's type.

    Examples
    --------
    >>> import arrowir as air
    >>> air.passes.make("inline_nki_kernel", allocated=True).allocated
    True
    """
    from arrowir.passes.options import configured

    return configured(get(name)(), options)


def register(cls: _P, *, replace: bool = False) -> _P:
    """Add a pass of one's own to the registry, so that pipelines and the command line find it by name.

    Parameters
    ----------
    cls
        A frozen dataclass derived from `Pass` with a `name`; its fields are the options and have defaults.
    replace
        Take the place of a registered pass of that name.

    Returns
    -------
    type
        The class, so that this serves as a decorator.

    Raises
    ------
    OptionError
        If it is no pass, or its name is taken by another one.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import arrowir as air
    >>> @air.passes.register
    ... @dataclass(frozen=True)
    ... class Nothing(air.passes.Pass):
    ...     name = "nothing"
    ...     def plan(self, ir, active):
    ...         return air.passes.Plan(0 * active.astype("int8"))
    >>> "nothing" in air.passes.names()
    True
    >>> air.passes.unregister("nothing")
    """
    from dataclasses import MISSING

    from arrowir.diagnostics import OptionError
    from arrowir.passes.base import Pass
    from arrowir.passes.options import options_of

    if not (isinstance(cls, type) and issubclass(cls, Pass) and isinstance(getattr(cls, "name", None), str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"{cls!r} is no pass: derive it from `arrowir.passes.Pass` and give it a `name`")
    name = cls.name
    if not name.isidentifier():
        raise OptionError(f"`{name}` cannot name a pass: it must be an identifier, as in `--set name.option=value`")
    known = _registered.get(name)
    # A notebook cell that runs again defines its class again: that is no clash.
    same = known is not None and (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if (known is not None or name in BUILT_IN) and not (same or replace):
        raise OptionError(f"a pass named `{name}` is registered already; choose another name, or give `replace=True`")
    if lacking := [option.name for option in options_of(cls) if option.default is MISSING]:
        raise OptionError(f"pass `{name}` has options without a default: {_quoted(lacking)}; give each one")
    _registered[name] = cls
    return cls


def unregister(name: str) -> None:
    """Take back `register`; a pass of the package that was replaced comes to light again."""
    _registered.pop(name, None)


def _quoted(texts: list[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


_CLASSES = {cls: name for name, cls in BUILT_IN.items()}
_ELSEWHERE = {
    "Pass": "base",
    "PassResult": "base",
    "Plan": "base",
    "RunResult": "pipeline",
    "Step": "pipeline",
    "default_steps": "pipeline",
    "run": "pipeline",
}


def __getattr__(name: str) -> object:
    """Import what is asked for; a pass of the user's is a function of the batch as well."""
    if name in _CLASSES:
        return get(_CLASSES[name])
    if name in _ELSEWHERE:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    if name in BUILT_IN:
        return import_module(f"{__name__}.{name}")
    if name in _registered:
        return _run_alone(name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`; registered passes are {_quoted(names())}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_registered})


def _run_alone(name: str) -> Any:
    def run_pass(ir: "IR", *, strict: bool = False, **options: Any) -> "PassResult":
        return make(name, **options)(ir, strict=strict)

    run_pass.__name__ = run_pass.__qualname__ = name
    run_pass.__doc__ = get(name).__doc__
    return run_pass


class _PassModule(ModuleType):
    """The module of a pass, which runs the pass when it is called."""

    def __call__(self, ir: "IR", *, strict: bool = False, **options: Any) -> "PassResult":
        """Run the pass over a batch.

        Parameters
        ----------
        ir
            The batch; it is not changed.
        strict
            Raise on the first error row.
        options
            Options of the pass.

        Returns
        -------
        PassResult
            The new batch, the diagnostics, a status per module.

        Raises
        ------
        OptionError
            For an unknown option, or a value of the wrong type.
        PassError
            With `strict`, on an error row.
        """
        return make(self.__name__.rpartition(".")[2], **options)(ir, strict=strict)

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, (self.__name__,)


class _Package(ModuleType):
    """The class of this package, to which the import system assigns submodules: there a pass becomes callable."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in BUILT_IN and type(value) is ModuleType:
            value.__class__ = _PassModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
