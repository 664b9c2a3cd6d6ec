"""The page of public names: signature and first line of the docstring of each."""

import ast
import dataclasses
import inspect
import sys
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import arrowir
from arrowir import passes, schema

MODULES: tuple[tuple[str, str], ...] = (
    ("arrowir", "The package itself: `import arrowir as air`."),
    ("arrowir.passes", "`air.passes`: passes, by name and as classes, and the pipeline."),
    ("arrowir.library", "`air.library`: library kernels, and what makes one."),
    ("arrowir.build", "`air.build`: modules made by hand."),
    ("arrowir.simulate", "`air.simulate(ir, inputs)` runs a module; the package is the function `simulate`."),
    ("arrowir.verify", "`air.verify(ir)` says what is wrong; the package is the function `verify`."),
    ("arrowir.analyse.footprints", "Footprints as arrays, for analyses of one's own."),
    ("arrowir.listing", "The readable listing, with more to choose than `ir.text`."),
    ("arrowir.edit", "For passes: rows that move."),
    ("arrowir.batches", "Batches put together and taken apart."),
    ("arrowir.runs", "For passes: runs of rows."),
    ("arrowir.formats.bir_json", "BIR JSON; `air.read` and the methods of a batch call these."),
    ("arrowir.formats.parquet", "Parquet data sets; likewise."),
    ("arrowir.diagnostics", "Codes and rows of diagnostics."),
    ("arrowir.vocabulary", "Closed lists of BIR, see [vocabularies](vocabularies.md)."),
    ("arrowir.testing.assertions", "For tests: whether a batch holds together."),
    ("arrowir.testing.strategies", "For tests: Hypothesis strategies of modules. Needs `hypothesis`."),
    ("arrowir.testing.workloads", "Modules in the shape of real ones, of any size."),
)
"""What is public, in the order of the page."""

NAMES: dict[str, tuple[str, ...]] = {
    "arrowir.listing": ("text",),
    "arrowir.analyse.footprints": ("Footprints", "measure"),
    "arrowir.edit": ("Edit",),
    "arrowir.batches": ("concat", "select_modules"),
    "arrowir.runs": ("Runs",),
    "arrowir.formats.bir_json": ("read_json", "read_documents", "to_json", "write_json"),
    "arrowir.formats.parquet": ("read_parquet", "write_parquet", "write_frame", "is_dataset"),
    "arrowir.diagnostics": ("CODES", "Code", "Diagnostic", "make", "table"),
    "arrowir.vocabulary": ("VOCABULARIES", "Vocabulary", "ARCHES", "Arch", "arch", "Key", "opcode_keys", "family"),
    "arrowir.testing.assertions": ("assert_valid",),
    "arrowir.testing.workloads": ("module", "kernel", "call_sites", "preset", "write"),
}
"""Public names of modules that have no `__all__`."""

METHODS = (
    "IR",
    "PassResult",
    "RunResult",
    "CheckedRunResult",
    "Equivalence",
    "Simulation",
    "Diff",
    "Pass",
    "ModuleBuilder",
    "FunctionBuilder",
    "Body",
    "Tensor",
    "Edit",
    "Runs",
)
"""Classes whose public methods and properties are listed as well."""


ABOUT = """\
Of arrowir {}: public names, how each is called, and what it does. `help(name)` shows parameters, errors and
examples. What does not stand here is an inner matter and may change."""


def names_of(module: str) -> tuple[str, ...]:
    """Return the public names of a module."""
    listed = NAMES.get(module) or import_module(module).__all__
    return tuple(name for name in listed if name != "__version__")


def summary(thing: object) -> str:
    """Return the first paragraph of a docstring, without its full stop."""
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return text.split("\n\n")[0].replace("\n", " ").replace("``", "`").removesuffix(".")


# -- signatures, from the code ----


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))


