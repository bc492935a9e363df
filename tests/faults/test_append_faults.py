"""`sfumato append` is killed or meets a full disk: the new rows are all there, or none of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.query.measure import Measure, Tally
from sfumato.release.unseal import unseal
from support.small_vaults import card, make_vault, run_traced, write_csv

CARD = """
unit = "who"
people = "town"
version = "0"
budget = { epsilon = 3 }
[columns.age]
type = "integer"
lower = 0
upper = 110
"""
CALLS = ("pwrite64", "fsync", "fdatasync", "rename")
PEOPLE, NEW = 3000, 500
ROWS = Measure(None, (), (Tally("rows"),), True, 1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the vault of a first version."""
    assert shutil.which("strace") is not None, "strace is not installed: make system"
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("town", rows(tmp_path, 0, PEOPLE), card(CARD))
    return tmp_path


def rows(folder: Path, first: int, count: int) -> Path:
    people = [(f"p{n}", n % 100) for n in range(first, first + count)]
    return write_csv(folder / "rows.csv", ("who", "age"), people)


def appended(folder: Path, version: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Append new people by the real command under strace, which follows every process."""
    source = rows(folder, PEOPLE + NEW * version, NEW)
    words = ("append", "town", str(source), "--version", str(version))
    return run_traced(folder / "vault", words, CALLS, *options)


def most_calls(folder: Path) -> list[tuple[str, int]]:
    """Append a version 1; return every (system call, how many-th of one process) of it."""
    whole = appended(folder, 1)
    assert whole.returncode == 0, whole.stderr
    calls: dict[tuple[str, str], int] = {}
    for line in (folder / "strace.log").read_text().splitlines():
        process, said = line.split(maxsplit=1)
        key = (said.split("(")[0], process)
        calls[key] = calls.get(key, 0) + 1
    most = {call: max(n for (one, _), n in calls.items() if one == call) for call, _ in calls}
    return [(call, n) for call in CALLS for n in range(1, most.get(call, 0) + 1)]


def count(vault: OpenVault) -> tuple[str, int]:
    """Return the current version, and its true number of rows."""
    listing = vault.house.catalogue.find("town")
    assert listing is not None
    cells = unseal(vault.house.data_sets.engine.measure(listing.table, ROWS))
    return listing.card.version, int(cells.parts[0][0])


def check(folder: Path, version: int, call: str, fault: str, *, nth: int) -> bool:
    """Hurt the append of a version at one call; return whether it is there, and then append it."""
    hurt = appended(folder, version, "-e", f"inject={call}:{fault}:when={nth}")
    with sfumato.open(folder / "vault") as vault:
        current, found = count(vault)
        assert found == PEOPLE + NEW * int(current)
        assert current == str(version) or hurt.returncode != 0
        if current != str(version):
            assert current == str(version - 1)
            vault.append("town", folder / "rows.csv", version=str(version))
            assert count(vault) == (str(version), PEOPLE + NEW * version)
        assert vault.house.ledger.verified()["ok"] is True
    return current == str(version)


def test_an_append_that_is_killed_leaves_the_earlier_version_as_it_was(folder: Path) -> None:
    calls = most_calls(folder)
    some = [*calls[:: max(1, len(calls) // 5)], calls[-1]]
    is_there = {
        check(folder, version, call, "signal=KILL", nth=nth)
        for version, (call, nth) in enumerate(some, 2)
    }
    assert False in is_there


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
def test_every_fault_at_every_call_of_an_append_leaves_a_whole_version(
    folder: Path, fault: str
) -> None:
    for version, (call, nth) in enumerate(most_calls(folder), 2):
        check(folder, version, call, fault, nth=nth)
