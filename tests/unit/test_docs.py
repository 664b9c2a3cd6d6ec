"""The documentation: what it shows runs, what is generated is up to date, and nothing is left out."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import arrowir as air
from arrowir import diagnostics, passes, schema
from arrowir.cli import parser
from docs.generator import __main__ as generator
from docs.generator import api, codes, examples, picture, rules, stages
from docs.generator.tables import MORE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = list(generator.pages())
GENERATED = [ROOT / name for name in generator.WHOLE if name.endswith(".md")]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# -- up to date ----

STALE = "run `make docs`, and read what it changed before you keep it"


@pytest.mark.parametrize("name", generator.WHOLE)
def test_a_generated_file_is_up_to_date(name: str) -> None:
    assert read(ROOT / name) == generator.WHOLE[name](), f"`{name}` is out of date; {STALE}"


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_the_examples_of_a_page_run_and_print_what_stands_below_them(path: Path) -> None:
    page = read(path)
    assert examples.refreshed(generator.filled(page), str(path)) == page, f"`{named(path)}` is out of date; {STALE}"


def test_check_writes_nothing_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "sub" / "page.md"
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(generator, "texts", lambda: [(page, "new")])
    assert generator.main(["--check"]) == 1
    assert not page.exists()
    assert "out of date: sub/page.md" in capsys.readouterr().out
    assert generator.main([]) == 0
    assert read(page) == "new"
    assert generator.main(["--check"]) == 0


# -- the runner of examples ----


def test_an_output_is_what_the_block_above_prints_now() -> None:
    page = "```python\nx = 20\nprint('a ')\nx + 1\n```\n\n```text\nold\n```\nend\n"
    assert "```text\na\n21\n```\nend" in examples.refreshed(page, "page")


def test_blocks_of_a_page_share_their_names_and_other_text_stays() -> None:
    page = "# t\n```python\nx = 1\n```\nwords\n```python\nx\n```\n```text\n```\n\n```text\nkept\n```\n"
    assert examples.refreshed(page, "page") == page.replace("```text\n```", "```text\n1\n```", 1)


def test_an_example_that_raises_leads_to_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        examples.refreshed("one\ntwo\n```python\nx = 1\n1 / 0\n```\n", "page")
    assert caught.traceback[-1].lineno + 1 == 5


def test_commands_are_run_where_the_data_is() -> None:
    page = "```console\narrowir passes --json  # all\n```\n```text\n```\n"
    assert '"unroll"' in examples.refreshed(page, "page")
    with pytest.raises(ValueError, match="not `rm`"):
        examples.refreshed(page.replace("arrowir passes", "rm x"), "page")


def test_passes_of_examples_do_not_stay_registered() -> None:
    assert "air.passes.register" in read(DOCS / "writing-a-pass.md")
    examples.refreshed(read(DOCS / "writing-a-pass.md"), "page")
    assert passes.names() == list(passes.BUILT_IN)


# -- shell ----


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_shell_examples_are_commands_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    for block in examples.blocks(read(path)):
        if block.language != "console":
            continue
        if bash := shutil.which("bash"):
            assert subprocess.run([bash, "-n"], input=block.body.encode(), check=False).returncode == 0, block.body
        for command, *words in examples.commands(block.body):
            if command.endswith("arrowir"):
                assert parser.parse(words), block.body  # a wrong option ends the process
            elif command == "make":
                assert {word for word in words if "=" not in word} <= targets, block.body
            elif "-m" in words and "python" in command:
                assert find_spec(words[words.index("-m") + 1]), block.body


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(SystemExit):
        parser.parse(["run", "x", "-o", "y", "--no-such-option"])


# -- nothing is left out ----


@pytest.mark.parametrize("code", diagnostics.CODES)
def test_every_code_is_documented_with_what_to_do(code: str) -> None:
    page = read(DOCS / "reference" / "diagnostics.md")
    assert f'<span id="{code}"></span>`{code}`' in page
    rule_names, advice = codes.ADVICE[code]
    assert advice
    assert set(rule_names.split(", ")) <= rules.RULES.keys()
    for name in set(codes.makers().get(code, ())) & set(passes.BUILT_IN):
        assert f"#{code})" in read(DOCS / "passes" / f"{name}.md"), f"`{code}` is not on the page of `{name}`"


@pytest.mark.parametrize(
    "module", ["arrowir", "arrowir.passes", "arrowir.library", "arrowir.build", "arrowir.testing.strategies"]
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    page = read(DOCS / "reference" / "api.md")
    part = page[page.index(f"\n## {module}\n") :].split("\n## ")[1]
    missing = [n for n in import_module(module).__all__ if not re.search(rf"^- `{n}\b", part, re.MULTILINE)]
    assert missing in ([], ["__version__"])


def test_every_method_of_a_batch_is_in_the_reference() -> None:
    page = read(DOCS / "reference" / "api.md")
    public = [n for n in dir(air.IR) if not n.startswith("_")]
    assert [n for n in public if f"`{n}`" not in page and f"`{n}(" not in page] == []


def test_signatures_are_those_of_the_code() -> None:
    assert api.signature("concat", air.concat) == "concat(batches: Sequence[IR]) -> IR"
    assert api.signature("FormatError", air.FormatError) == "FormatError"
    assert api.signature("select", air.IR.select).startswith("select(modules: Sequence[int] |")
    assert api.signature("Unroll", passes.Unroll) == (
        "Unroll(shard_id: int = 0, max_instructions: int = MAX_INSTRUCTIONS)"
    )


def test_every_column_and_vocabulary_is_in_the_reference() -> None:
    page, lists = read(DOCS / "reference" / "tables.md"), read(DOCS / "reference" / "vocabularies.md")
    for table in schema.TABLES:
        part = page.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        assert [c.name for c in table.columns] == re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
    for anchor in re.findall(r"vocabularies\.md#(\w+)", page):
        assert f"\n## {anchor}\n" in lists


def test_every_member_that_other_tables_hold_is_said_to_be_somewhere() -> None:
    for table in schema.TABLES:
        listed = {member for member, _ in MORE.get(table.name, [])} | {c.key for c in table.stored}
        assert set(table.children) - {"DynamicForLoopAxis"} <= listed, table.name


def test_every_pass_has_a_page() -> None:
    for name in passes.BUILT_IN:
        page = read(DOCS / "passes" / f"{name}.md")
        assert f"# {name}\n" in page
        for part in ("Before and after", "In the tables", "Options", "Diagnostics", "Rules"):
            assert f"\n## {part}\n" in page, name


def test_rules_that_the_code_names_are_listed_and_have_tests() -> None:
    named_in = re.compile(r"\brules? ((?:[A-Z]\d+(?:, | to | and )?)+)")
    for path in sorted((ROOT / "arrowir").rglob("*.py")):
        for found in named_in.findall(read(path)):
            assert set(re.findall(r"[A-Z]\d+", found)) <= rules.RULES.keys(), f"{named(path)}: rules {found}"
    assert set(rules.RULES) - rules.files_by_rule().keys() - rules.LIMITS.keys() == set()


@pytest.mark.parametrize("stage", stages.STAGES, ids=lambda stage: stage.letter)
def test_what_the_table_of_stages_names_exists(stage: stages.Stage) -> None:
    assert stage.rules
    assert set(stage.rules) <= rules.RULES.keys()
    assert stage.operations
    for operation in stage.operations:
        module, _, path = operation.partition(":")
        thing: object = import_module(f"arrowir.{module}")
        for name in path.split("."):
            thing = getattr(thing, name)
        assert callable(thing), operation
    assert stage.tests
    for test in stage.tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", read(ROOT / "tests" / file), re.MULTILINE), f"there is no test `{test}`"
    # Each rule of a stage is named by one of its tests.
    named_by = {word.upper() for test in stage.tests for word in test.partition("::test_")[2].split("_")}
    assert set(stage.rules) <= named_by, set(stage.rules) - named_by


def test_the_table_of_stages_is_complete_and_on_the_page() -> None:
    assert [stage.letter for stage in stages.STAGES if len(stage.letter) == 1] == list("abcdefgh")
    assert len({stage.letter for stage in stages.STAGES}) == len(stages.STAGES)
    assert stages.table() in read(DOCS / "passes" / "inline_nki_kernel.md")


# -- pages as pages ----


def nav() -> list[str]:
    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        items = node.values() if isinstance(node, dict) else node
        return [leaf for item in items for leaf in leaves(item)]

    return leaves(yaml.safe_load(read(ROOT / "mkdocs.yml"))["nav"])


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(nav()) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", [*PAGES, *GENERATED], ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    page = re.sub(r"```.*?```|`[^`\n]*`", "", read(path), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        if not target.startswith(("http://", "https://", "#")):
            assert (path.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("path", [*PAGES, *GENERATED], ids=named)
def test_pages_name_no_place_of_one_machine(path: Path) -> None:
    assert re.findall(r"(?:/home|/root|/work|/Users)/\S*", read(path)) == []


def test_the_picture_has_every_table_and_no_two_overlap() -> None:
    placed = picture.boxes()
    assert placed.keys() == schema.BY_NAME.keys()
    boxes = [(b.x, b.y, b.x + picture.WIDTH, b.y + b.height) for b in placed.values()]
    for number, (x0, y0, x1, y1) in enumerate(boxes):
        assert not any(x0 < c and a < x1 and y0 < d and b < y1 for a, b, c, d in boxes[:number])
    drawn = ET.fromstring(picture.svg())
    texts = ["".join(t.itertext()) for t in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert set(placed) <= set(texts)
    # Wide letters of a monospaced font are six tenths of its size.
    assert max(len(t) for t in texts if t not in placed) * 12 * 0.6 <= picture.WIDTH - 16


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr.decode()
    assert (tmp_path / "site" / "reference" / "tables.html").exists()
    assert not list((tmp_path / "site").rglob("*.py"))
