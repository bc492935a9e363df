"""The notebooks run from top to bottom, and can be read without running."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from support.sandbox_blocks import needs_bubbles

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
pytestmark = pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


NEEDS = {
    "8-my-first-pipeline": needs_bubbles,  # runs a program in a sandbox
    "10-my-first-reviewed-figure": needs_bubbles,
    "9-only-the-average": pytest.mark.skipif(
        find_spec("torch") is None, reason="torch is not installed: make .venv/torch.done"
    ),
}
# Blocks of strangers' programs begin as soon as the last one has ended: no slot is waited for.
HURRIED = ("8-my-first-pipeline", "10-my-first-reviewed-figure")
HURRY = """
from sfumato.sandbox.sandbox_pool import SandboxPool
SandboxPool.__init__.__kwdefaults__["sleep"] = lambda _: None
"""
RUN = [pytest.param(path, marks=NEEDS.get(path.stem, ())) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", RUN, ids=NAMES)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs = []
    resources = {"metadata": {"path": str(tmp_path)}}
    if path.stem in HURRIED:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(HURRY))  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    if path.stem in HURRIED:
        del notebook.cells[0]
    for cell in code_cells(notebook):  # what is told by the clock is not kept
        cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    kinds = [out.output_type for cell in code_cells(notebook) for out in cell.outputs]
    assert "error" not in kinds
    stored = [len(cell.outputs) > 0 for cell in code_cells(read(path))]
    assert [len(cell.outputs) > 0 for cell in code_cells(notebook)] == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_can_be_read_without_running(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)  # raises where the file is none
    assert notebook.cells[0].cell_type == "markdown"
    outputs = [out for cell in code_cells(notebook) for out in cell.outputs]
    assert outputs
    assert all(out.output_type != "error" for out in outputs)
    pictures = [out for out in outputs if "svg" in str(out.get("data", {}).get("text/html", ""))]
    assert pictures, "a notebook shows at least one picture"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_every_piece_of_code_has_words_before_it(path: Path) -> None:
    kinds = [cell.cell_type for cell in read(path).cells]
    assert ("code", "code") not in pairwise(kinds)
    for cell in code_cells(read(path)):
        ast.parse(cell.source)


def test_there_is_a_notebook_for_each_document_and_for_each_first_ten_minutes() -> None:
    assert len(NOTEBOOKS) >= 7


def test_nothing_that_a_notebook_made_lies_beside_it() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.name[0] not in "._"}
    assert there == {path.name for path in NOTEBOOKS} | {"run.py"}
