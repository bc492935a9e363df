"""Store approval rules, and the epsilon that runs reserved or spent under them, in SQL."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Final

from sfumato.features.pipelines.approval_rule import Rule, Spending
from sfumato.query.expression import canonical_json
from sfumato.storage.database import DatabaseLink
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS pipeline_rules (
        id TEXT NOT NULL PRIMARY KEY, data_set TEXT NOT NULL, body TEXT NOT NULL,
        made_at TEXT NOT NULL
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS pipeline_rule_runs (
        rule TEXT NOT NULL, run TEXT NOT NULL, epsilon TEXT NOT NULL, PRIMARY KEY (rule, run)
    ){table_end}""",
)
_TAKEN: Final = "SELECT run, epsilon FROM pipeline_rule_runs WHERE rule = ?"


class SqlPipelineRules:
    """A RuleStore (store of approval rules) in the vault's SQL records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._lock = records.lock_rows
        records.make(_TABLES)

    def add(self, rule: Rule) -> None:
        """Store a new approval rule."""
        values = rule.id, rule.data_set, canonical_json(rule.as_json()), rule.at
        with self._records.change() as link:
            link.change(
                "INSERT INTO pipeline_rules (id, data_set, body, made_at) VALUES (?, ?, ?, ?)",
                values,
            )

    def find(self, data_set: str, rule: str) -> Rule | None:
        """Return the data set's approval rule of this id, or None."""
        found = [one for one in self.of(data_set) if one.id == rule]
        return found[0] if found else None

    def of(self, data_set: str) -> tuple[Rule, ...]:
        """Return all approval rules of a data set, the oldest first."""
        sql = "SELECT body FROM pipeline_rules WHERE data_set = ? ORDER BY made_at, id"
        rows = self._records.rows(sql, (data_set,))
        return tuple(Rule.of_json(json.loads(body)) for (body,) in rows)

    def end(self, rule: Rule) -> None:
        """Store that the owner has ended the approval rule."""
        with self._records.change() as link:
            link.change(
                "UPDATE pipeline_rules SET body = ? WHERE id = ?",
                (canonical_json(rule.as_json()), rule.id),
            )

    def spent(self, rule: str) -> Fraction:
        """Return the total epsilon that runs have reserved or spent under the rule."""
        return sum((Fraction(e) for _, e in self._records.rows(_TAKEN, (rule,))), Fraction(0))

    def reserve(self, spending: Spending, most: Fraction) -> bool | None:
        """Reserve a run's epsilon under a rule, if the rule's total stays within `most`."""
        with self._records.change() as link:
            taken = self._taken(link, spending)
            if spending.run in taken or spending.reservation_key in taken:
                return False
            if sum(map(Fraction, taken.values()), spending.epsilon) > most:
                return None
            _put(link, spending, spending.reservation_key)
            return True

    def spend(self, spending: Spending, key: str) -> None:
        """Record a run's reserved epsilon as spent, under `key`; a second call adds nothing."""
        with self._records.change() as link:
            taken = self._taken(link, spending)
            if spending.reservation_key != key:
                _drop(link, spending)
            if key not in taken:
                _put(link, spending, key)

    def cancel(self, spending: Spending) -> None:
        """Cancel a run's reservation of epsilon."""
        with self._records.change() as link:
            _drop(link, spending)

    def _taken(self, link: DatabaseLink, spending: Spending) -> dict[str, str]:
        """Return the rule's reserved and spent epsilon by key, after locking the rule's row."""
        link.rows(f"SELECT id FROM pipeline_rules WHERE id = ?{self._lock}", (spending.rule,))
        return dict(link.rows(_TAKEN, (spending.rule,)))


def _put(link: DatabaseLink, spending: Spending, key: str) -> None:
    link.change(
        "INSERT INTO pipeline_rule_runs (rule, run, epsilon) VALUES (?, ?, ?)",
        (spending.rule, key, str(spending.epsilon)),
    )


def _drop(link: DatabaseLink, spending: Spending) -> None:
    link.change(
        "DELETE FROM pipeline_rule_runs WHERE rule = ? AND run = ?",
        (spending.rule, spending.reservation_key),
    )