def _definition(thing: object) -> ast.stmt | None:
    """Return the definition of a function or class; found by name, so that it fits whatever the file says now."""
    found: ast.stmt | ast.Module = _tree(getattr(thing, "__module__", ""))
    for name in getattr(thing, "__qualname__", "").split("."):
        inside = found.body if isinstance(found, ast.Module | ast.ClassDef) else []
        named = [n for n in inside if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
        if not named:
            return None
        found = named[-1]
    return found if isinstance(found, ast.stmt) else None


def _annotation(node: ast.expr | None) -> str:
    """Return an annotation as a reader wants it, without quotes around what is resolved later."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if node is None else ast.unparse(node)


def _arguments(arguments: ast.arguments, *, method: bool) -> str:
    """Return the parameters of a function, as the code has them."""
    shown: list[str] = []
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    for number, (argument, default) in enumerate(zip(plain, [*defaults, *arguments.defaults], strict=True)):
        shown.append(_argument(argument, default))
        if number + 1 == len(arguments.posonlyargs):
            shown.append("/")
    shown = shown[1:] if method else shown
    if arguments.vararg is not None:
        shown.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += [_argument(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        shown.append(f"**{_argument(arguments.kwarg, None)}")
    return ", ".join(shown)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {_annotation(argument.annotation)}" if argument.annotation is not None else ""
    between = " = " if annotation else "="
    return argument.arg + annotation + (f"{between}{ast.unparse(default)}" if default is not None else "")


def _options(cls: type) -> str:
    return ", ".join(_field(cls, f.name) for f in dataclasses.fields(cls) if f.init)


def _field(cls: type, name: str) -> str:
    """Return a field of a dataclass like a parameter."""
    for owner in cls.__mro__[:-1]:
        found = _definition(owner)
        for node in found.body if isinstance(found, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                value = "" if node.value is None else ast.unparse(node.value)
                default = " = ..." if value.startswith("field(") else f" = {value}" if value else ""
                return f"{name}: {_annotation(node.annotation)}{default}"
    return name


def signature(name: str, thing: object) -> str:
    """Return how something is called, with annotations and defaults as they stand in the code."""
    if isinstance(thing, type):
        if issubclass(thing, Exception):
            return name
        if dataclasses.is_dataclass(thing):
            return f"{name}({_options(thing)})"
        made = vars(thing).get("__init__")
        found = None if made is None else _definition(made)
        return f"{name}({_arguments(found.args, method=True)})" if isinstance(found, ast.FunctionDef) else name
    found = None if isinstance(thing, property | cached_property) else _definition(thing)
    if not isinstance(found, ast.FunctionDef):
        return name
    method = "." in getattr(thing, "__qualname__", "")
    returns = f" -> {_annotation(found.returns)}" if found.returns is not None else ""
    return f"{name}({_arguments(found.args, method=method)}){returns}"


# -- entries ----


def _members(cls: type) -> list[tuple[str, object]]:
    """Return the public methods and properties of a class, without the frames of tables."""
    found: list[tuple[str, object]] = []
    for name, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        plain = getattr(plain, "__wrapped__", plain)
        listed = inspect.isfunction(plain) or isinstance(plain, property | cached_property)
        if listed and not name.startswith("_") and not (cls is arrowir.IR and name in schema.BY_NAME):
            found.append((name, plain))
    return found


def _entry(module: str, name: str, shown: set[object]) -> list[str]:
    thing = getattr(import_module(module), name)
    if inspect.ismodule(thing) and name in passes.BUILT_IN:
        cls = passes.get(name)
        what = f"Run [`{cls.__name__}`](../passes/{name}.md) over a batch"
        return [f"- `{name}(ir: IR, *, strict: bool = False, {_options(cls)}) -> PassResult`: {what}"]
    if inspect.ismodule(thing):
        return [f"- `{name}`: {summary(thing)}"]
    if not callable(thing):
        return [f"- `{name}`: {_below(module, name)}"]
    lines = [f"- `{signature(name, thing)}`: {summary(thing)}"]
    if isinstance(thing, type) and name in METHODS and thing not in shown:
        shown.add(thing)
        if thing is arrowir.IR:
            lines.append(f"    - {', '.join(f'`{t}`' for t in schema.BY_NAME)}: Polars frames, one per table")
        lines += [f"    - `{signature(n, m)}`: {summary(m)}" for n, m in _members(thing)]
    return lines


def _below(module: str, name: str) -> str:
    """Return the docstring that stands below the assignment of a name."""
    body = _tree(module).body
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets) and isinstance(after, ast.Expr):
            return str(ast.literal_eval(after.value)).split("\n\n")[0].replace("\n", " ").removesuffix(".")
    return "see [diagnostics](diagnostics.md)" if name == "CODES" else ""


def page() -> str:
    """Return the page of public names."""
    parts = [
        "# Python names",
        ABOUT.format(arrowir.__version__),
    ]
    shown: set[object] = set()
    for module, about in MODULES:
        entries = [line for name in names_of(module) for line in _entry(module, name, shown)]
        parts += [f"## {module}", about, "\n".join(entries)]
    return "\n\n".join(parts) + "\n"
