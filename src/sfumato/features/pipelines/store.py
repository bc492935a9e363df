"""Store submitted programs, their owners' decisions and their trials, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from sfumato.features.pipelines.model import WAITING, Submitted, TrialChoice, timing_of
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS pipelines (
        digest TEXT NOT NULL, data_set TEXT NOT NULL, program TEXT NOT NULL,
        handed_in_by TEXT NOT NULL, handed_in_at TEXT NOT NULL, state TEXT NOT NULL,
        most_epsilon TEXT NOT NULL, decided_by TEXT NOT NULL, decided_at TEXT NOT NULL,
        PRIMARY KEY (data_set, digest)
    ){table_end}""",
    # authors who handed in a program after its first one
    """CREATE TABLE IF NOT EXISTS pipeline_authors (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, author TEXT NOT NULL,
        handed_in_at TEXT NOT NULL, PRIMARY KEY (data_set, digest, author)
    ){table_end}""",
    # in tables of trials, the digest is the key of one user's trials (`Submitted.trials_of`)
    """CREATE TABLE IF NOT EXISTS pipeline_trials (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, output TEXT NOT NULL,
        PRIMARY KEY (data_set, digest, output)
    ){table_end}""",
    # the programs that their owner lets run in batches
    """CREATE TABLE IF NOT EXISTS pipeline_batches (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (data_set, digest)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS pipeline_choices (
        data_set TEXT NOT NULL, digest TEXT NOT NULL, blocks {integer} NOT NULL,
        take TEXT NOT NULL, trim_blocks {integer} NOT NULL, place {integer} NOT NULL,
        trial TEXT NOT NULL, PRIMARY KEY (data_set, digest, blocks)
    ){table_end}""",
)
_KEPT: Final = (
    "digest, data_set, program, handed_in_by, handed_in_at, state, most_epsilon, decided_by,"
    " decided_at"
)
_MAY_BATCH: Final = (
    "(SELECT COUNT(*) FROM pipeline_batches WHERE pipeline_batches.data_set = pipelines.data_set"
    " AND pipeline_batches.digest = pipelines.digest)"
)

_Later = dict[str, list[tuple[str, str]]]


class SqlPipelines:
    """A PipelineStore (store of submitted programs) in the vault's SQL records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, one: Submitted) -> bool:
        """Store a program, or another author of a stored one; return whether it is new."""
        values = (
            one.digest, one.data_set, one.program, one.by, one.at, one.state,
            str(one.most_epsilon), one.decided_by, one.decided_at,
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._records.change() as link:
            sql = f"INSERT INTO pipelines ({_KEPT}) VALUES ({marks}) ON CONFLICT DO NOTHING"
            if link.change(sql, values) == 1:
                return True
            author = (
                "INSERT INTO pipeline_authors (data_set, digest, author, handed_in_at)"
                " VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            )
            link.change(author, (one.data_set, one.digest, one.by, one.at))
            return False

    def find(self, data_set: str, digest: str) -> Submitted | None:
        """Return the data set's submitted program of this digest, or None."""
        sql = f"SELECT {_KEPT}, {_MAY_BATCH} FROM pipelines WHERE data_set = ? AND digest = ?"
        rows = self._records.rows(sql, (data_set, digest))
        return _submitted(rows[0], self._later(data_set)) if rows else None

    def of(self, data_set: str) -> tuple[Submitted, ...]:
        """Return all programs submitted for a data set, the newest first."""
        sql = (
            f"SELECT {_KEPT}, {_MAY_BATCH} FROM pipelines WHERE data_set = ?"
            " ORDER BY handed_in_at DESC, digest"
        )
        rows, later = self._records.rows(sql, (data_set,)), self._later(data_set)
        return tuple(_submitted(row, later) for row in rows)

    def _later(self, data_set: str) -> _Later:
        """Return the later authors of a data set's programs, by digest."""
        sql = (
            "SELECT digest, author, handed_in_at FROM pipeline_authors WHERE data_set = ?"
            " ORDER BY handed_in_at, author"
        )
        found: _Later = {}
        for digest, author, at in self._records.rows(sql, (data_set,)):
            found.setdefault(str(digest), []).append((str(author), str(at)))
        return found

    def decide(self, one: Submitted, *, only_waiting: bool = False) -> None:
        """Store a decision on a submitted program; of a rule, only if the program still waits."""
        sql = (
            "UPDATE pipelines SET state = ?, most_epsilon = ?, decided_by = ?, decided_at = ?"
            " WHERE data_set = ? AND digest = ?"
        ) + (f" AND state = '{WAITING}'" if only_waiting else "")
        said = one.state, str(one.most_epsilon), one.decided_by, one.decided_at
        with self._records.change() as link:
            if link.change(sql, (*said, one.data_set, one.digest)) == 0:
                return
            key = one.data_set, one.digest
            link.change("DELETE FROM pipeline_batches WHERE data_set = ? AND digest = ?", key)
            if one.may_batch:
                link.change("INSERT INTO pipeline_batches (data_set, digest) VALUES (?, ?)", key)

    def add_trial(self, data_set: str, digest: str, gave: Sequence[str]) -> None:
        """Record which outputs of a program gave a number in a trial on synthetic people.

        A row with an empty output records that there was a trial.
        """
        sql = (
            "INSERT INTO pipeline_trials (data_set, digest, output) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING"
        )
        with self._records.change() as link:
            for output in ("", *gave):
                link.change(sql, (data_set, digest, output))

    def set_choices(self, data_set: str, digest: str, choices: Sequence[TrialChoice]) -> None:
        """Record how the last trial of a program proposed to combine blocks."""
        insert = (
            "INSERT INTO pipeline_choices (data_set, digest, blocks, take, trim_blocks, place,"
            " trial) VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        with self._records.change() as link:
            whose = data_set, digest
            link.change("DELETE FROM pipeline_choices WHERE data_set = ? AND digest = ?", whose)
            for one in choices:
                link.change(insert, (*whose, one.blocks, one.take, one.trim, one.rank, one.trial))

    def choices(self, data_set: str, digest: str) -> tuple[TrialChoice, ...]:
        """Return what the last trial of a program proposed, the least expected error first."""
        sql = (
            "SELECT blocks, take, trim_blocks, place, trial FROM pipeline_choices"
            " WHERE data_set = ? AND digest = ? ORDER BY place"
        )
        return tuple(TrialChoice(*row) for row in self._records.rows(sql, (data_set, digest)))

    def tried(self, data_set: str, digest: str) -> tuple[str, ...] | None:
        """Return the outputs that gave a number in any trial of a program; None without a trial."""
        sql = "SELECT output FROM pipeline_trials WHERE data_set = ? AND digest = ?"
        found = [str(output) for (output,) in self._records.rows(sql, (data_set, digest))]
        return tuple(sorted(output for output in found if output)) if found else None


# Any: the column types depend on the table
def _submitted(row: tuple[Any, ...], later: _Later) -> Submitted:
    digest, data_set, program, by, at, state, most, decided_by, decided_at, batches = row
    timing = timing_of(is_batch=bool(batches))
    others = tuple(one for one in later.get(digest, ()) if one[0] != by)
    return Submitted(
        digest, data_set, program, by, at, state, Fraction(most), decided_by, decided_at, timing,
        others,
    )  # fmt: skip
