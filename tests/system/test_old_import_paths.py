"""Import paths that the docs once showed still work, and give the very module that is there now."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato
from sfumato.system.old_import_paths import MOVED

TORCH = importlib.util.find_spec("torch") is not None
KEPT = Path(__file__).parents[1] / "data" / "version_0_1"
SHOWN = (KEPT / "shown_imports.txt").read_text("utf-8").splitlines()
FLOWER = importlib.util.find_spec("flwr") is not None


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_gives_the_module_at_its_new_place(old: str) -> None:
    if old.endswith("course") and not TORCH:
        pytest.skip("needs PyTorch")
    module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__ is not None
    assert module.__spec__.name == MOVED[old]


@pytest.mark.parametrize("statement", SHOWN)
def test_what_the_docs_of_version_0_1_imported_can_be_imported(statement: str) -> None:
    if any(word in statement for word in ("sfumato.federated", "nn")) and not TORCH:
        pytest.skip("needs PyTorch")
    exec(statement, {})  # noqa: S102  # our own pages


def test_nothing_is_loaded_for_a_path_that_nobody_asks_for() -> None:
    program = "import sys, sfumato; print([m for m in sys.modules if m.startswith('sfumato.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert sfumato.__name__ == "sfumato"
    assert b"features" not in done.stdout
