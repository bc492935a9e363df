"""Every code block of the README runs, in order, on the rows that it writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import entry

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
MAKE = "make demo"
WRITES = "> patients.csv"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the reader's rows, and `sfumato` on the path."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "bin").mkdir()
    entry(folder / "bin")
    return folder


def run(place: Path, *command: str) -> None:
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "HOME": str(place / "home")}
    ran = subprocess.run(
        command, cwd=place, env=settings, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_readme_runs_from_top_to_bottom(place: Path) -> None:
    (card,) = [text for kind, text in BLOCKS if kind == "toml"]
    for kind, text in BLOCKS:
        if kind == "sh" and WRITES in text:
            run(place, "bash", "-ec", text)
        elif kind == "sh" and MAKE not in text:
            proposing, adding = text.split("# proposes", 1)
            run(place, "bash", "-ec", proposing)
            assert "[columns." in (place / "clinic.card.toml").read_text()
            (place / "clinic.card.toml").write_text(card)
            run(place, "bash", "-ec", "export SFUMATO_VAULT=clinic-vault #" + adding)
        elif kind == "python":
            run(place, sys.executable, "-c", text)


def test_the_readme_has_the_blocks_that_the_test_expects() -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "sh", "sh", "python", "toml"]
