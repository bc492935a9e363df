"""Store in SQL the requests to raise a cap that need a second person, and the decisions."""

from __future__ import annotations

import json
from dataclasses import astuple
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.features.policy.approvals import Approval
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS approvals (
        id TEXT NOT NULL PRIMARY KEY, data_set TEXT NOT NULL, account TEXT NOT NULL,
        before TEXT NOT NULL, epsilon TEXT NOT NULL, delta TEXT NOT NULL, why TEXT NOT NULL,
        asked_by TEXT NOT NULL, asked_at TEXT NOT NULL, state TEXT NOT NULL,
        decided_by TEXT NOT NULL, decided_at TEXT NOT NULL
    ){table_end}""",
)
_KEPT: Final = (
    "id, data_set, account, before, epsilon, delta, why, asked_by, asked_at, state, decided_by,"
    " decided_at"
)


class SqlApprovals:
    """Stores requests to raise a cap in the vault's SQL tables (an ApprovalStore)."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, approval: Approval) -> None:
        """Store a request to raise a cap, which waits for approval."""
        a = approval
        values = (
            a.id, a.data_set, a.account, json.dumps(astuple(a.before)), str(a.epsilon),
            str(a.delta), a.why, a.asked_by, a.asked_at, a.state, a.decided_by, a.decided_at,
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._records.change() as link:
            link.change(f"INSERT INTO approvals ({_KEPT}) VALUES ({marks})", values)

    def find(self, approval: str) -> Approval | None:
        """Return the request to raise a cap with this id, or None."""
        rows = self._records.rows(f"SELECT {_KEPT} FROM approvals WHERE id = ?", (approval,))
        return _approval(rows[0]) if rows else None

    def all(self) -> tuple[Approval, ...]:
        """Return all requests to raise a cap, the newest first."""
        sql = f"SELECT {_KEPT} FROM approvals ORDER BY asked_at DESC, id"
        return tuple(map(_approval, self._records.rows(sql)))

    def decide(self, approval: str, state: str, by: str, at: str) -> bool:
        """Store the decision on a waiting request; return whether it was still waiting."""
        sql = (
            "UPDATE approvals SET state = ?, decided_by = ?, decided_at = ?"
            " WHERE id = ? AND state = 'waiting'"
        )
        with self._records.change() as link:
            return link.change(sql, (state, by, at, approval)) == 1


def _approval(row: tuple[Any, ...]) -> Approval:
    name, data_set, account, before, epsilon, delta, *rest = row
    cap = Cap(*json.loads(before))
    return Approval(name, data_set, account, cap, Fraction(epsilon), Fraction(delta), *rest)
