"""`sfumato add` meets a full disk at its writes: a table is there whole, or it is not there.

A table that is there but not whole would be the worst: every question of it would be paid first.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from support.small_vaults import card, make_vault, run_traced, write_csv

CARD = """
unit = "who"
people = "town"
version = "1"
budget = { epsilon = 1000 }
[columns.age]
type = "integer"
lower = 0
upper = 110
"""
CALLS = ("pwrite64", "fsync", "fdatasync")
COUNT = "SELECT COUNT(*) AS n FROM town"
PEOPLE = 3000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: make system")
    folder = tmp_path_factory.mktemp("add")
    (folder / "card.toml").write_text(CARD)
    rows = [(f"p{n}", n % 100) for n in range(PEOPLE)]
    return write_csv(folder / "town.csv", ("who", "age"), rows)


def added(vault: Path, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Add the rows by the real command under strace; every thread and child is followed."""
    add = ("add", "town", str(source), "--card", str(source.with_name("card.toml")))
    return run_traced(vault, add, CALLS, *options)


def most_calls(source: Path, folder: Path) -> list[tuple[str, int]]:
    """Return every (system call, how many-th of one process) that an add can make."""
    folder.mkdir()
    whole = added(make_vault(folder), source)
    assert whole.returncode == 0, whole.stderr
    calls: dict[tuple[str, str], int] = {}
    for line in (folder / "strace.log").read_text().splitlines():
        process, said = line.split(maxsplit=1)
        key = (said.split("(")[0], process)
        calls[key] = calls.get(key, 0) + 1
    most = {call: max(n for (one, _), n in calls.items() if one == call) for call, _ in calls}
    return [(call, n) for call in CALLS for n in range(1, most.get(call, 0) + 1)]


def check(source: Path, folder: Path, call: str, nth: int, fault: str) -> None:
    """Hurt one add at one call; what is added is whole, and what is not can be added."""
    folder.mkdir()
    vault = make_vault(folder)
    hurt = added(vault, source, "-e", f"inject={call}:{fault}:when={nth}")
    with sfumato.open(vault) as opened:
        if hurt.returncode != 0:
            add_again(opened, source)
        assert opened["town"].ask(COUNT, epsilon=900).rows == ((PEOPLE,),)
    assert not list(vault.rglob("*.wal"))
    shutil.rmtree(folder)


def add_again(vault: OpenVault, source: Path) -> None:
    """Add what is not there; what is there already is refused."""
    try:
        vault.add("town", source, card(CARD))
    except sfumato.Refused as refused:
        if refused.code != "data-set-exists":
            raise


def test_a_full_disk_at_some_writes_leaves_no_half_table(source: Path, tmp_path: Path) -> None:
    writes = [(call, n) for call, n in most_calls(source, tmp_path / "count") if call != "fsync"]
    assert len(writes) > 10
    for place, (call, nth) in enumerate(writes[::16]):
        check(source, tmp_path / f"f{place}", call, nth, "error=ENOSPC")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
def test_every_fault_at_every_call_leaves_no_half_table(
    source: Path, tmp_path: Path, fault: str
) -> None:
    for place, (call, nth) in enumerate(most_calls(source, tmp_path / "count")):
        check(source, tmp_path / f"f{place}", call, nth, fault)
