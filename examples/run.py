"""Run the notebooks and keep what they print, so that they can be read without running them.

python examples/run.py            all of them
python examples/run.py 1 3        those that begin with these numbers
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def notebooks() -> list[Path]:
    """Return the notebooks of this folder."""
    return sorted(HERE.glob("*.ipynb"))


def run(path: Path, folder: Path) -> Any:
    """Return the notebook with what its cells print, run in that folder; a cell's error ends it."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which would differ each time
        if cell.cell_type == "code":  # what is told by the clock while one waits
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


def main(numbers: list[str]) -> None:
    """Run the notebooks in place."""
    for path in notebooks():
        if not numbers or path.name.startswith(tuple(f"{number}-" for number in numbers)):
            print(f"running {path.name} ...")
            with tempfile.TemporaryDirectory() as folder:  # a vault of theirs stays out of here
                nbformat.write(run(path, Path(folder)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
