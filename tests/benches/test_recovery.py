"""The bench of recovery makes a long history that verifies: a start reads it."""

from __future__ import annotations

from pathlib import Path

from bench import recovery
from bench.ledger import Clock
from sfumato.storage import sqlite_ledger


def test_a_long_history_verifies(tmp_path: Path) -> None:
    vault, _ = recovery.made(tmp_path, 300)
    ledger = sqlite_ledger.open_ledger(vault / "ledger.sqlite", Clock())
    verdict = ledger.verify()
    ledger.close()
    assert verdict.fault is None
    assert verdict.head.seq in (299, 300)
