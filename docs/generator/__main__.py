"""Write the generated parts of the documentation, or check them."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from arrowir import passes
from arrowir.passes.options import options_of
from arrowir.passes.pipeline import DEFAULT
from docs.generator import api, codes, coverage, examples, library, mutations, picture, rules, stages, tables, verifier

ROOT = Path(__file__).parents[2]

WHOLE: dict[str, Callable[[], str]] = {
    "docs/pictures/tables.svg": picture.svg,
    "docs/reference/tables.md": tables.tables_page,
    "docs/reference/vocabularies.md": tables.vocabularies_page,
    "docs/reference/diagnostics.md": codes.page,
    "docs/reference/api.md": api.page,
    "docs/reference/rules.md": rules.page,
    "docs/reference/simulator-coverage.md": coverage.page,
    "docs/reference/verifier-rules.md": verifier.page,
    "docs/reference/library-kernels.md": library.page,
}
"""Files that are generated from end to end."""

_REGION = re.compile(r"(<!-- generated: ([^>]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """Yield the pages that people write, some of which have generated parts or examples."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if str(path.relative_to(ROOT)) not in WHOLE:
            yield path


def options(name: str) -> str:
    """Return the options of a pass as a table."""
    lines = ["| option | type | default |", "|---|---|---|"]
    for option in options_of(passes.get(name)):
        default = "null" if option.default is None else option.default
        kind = option.type_text.replace("|", "\\|")
        lines.append(f"| `{option.name}` | `{kind}` | `{default}` |")
    return "\n".join(lines)


def order() -> str:
    """Return the default pipeline as a table."""
    lines = ["| order | pass | options | in this version |", "|---|---|---|---|"]
    for step in DEFAULT:
        condition = [f"if {step.condition}"] if step.condition else []
        chosen = ", ".join([*(f"`{k}={v}`" for k, v in step.options.items()), *condition])
        name = f"[`{step.name}`]({step.name}.md)" if step.available else f"`{step.name}`"
        lines.append(f"| {step.order} | {name} | {chosen} | {'yes' if step.available else 'left out'} |")
    return "\n".join(lines)


REGIONS: dict[str, Callable[..., str]] = {
    "codes": codes.table,
    "corruption": verifier.corruption,
    "members": tables.members_table,
    "mutations": mutations.table,
    "options": options,
    "order": order,
    "levels": verifier.levels,
    "stages": stages.table,
    "rules": lambda *letters: rules.table([r for letter in letters for r in rules.of_group(letter)]),
}
"""Generated parts of pages, by name; what follows the name are arguments."""


def filled(page: str) -> str:
    """Return a page with its generated parts made anew."""

    def made(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{REGIONS[name](*arguments)}\n\n{match[4]}"

    return _REGION.sub(made, page)


def texts(*, run: bool = True) -> Iterator[tuple[Path, str]]:
    """Yield every file of the documentation that has generated parts, with the text that it should have."""
    for name, make in WHOLE.items():
        yield ROOT / name, make()
    for path in pages():
        page = filled(path.read_text(encoding="utf-8"))
        yield path, examples.refreshed(page, str(path)) if run else page


def main(arguments: list[str] | None = None) -> int:
    """Write or check; the exit code is 1 when a check finds something."""
    parser = argparse.ArgumentParser(prog="python -m docs.generator", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something is out of date")
    check = parser.parse_args(arguments).check
    stale: list[Path] = []
    for path, text in texts():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for path in stale:
        sys.stdout.write(f"{'out of date' if check else 'written'}: {path}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
