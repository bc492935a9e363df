"""Every code block of the README runs, and the README is short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)


def test_the_taste_of_the_readme_runs(tmp_path: Path) -> None:
    ((_, code),) = [block for block in BLOCKS if block[0] == "python"]
    settings = {**os.environ, "HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        (sys.executable, "-c", code),
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "paid epsilon 1, 2 left" in ran.stdout


def test_the_readme_has_the_blocks_that_the_test_expects() -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "python"]
    assert [line.split("#")[0].strip() for line in BLOCKS[0][1].splitlines()] == [
        "make demo",
        "make test",
    ]


def test_the_readme_has_at_most_120_lines() -> None:
    assert len(TEXT.splitlines()) <= 120
