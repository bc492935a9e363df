"""Ledgers of both kinds for tests: one way to make, reopen and ask either."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.storage import sqlite_ledger
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.ledger_entries import Charge, Debtor

if TYPE_CHECKING:
    from support import (
        postgres_server,  # not in the drivers that tests start: pytest is slow to import
    )

CAP = Cap(epsilon=1000, delta=1000, rho=1000, rho_delta=1000)
DEBT = PrivacyCost(epsilon=10, delta=10, rho=10, rho_delta=0)


class StoppedClock:
    """A clock that always says the same."""

    def now(self) -> str:
        """Return one moment."""
        return "2026-11-21T10:00:00Z"


@dataclass
class SetClock:
    """A clock that says what it was set to."""

    at: str

    def now(self) -> str:
        """Return the moment that was set."""
        return self.at


@dataclass(frozen=True)
class Place:
    """Where a test's ledger lies."""

    kind: str
    where: str

    def create(self) -> SqlLedger:
        """Make the ledger."""
        if self.kind == "sqlite":
            return sqlite_ledger.create_ledger(
                Path(self.where), StoppedClock(), SystemRandomSource()
            )
        from sfumato.storage import postgres_ledger

        return postgres_ledger.create_ledger(self.where, StoppedClock(), SystemRandomSource())

    def open(self, wait_s: float = 10) -> SqlLedger:
        """Open the ledger as another process would."""
        if self.kind == "sqlite":
            return sqlite_ledger.open_ledger(Path(self.where), StoppedClock(), wait_s=wait_s)
        from sfumato.storage import postgres_ledger

        return postgres_ledger.open_ledger(self.where, StoppedClock(), wait_s=wait_s)


def start_child(act: Callable[[], object]) -> int:
    """Run something in a forked child, which never gets out of here; return its pid."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def has_ended(child: int) -> bool:
    """Say whether a child has ended; how, `exit_code` still tells."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def exit_code(child: int) -> int:
    """Wait for a child and return how it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def new_place(kind: str, folder: Path, server: postgres_server.Server | None) -> Place:
    """Return a fresh place for a ledger."""
    if server is not None:
        return Place(kind, server.fresh_url())
    return Place(kind, str(folder / "ledger.db"))


def asked(op: str, question: str = "q", user: str = "ann", **changes: object) -> Charge:
    """Return a charge of one question on one data set by one user."""
    plain = Charge(
        user=user,
        op=op,
        request=f"request {question}",
        answer_key=f"key {question}",
        shape=f"shape {question}",
        debtors=(Debtor("people", CAP), Debtor(f"user {user}", CAP)),
        debt=DEBT,
        body={"question": question},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # named as the fields are
