"""What the tests run as `sfumato` says and ends as the command itself, and keeps nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shells import shell
from vaults import SFUMATO, make_vault, run

WORDS = [("budget", "nothing", "--json"), ("nonsense",), ("ledger", "verify")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_forked_command_says_and_ends_as_a_typed_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    vault = make_vault(tmp_path)
    environment = {"PATH": os.environ["PATH"], "SFUMATO_VAULT": str(vault)}
    typed = subprocess.run(
        [*SFUMATO, *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    forked = shell(words, environment, tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        typed.returncode, typed.stdout, typed.stderr,
    )  # fmt: skip


def test_a_command_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    assert run(vault, "datasets", "--json", SFUMATO_VAULT=str(tmp_path / "no")).returncode == 3
    assert run(vault, "datasets", "--json").returncode == 0
