"""Store the owners' reviews of programs, and the last trial of each program, in SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sfumato.features.pipelines.program_review import KeptTrial, Review
from sfumato.storage.records_database import Records

MAX_TRIALS: Final = 40  # the most kept trials of one author's programs for a data set
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS pipeline_reviews (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, decided_at TEXT NOT NULL,
        checked TEXT NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (data_set, digest, decided_at)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS pipeline_plans (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, author TEXT NOT NULL,
        planned_by TEXT NOT NULL, planned_at TEXT NOT NULL, found TEXT NOT NULL,
        PRIMARY KEY (data_set, digest)
    ){table_end}""",
)


class SqlReviews:
    """A ReviewStore (store of reviews and trials) in the vault's SQL records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, one: Review) -> None:
        """Store what an owner confirmed and wrote with a decision."""
        sql = (
            "INSERT INTO pipeline_reviews (data_set, digest, decided_at, checked, reason)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        checked = json.dumps(one.checked)
        with self._records.change() as link:
            link.change(sql, (one.data_set, one.digest, one.at, checked, one.reason))

    def of(self, data_set: str) -> Mapping[tuple[str, str], Review]:
        """Return the reviews of a data set's programs, by digest and time of the decision."""
        sql = "SELECT digest, decided_at, checked, reason FROM pipeline_reviews WHERE data_set = ?"
        return {
            (digest, at): Review(data_set, digest, at, tuple(json.loads(checked)), reason)
            for digest, at, checked, reason in self._records.rows(sql, (data_set,))
        }

    def keep_trial(self, one: KeptTrial, author: str) -> None:
        """Store the last trial of a program; old trials of the same author are deleted."""
        delete = "DELETE FROM pipeline_plans WHERE data_set = ? AND digest = ?"
        insert = (
            "INSERT INTO pipeline_plans (data_set, digest, author, planned_by, planned_at, found)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        with self._records.change() as link:
            link.change(delete, (one.data_set, one.digest))
            link.change(insert, (one.data_set, one.digest, author, one.by, one.at, one.plan))
        mine = (
            "SELECT digest FROM pipeline_plans WHERE data_set = ? AND author = ?"
            " ORDER BY planned_at DESC, digest"
        )
        old = self._records.rows(mine, (one.data_set, author))[MAX_TRIALS:]
        with self._records.change() as link:
            for (digest,) in old:
                link.change(delete, (one.data_set, digest))

    def trial(self, data_set: str, digest: str) -> KeptTrial | None:
        """Return the last trial of a program, or None."""
        sql = (
            "SELECT planned_by, planned_at, found FROM pipeline_plans"
            " WHERE data_set = ? AND digest = ?"
        )
        rows = self._records.rows(sql, (data_set, digest))
        return KeptTrial(data_set, digest, *rows[0]) if rows else None
