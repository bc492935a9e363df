"""A SQLite ledger is killed, starved and lied to at its system calls, and gives nothing away."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from faults import batched_release_driver, release_driver
from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Refused
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.hash_chain import disagreement
from sfumato.vault.ledger_entries import Account
from support.command_line import traced
from support.ledger_stores import DEBT, Place

OPS = ("1", "2")
CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "unlink")
MANY = tuple(str(n) for n in range(1, 7))  # that are asked at once
DRIVERS = {OPS: Path(release_driver.__file__), MANY: Path(batched_release_driver.__file__)}


@dataclass(frozen=True)
class Vault:
    """One ledger and its anchor, in a folder of their own."""

    folder: Path
    ops: tuple[str, ...] = OPS

    @property
    def place(self) -> Place:
        return Place("sqlite", str(self.folder / "vault" / "ledger.db"))

    @property
    def anchor(self) -> FileAnchor:
        return FileAnchor(self.folder / "away" / "anchor")

    def run(self, *how: str) -> subprocess.CompletedProcess[str]:
        """Run the driver under strace."""
        words = ("sqlite", self.place.where, str(self.folder / "away" / "anchor"), *self.ops)
        log, script = self.folder / "log", DRIVERS[self.ops]
        return traced(words, {}, log, ("-y", *how), script)

    def log(self) -> list[str]:
        """Return the traced calls."""
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture(scope="module", autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing in CI: run `make system`")
        pytest.skip("strace is not installed: run `make system`")
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("strace may not trace here: see `make system`")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an empty ledger, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    ledger = Vault(folder).place.create()
    Vault(folder).anchor.advance(ledger.head())
    ledger.close()
    return folder


def _counts(vault: Vault) -> Counter[str]:
    done = vault.run("-e", "trace=" + ",".join(CALLS))
    assert done.returncode == 0
    assert _said(done.stdout) == set(vault.ops)
    found = (re.match(r"\d+ +(\w+)\(", line) for line in vault.log())
    return Counter(match.group(1) for match in found if match)


def _said(stdout: str) -> set[str]:
    return {line.split()[1] for line in stdout.splitlines() if line.startswith("answer")}


def _inject(vault: Vault, call: str, fault: str, when: int) -> None:
    """Run the driver with one fault, then check all that must hold."""
    done = vault.run("-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={when}")
    charged = re.findall(r"^charged (\w+)$", done.stdout, re.MULTILINE)
    answers = dict(re.findall(r"^answer (\w+) (\w+)$", done.stdout, re.MULTILINE))
    _check(vault, charged, answers)


def _check(vault: Vault, charged: list[str], answers: dict[str, str]) -> None:
    if not _is_made(vault):
        assert (charged, vault.anchor.read()) == ([], None)
    ledger = release_driver.opened(vault.place)
    _check_whole(vault, ledger)
    known = {entry.body for entry in ledger.entries() if entry.kind == "charged"}
    for op in charged:  # nothing that was acknowledged is lost
        assert any(f'"op":"{op}"' in body for body in known)
    assert set(answers) <= set(charged)
    _check_retries(vault, ledger, answers)
    ledger.close()


def _is_made(vault: Vault) -> bool:
    try:
        vault.place.open().close()
    except Refused:
        return False
    return True


def _check_whole(vault: Vault, ledger: SqlLedger) -> None:
    link = apsw.Connection(vault.place.where)
    assert link.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    link.close()
    assert ledger.verify().fault is None
    mark = vault.anchor.read()
    if mark is not None:
        assert disagreement(mark, ledger.head(), ledger.entry(mark.seq)) is None


def _check_retries(vault: Vault, ledger: SqlLedger, answers: dict[str, str]) -> None:
    lines: list[str] = []
    for op in vault.ops * 2:
        release_driver.ask(ledger, vault.anchor, op, lines.append)
    again = [tuple(line.split()[1:]) for line in lines if line.startswith("answer")]
    assert again[: len(vault.ops)] == again[len(vault.ops) :]
    assert set(answers.items()) <= set(again)
    people = ledger.account("people")
    assert isinstance(people, Account)
    paid = len(vault.ops)
    assert people.spent == PrivacyCost(DEBT.epsilon * paid, DEBT.delta * paid, DEBT.rho * paid, 0)
    _check_whole(vault, ledger)


def _points(template: Path | None, tmp_path: Path, call: str) -> int:
    vault = _fresh(template, tmp_path / "counted")
    return _counts(vault)[call]


def _fresh(template: Path | None, folder: Path) -> Vault:
    if template is None:
        folder.mkdir()
    else:
        shutil.copytree(template, folder)
    return Vault(folder)


@pytest.mark.parametrize("call", CALLS)
def test_no_kill_gives_an_answer_away(made: Path, tmp_path: Path, call: str) -> None:
    for when in range(1, _points(made, tmp_path, call) + 1, 3):
        _inject(_fresh(made, tmp_path / str(when)), call, "signal=KILL", when)


def _counts_of_a_thread(vault: Vault) -> Counter[str]:
    """Return how often each call was made by the thread that made it most."""
    assert _counts(vault)
    found = (re.match(r"(\d+) +(\w+)\(", line) for line in vault.log())
    by_thread = Counter(match.groups() for match in found if match)
    return Counter({call: n for (_, call), n in sorted(by_thread.items(), key=lambda one: one[1])})


def test_what_waits_is_written_together(made: Path, tmp_path: Path) -> None:
    vault = Vault(_fresh(made, tmp_path / "counted").folder, MANY)
    _counts(vault)
    lines = [_call_and_path(line) for line in vault.log()]
    commits = sum(call == "fdatasync" and path.endswith("-wal") for call, path in lines)
    assert commits < 2 * len(MANY)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "write"])
def test_no_kill_among_many_gives_an_answer_away(made: Path, tmp_path: Path, call: str) -> None:
    counted = Vault(_fresh(made, tmp_path / "counted").folder, MANY)
    most = _counts_of_a_thread(counted)[call]
    for when in range(1, most + 1, max(1, most // 6)):
        vault = Vault(_fresh(made, tmp_path / str(when)).folder, MANY)
        _inject(vault, call, "signal=KILL", when)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "write", "ftruncate"])
def test_no_fault_among_many_gives_an_answer_away(
    made: Path, tmp_path: Path, call: str, fault: str
) -> None:
    counted = Vault(_fresh(made, tmp_path / "counted").folder, MANY)
    for when in range(1, _counts_of_a_thread(counted)[call] + 1):
        vault = Vault(_fresh(made, tmp_path / str(when)).folder, MANY)
        _inject(vault, call, fault, when)


def test_no_kill_while_a_ledger_is_made_spoils_it(tmp_path: Path) -> None:
    for when in range(1, _points(None, tmp_path, "fdatasync") + 1, 3):
        _inject(_fresh(None, tmp_path / str(when)), "fdatasync", "signal=KILL", when)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
@pytest.mark.parametrize("call", CALLS)
def test_no_fault_at_any_call_gives_an_answer_away(tmp_path: Path, call: str, fault: str) -> None:
    for when in range(1, _points(None, tmp_path, call) + 1):
        folder = tmp_path / str(when)
        _inject(_fresh(None, folder), call, fault, when)
        shutil.rmtree(folder)


def test_nothing_is_said_before_it_is_on_the_disk(made: Path, tmp_path: Path) -> None:
    vault = _fresh(made, tmp_path / "traced")
    assert vault.run("-e", "trace=pwrite64,fdatasync,write").returncode == 0
    unsynced: set[str] = set()
    said = 0
    for line in vault.log():
        call, path = _call_and_path(line)
        if call == "pwrite64" and path.endswith(("-wal", "anchor")):
            unsynced.add(path)
        elif call == "fdatasync":
            unsynced.discard(path)
        elif call == "write" and ("charged" in line or "answer" in line):
            said += 1
            assert unsynced == set()
    assert said == 4


def _call_and_path(line: str) -> tuple[str, str]:
    found = re.match(r"\d+ +(\w+)\(\d+<([^>]*)>", line)
    return (found.group(1), found.group(2)) if found else ("", "")


def test_every_charge_and_every_answer_moves_the_anchor(made: Path, tmp_path: Path) -> None:
    vault = _fresh(made, tmp_path / "asked")
    ledger = vault.place.open()
    for op in OPS:
        release_driver.ask(ledger, vault.anchor, op, lambda _line: None)
        mark = vault.anchor.read()
        assert mark is not None
        assert (mark.seq, mark.hash) == (ledger.head().seq, ledger.head().hash)
    ledger.close()
