"""Notebooks run from top to bottom, and say what they said when they were last looked at."""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(path: Path) -> Any:
    """Run a notebook as a reader would, in its own folder, and return it with the outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    paths = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    client.execute(env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "default"})
    return notebook


def cleaned(notebook: Any) -> Any:
    """Remove what differs from run to run and tells a reader nothing."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def outputs(notebook: Any) -> list[tuple[str, list[Any]]]:
    """Return the source and the outputs of each code cell, without the texts that no reader sees."""
    return [
        (cell.source, [o.get("data", o.get("text", o)) for o in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first_look.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_said(path: Path, request: pytest.FixtureRequest) -> None:
    kept = nbformat.read(path, as_version=4)
    notebook = cleaned(executed(path))  # raises on the first cell that fails
    for cell in notebook.cells:
        assert not any(o.output_type == "stream" and o.name == "stderr" for o in cell.get("outputs", ())), cell.source
    if request.config.getoption("--update-golden"):
        nbformat.write(notebook, path)
        return
    hint = "when the new outputs are right, run pytest with `--update-golden`"
    for (source, now), (_, before) in zip(outputs(notebook), outputs(kept), strict=True):
        assert now == before, f"the output of this cell has changed; {hint}:\n{source}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_as_a_reader_wants_it(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.outputs for cell in code)
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"/(?:home|root|work|tmp|Users)/", text) == []
    assert "0x" not in re.sub(r'"id": "[^"]*"', "", text)  # addresses of objects
    assert notebook.cells[0].source.startswith("# ")
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= len(code) * 0.8


def test_the_first_look_answers_its_questions() -> None:
    kept = outputs(nbformat.read(ROOT / "notebooks" / "first_look.ipynb", as_version=4))
    plain = {source: "".join(str(o) for o in shown) for source, shown in kept}

    def answer(fragment: str) -> str:
        (found,) = [text for source, text in plain.items() if fragment in source]
        return found

    assert "Matmult" in answer("select engine, opcode")
    assert "sg0000" in answer("ir.functions")
    assert "EvalAccelReservedLoc" in answer("where r.runtime_reserved")
    assert "inline_nki_kernel" in answer("result.steps")
    assert "attention_tkg" in answer("one_of_them")
    assert "qSPDynamicHW" in answer("count_if(bytes < 512)")
    assert "mlp_tkg" in answer("write_parquet")
