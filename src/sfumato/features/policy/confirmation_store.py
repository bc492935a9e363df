"""Store in SQL the second persons' confirmations that added rows are of new people."""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from sfumato.features.policy.confirmations import Confirmation
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS confirmations (
        id TEXT NOT NULL PRIMARY KEY, job TEXT NOT NULL, data_set TEXT NOT NULL,
        people TEXT NOT NULL, asked_of TEXT NOT NULL, asked_by TEXT NOT NULL,
        asked_at TEXT NOT NULL, state TEXT NOT NULL, decided_by TEXT NOT NULL,
        decided_at TEXT NOT NULL
    ){table_end}""",
    "CREATE INDEX IF NOT EXISTS confirmations_job ON confirmations (job)",
)
_KEPT: Final = (
    "id, job, data_set, people, asked_of, asked_by, asked_at, state, decided_by, decided_at"
)


class SqlConfirmations:
    """Stores confirmations in the vault's SQL tables (a ConfirmationStore)."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, confirmation: Confirmation) -> None:
        """Store a confirmation that a second person has to decide."""
        values = astuple(confirmation)
        marks = ", ".join("?" * len(values))
        with self._records.change() as link:
            link.change(f"INSERT INTO confirmations ({_KEPT}) VALUES ({marks})", values)

    def find(self, confirmation: str) -> Confirmation | None:
        """Return the confirmation with this id, or None."""
        found = self._rows("WHERE id = ?", (confirmation,))
        return found[0] if found else None

    def of_job(self, job: str) -> Confirmation | None:
        """Return the newest confirmation of an add job, or None."""
        found = self._rows("WHERE job = ? ORDER BY asked_at DESC, id LIMIT 1", (job,))
        return found[0] if found else None

    def all(self) -> tuple[Confirmation, ...]:
        """Return all confirmations, the newest first."""
        return self._rows("ORDER BY asked_at DESC, id", ())

    def decide(self, confirmation: str, state: str, by: str, at: str) -> bool:
        """Store the decision on a waiting confirmation; return whether it was still waiting."""
        sql = (
            "UPDATE confirmations SET state = ?, decided_by = ?, decided_at = ?"
            " WHERE id = ? AND state = 'waiting'"
        )
        with self._records.change() as link:
            return link.change(sql, (state, by, at, confirmation)) == 1

    def _rows(self, which: str, values: tuple[object, ...]) -> tuple[Confirmation, ...]:
        rows = self._records.rows(f"SELECT {_KEPT} FROM confirmations {which}", values)
        return tuple(Confirmation(*row) for row in rows)
