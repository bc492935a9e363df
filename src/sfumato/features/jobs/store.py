"""The SQL store of jobs, shared by all nodes of a vault; a runner that is gone loses its leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sfumato.features.jobs.model import Job
from sfumato.storage.records_database import Records

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS jobs (
        id TEXT NOT NULL PRIMARY KEY, person TEXT NOT NULL, token TEXT NOT NULL,
        kind TEXT NOT NULL, data_set TEXT NOT NULL, op TEXT NOT NULL, body TEXT NOT NULL,
        created TEXT NOT NULL, state TEXT NOT NULL, tries {integer} NOT NULL,
        refusal TEXT NOT NULL, runner TEXT NOT NULL, until TEXT NOT NULL, UNIQUE (person, op)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS job_starts (
        job TEXT NOT NULL PRIMARY KEY, started TEXT NOT NULL
    ){table_end}""",
    "CREATE INDEX IF NOT EXISTS jobs_open ON jobs (created) WHERE state IN ('waiting', 'running')",
)
_KEPT: Final = "id, person, token, kind, data_set, op, body, created, state, tries, refusal"
_SHOWN: Final = (
    f"{_KEPT}, COALESCE((SELECT started FROM job_starts WHERE job_starts.job = jobs.id), '')"
)
_READY: Final = "(state = 'waiting' OR (state = 'running' AND until < ?))"


class SqlJobs:
    """The store of jobs: an SQL table in the vault's records database."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def add(self, job: Job) -> Job:
        """Store the job, unless the user has one with its operation id; return the stored job.

        Of the user's finished jobs, all but those among the last hundred jobs are deleted.
        """
        values = (
            job.id, job.user, job.token, job.kind, job.data_set, job.op, job.body, job.created,
            job.state, job.tries, job.refusal, "", "",
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        old = (
            "DELETE FROM jobs WHERE person = ? AND state IN ('done', 'failed', 'cancelled')"
            " AND op <> ? AND id"
            " NOT IN (SELECT id FROM jobs WHERE person = ? ORDER BY created DESC, id LIMIT 100)"
        )
        with self._records.change() as link:
            link.change(
                f"INSERT INTO jobs ({_KEPT}, runner, until) VALUES ({marks})"
                " ON CONFLICT DO NOTHING",
                values,
            )
            link.change(old, (job.user, job.op, job.user))
            link.change("DELETE FROM job_starts WHERE job NOT IN (SELECT id FROM jobs)")
        return self._rows("person = ? AND op = ?", (job.user, job.op))[0]

    def find(self, job: str) -> Job | None:
        """Return a job by its id, or None."""
        found = self._rows("id = ?", (job,))
        return found[0] if found else None

    def of(self, user: str) -> tuple[Job, ...]:
        """Return the user's last hundred jobs, newest first."""
        return self._rows("person = ? ORDER BY created DESC, id LIMIT 100", (user,))

    def ready(self, now: str) -> tuple[Job, ...]:
        """Return the jobs to run: those that wait, and those whose runner's lease has expired.

        The oldest job of each user and kind comes first, then the second of each. So a user with
        many jobs doesn't keep others out of the first 500. Jobs without a token are left out,
        because their own (embedded) process runs them.
        """
        place = "row_number() OVER (PARTITION BY person, kind ORDER BY created, id)"
        waiting = f"SELECT id AS job, {place} AS place FROM jobs WHERE {_READY} AND token <> ''"
        rows = self._records.rows(
            f"SELECT {_SHOWN} FROM jobs JOIN ({waiting}) AS waiting ON waiting.job = jobs.id"
            " ORDER BY place, created, id LIMIT 500",
            (now,),
        )
        return tuple(map(_job, rows))

    def claim(self, job: str, by: str, now: str, until: str) -> bool:
        """Lease a ready job to the runner `by` until a time; return True if this succeeds."""
        sql = (
            "UPDATE jobs SET state = 'running', runner = ?, until = ?, tries = tries + 1"
            f" WHERE id = ? AND {_READY}"
        )
        with self._records.change() as link:
            if link.change(sql, (by, until, job, now)) == 0:
                return False
            link.change("DELETE FROM job_starts WHERE job = ?", (job,))
            link.change("INSERT INTO job_starts (job, started) VALUES (?, ?)", (job, now))
            return True

    def renew(self, by: str, until: str) -> None:
        """Extend all leases of the runner `by` until a time; a living runner repeats this."""
        self._changed("until = ?", "runner = ? AND state = 'running'", (until, by))

    def finish(self, job: str, by: str, state: str, refusal: str) -> bool:
        """Store a job's final state; return False, unchanged, if the runner has lost its lease."""
        return self._changed(
            "state = ?, refusal = ?",
            "id = ? AND runner = ? AND state = 'running'",
            (state, refusal, job, by),
        )

    def cancel(self, job: str) -> bool:
        """Cancel a job if it still waits; return True if it was cancelled."""
        return self._changed("state = 'cancelled'", "id = ? AND state = 'waiting'", (job,))

    def requeue(self, job: str) -> bool:
        """Queue a failed or cancelled job again; return False for a job in another state."""
        return self._changed(
            "state = 'waiting', refusal = '', tries = 0",
            "id = ? AND state IN ('failed', 'cancelled')",
            (job,),
        )

    def _rows(self, which: str, values: Sequence[object]) -> tuple[Job, ...]:
        rows = self._records.rows(f"SELECT {_SHOWN} FROM jobs WHERE {which}", values)
        return tuple(map(_job, rows))

    def _changed(self, what: str, which: str, values: Sequence[object]) -> bool:
        with self._records.change() as link:
            return link.change(f"UPDATE jobs SET {what} WHERE {which}", values) > 0


def _job(row: tuple[Any, ...]) -> Job:
    return Job(*row)
