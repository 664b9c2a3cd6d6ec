"""The architecture as a check: which module may import which, how long files are, what an import costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 600

# From the bottom up; a component is a module or package right below `arrowir`. Imports go to lower layers.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"schema", "vocabulary", "diagnostics", "arguments"}),
    frozenset({"arrowir_kernels"}),
    frozenset(
        {
            "store",
            "layouts",
            "extras",
            "arrow",
            "frames",
            "derived",
            "attributes",
            "ir",
            "runs",
            "batches",
            "edit",
            "names",
            "expressions",
            "exact",
        }
    ),
    frozenset({"formats", "passes", "library", "verify", "simulate", "analyse", "build", "listing", "sql"}),
    frozenset({"batch", "display", "validation"}),
    frozenset({"cli", "__main__"}),
    # For users' tests and ours, over everything and under nothing.
    frozenset({"testing"}),
)
LEVELS = {component: level for level, layer in enumerate(LAYERS) for component in layer}
# These two layers each hold one thing in several files, which may use each other (but not in a circle).
COHESIVE = (0, LEVELS["ir"])
# Elsewhere components of one layer stand side by side and know nothing of each other, these excepted.
SIDEWAYS = {
    ("verify", "analyse"),
    ("library", "build"),
    ("passes", "library"),
    ("simulate", "library"),
    ("build", "formats"),
    ("__main__", "cli"),
}
# `ir` offers what lies above it as methods (`ir.text()`, `ir.write_json()`), by imports inside those methods; results
# of passes have notebook displays in the same way.
FACADE = "ir"
# Rule R7 is about names as they would be written. What is wrong with tables of a user's step is told by `assert_valid`.
LAZY = {
    ("passes", "display"),
    ("analyse", "display"),
    ("passes", "formats"),
    ("passes", "verify"),
    ("passes", "testing"),
}
# The public names, bound lazily to wherever they live.
PUBLIC = "__init__"

HEAVY = ("IPython", "altair", "dask", "distributed", "duckdb", "matplotlib", "numba", "pandas", "rich")


@dataclass(frozen=True)
class Import:
    """One imported module; `lazy` when it is imported inside a function."""

    importer: str
    imported: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f"`{self.importer}` line {self.line} imports `{self.imported}`"


def component(module: str) -> str:
    """Return the part of the architecture that a module belongs to (`passes` for `arrowir.passes.base`)."""
    package, *rest = module.split(".")
    if package == "arrowir":
        return rest[0] if rest else PUBLIC
    return package


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of both packages by dotted name."""
    found: dict[str, Path] = {}
    for folder in (root / "arrowir", root / "kernels" / "arrowir_kernels"):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_typing_only(node: ast.If) -> bool:
    return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports(importer: str, source: str, known: set[str], *, package: bool = False) -> Iterator[Import]:
    """Yield what a module imports, blocks for the type checker alone left out."""

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = node.module or ""
        if node.level:
            parts = importer.split(".")
            parts = parts[: len(parts) - node.level + package]
            base = ".".join([*parts, *base.split(".")] if base else parts)
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            yield submodule if submodule in known else base

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (Import(importer, target, node.lineno, lazy) for target in targets(node))
            return
        if isinstance(node, ast.If) and is_typing_only(node):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in children:
            yield from walk(child, inside)

    yield from walk(ast.parse(source), False)


def ours(module: str) -> bool:
    return module.split(".")[0] in ("arrowir", "arrowir_kernels")


def violation(found: Import) -> str | None:
    """Return why an import of our own breaks the layering, or nothing."""
    importer, imported = component(found.importer), component(found.imported)
    if importer in (imported, PUBLIC):
        return None
    for name in (importer, imported):
        if name not in LEVELS and name != PUBLIC:
            return f"{found}: `{name}` has no layer yet, give it one in `LAYERS`"
    if imported == PUBLIC:
        return f"{found}: import the module that defines the name, not the public package"
    above, below = LEVELS[importer], LEVELS[imported]
    lazily = found.lazy and (importer == FACADE or (importer, imported) in LAZY)
    if below < above or lazily:
        return None
    if below > above:
        return f"{found}: imports run downward only"
    if above in COHESIVE or (importer, imported) in SIDEWAYS:
        return None
    return f"{found}: both stand on one layer"


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Return the modules of one circle of imports, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(edges.get(module, ())):
            if circle := visit(target, [*path, module]):
                return circle
        done.add(module)
        return []

    for module in sorted(edges):
        if circle := visit(module, []):
            return circle
    return []


