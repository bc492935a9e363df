"""The command line says what it is, however it is started."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))


def test_the_module_is_the_command_and_says_the_packages_version() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "sfumato", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout == f"sfumato {PROJECT['project']['version']}\n"
