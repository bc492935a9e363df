"""`sfumato ask` is killed at its system calls and asked again: one charge, no answer without."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from support.small_vaults import PATIENTS_CARD, make_vault, run, run_traced, write_patients

CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "unlink", "rename")
SQL = "SELECT COUNT(*) AS n FROM clinic"
ASK = (
    "ask",
    "clinic",
    SQL,
    "--epsilon",
    "0.5",
    "--op",
    "x",
    "--json",
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: make system")
    folder = tmp_path_factory.mktemp("kills")
    vault = make_vault(folder)
    (folder / "card.toml").write_text(PATIENTS_CARD)
    source = write_patients(folder / "patients.csv")
    added = run(vault, "add", "clinic", str(source), "--card", str(folder / "card.toml"))
    assert added.returncode == 0, added.stderr
    return vault


def copy_of(original: Path, folder: Path) -> Path:
    vault, anchor = folder / "vault", folder / "anchor"
    shutil.copytree(original, vault)
    shutil.copy(original.parent / "anchors" / "anchor", anchor)
    (vault / "vault.json").write_text(json.dumps({"format": 1, "anchor": str(anchor)}))
    return vault


def traced(vault: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the real command under strace; every thread and child is followed."""
    return run_traced(vault, ASK, CALLS, *options)


def points(original: Path, tmp_path: Path) -> list[tuple[str, int]]:
    """Return every (system call, how many-th) that one ask makes."""
    vault = copy_of(original, tmp_path)
    whole = traced(vault)
    assert whole.returncode == 0, whole.stderr
    lines = (tmp_path / "strace.log").read_text().splitlines()
    found: list[tuple[str, int]] = []
    for call in CALLS:
        count = sum(f" {call}(" in line for line in lines)
        found += [(call, n) for n in range(1, count + 1)]
    return found


def spent(vault: OpenVault) -> float:
    return float(vault["clinic"].budget["spent"]["epsilon"])


def check(original: Path, folder: Path, call: str, nth: int, fault: str) -> None:
    """Hurt one ask at one call; whatever it printed was paid, and a retry pays no second time."""
    folder.mkdir()
    vault = copy_of(original, folder)
    hurt = traced(vault, "-e", f"inject={call}:{fault}:when={nth}")
    printed = json.loads(hurt.stdout) if hurt.returncode == 0 and hurt.stdout else None
    with sfumato.open(vault) as opened:
        paid = spent(opened)
        assert paid in (0, 0.5)
        assert printed is None or paid == 0.5, "an answer without a charge"
        again = asked_again(opened)
        assert spent(opened) == 0.5, "a second charge on retry"
        if printed is not None and again is not None:
            assert [list(row) for row in again.rows] == printed["rows"]
        assert opened.house.ledger.verified()["ok"] is True
    shutil.rmtree(folder)


def asked_again(vault: OpenVault) -> Answer | None:
    """Return the answer of the same operation, or None where it was charged and failed."""
    try:
        return vault["clinic"].ask(SQL, epsilon=0.5, op="x")
    except sfumato.Refused as refused:
        if refused.code != "question-failed":
            raise
        return None


def test_a_kill_at_every_fourth_call_leaves_one_charge(original: Path, tmp_path: Path) -> None:
    (tmp_path / "count").mkdir()
    for place, (call, nth) in enumerate(points(original, tmp_path / "count")[::4]):
        check(original, tmp_path / f"k{place}", call, nth, "signal=KILL")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
def test_every_fault_at_every_call_leaves_one_charge(
    original: Path, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "count").mkdir()
    for place, (call, nth) in enumerate(points(original, tmp_path / "count")):
        check(original, tmp_path / f"f{place}", call, nth, fault)