MODULES = modules(ROOT)
IMPORTS = [
    found
    for name, path in MODULES.items()
    for found in imports(name, path.read_text(encoding="utf-8"), set(MODULES), package=path.stem == PUBLIC)
]


def parse(importer: str, source: str) -> list[Import]:
    return list(imports(importer, source, {"arrowir", "arrowir.ir", "arrowir.passes", "arrowir.passes.base"}))


def test_both_packages_are_seen() -> None:
    assert {"arrowir", "arrowir_kernels"} <= set(MODULES)


def test_imports_run_downward() -> None:
    assert [text for found in IMPORTS if ours(found.imported) and (text := violation(found))] == []


def test_no_circle_of_eager_imports() -> None:
    edges: dict[str, set[str]] = {}
    for found in IMPORTS:
        if not found.lazy and found.imported in MODULES and found.imported != found.importer:
            edges.setdefault(found.importer, set()).add(found.imported)
    assert cycle(edges) == []


def test_compute_kernels_know_numpy_alone() -> None:
    allowed = sys.stdlib_module_names | {"numpy", "arrowir_kernels"}
    wrong = [
        str(found)
        for found in IMPORTS
        if component(found.importer) == "arrowir_kernels"
        and (top := found.imported.split(".")[0]) not in allowed
        and not (found.lazy and top == "numba")
    ]
    assert wrong == []


def test_files_are_short() -> None:
    files = [*MODULES.values(), *sorted((ROOT / "tests").rglob("*.py"))]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES} == {}


def run_python(code: str) -> str:
    """Run code in a new interpreter with this one's path, warnings as errors, and return what it prints."""
    setup = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-W", "error", "-c", setup + code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = f"print(*(name for name in {HEAVY!r} if name in sys.modules))"


def test_importing_arrowir_is_light() -> None:
    assert run_python(f"import arrowir; assert arrowir.__file__\n{LOADED}").split() == []


def test_looking_up_every_public_name_is_light() -> None:
    look_up = "import arrowir; assert [getattr(arrowir, name) for name in arrowir.__all__]"
    assert run_python(f"{look_up}\n{LOADED}").split() == []


def test_a_heavy_import_is_noticed() -> None:
    assert run_python(f"import duckdb\n{LOADED}").split() == ["duckdb"]


def test_imports_are_read_from_source() -> None:
    source = (
        "import numpy as np\n"
        "from typing import TYPE_CHECKING\n"
        "from arrowir import ir, read\n"
        "from . import base\n"
        "from .base import Pass\n"
        "if TYPE_CHECKING:\n    import pandas\n"
        "def late():\n    import numba\n"
    )
    assert [(found.imported, found.line, found.lazy) for found in parse("arrowir.passes.unroll", source)] == [
        ("numpy", 1, False),
        ("typing", 2, False),
        ("arrowir.ir", 3, False),
        ("arrowir", 3, False),
        ("arrowir.passes.base", 4, False),
        ("arrowir.passes.base", 5, False),
        ("numba", 9, True),
    ]


@pytest.mark.parametrize(
    ("importer", "source", "reason"),
    [
        ("arrowir.schema", "import arrowir.ir", "downward"),
        ("arrowir.schema", "def late():\n    import arrowir.ir", "downward"),
        ("arrowir.schema", "import arrowir_kernels.copy_runs", "downward"),
        ("arrowir_kernels.copy_runs", "import arrowir.ir", "downward"),
        ("arrowir.ir", "import arrowir.passes.base", "downward"),
        ("arrowir.analyse.hazards", "import arrowir.verify", "one layer"),
        ("arrowir.passes.unroll", "from arrowir import read", "public package"),
        ("arrowir.passes.unroll", "import arrowir.misc", "no layer"),
    ],
)
def test_a_wrong_import_is_reported(importer: str, source: str, reason: str) -> None:
    (found,) = parse(importer, source)
    assert reason in (violation(found) or "")


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("arrowir.ir", "import arrowir.schema"),
        ("arrowir.ir", "import arrowir.store"),
        ("arrowir.ir", "def text(self):\n    import arrowir.listing"),
        ("arrowir.edit", "import arrowir_kernels.copy_runs"),
        ("arrowir.verify", "import arrowir.analyse"),
        ("arrowir.passes.unroll", "import arrowir.passes.base"),
        ("arrowir.cli", "import arrowir.batch"),
        ("arrowir", "import arrowir.cli"),
    ],
)
def test_a_right_import_is_not_reported(importer: str, source: str) -> None:
    (found,) = parse(importer, source)
    assert violation(found) is None


def test_a_circle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
