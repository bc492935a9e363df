"""The job service: begin, show and cancel jobs, and lease them to runners."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.jobs.model import (
    ADD,
    ASK,
    CANCELLED,
    DONE,
    FAILED,
    OVER,
    RUN,
    RUNNING,
    WAITING,
    Job,
    JobStore,
)
from sfumato.vault.ports import Clock
from sfumato.vault.users import Caller

__all__ = ["ADD", "ASK", "CANCELLED", "FAILED", "RUN", "WAITING", "Job", "Jobs"]

OPEN: Final = 20  # the most unfinished jobs of one user
# lease time; a runner that does not renew for longer counts as gone
LEASE: Final = timedelta(seconds=6)


@dataclass(frozen=True)
class Jobs:
    """The job service of one vault: users queue, show and cancel jobs, and runners lease them."""

    store: JobStore
    dice: RandomSource
    clock: Clock

    def begin(  # noqa: PLR0913  # a job's fields
        self,
        caller: Caller,
        kind: str,
        data_set: str,
        body: str,
        op: str | None,
        *,
        as_stored: Callable[[str], str] = str,
    ) -> Job:
        """Queue a request as a job, and return the job.

        A repeated operation id returns the same job, and queues it again if it failed or was
        cancelled.
        """
        return self.requeue(self.add_once(caller, kind, data_set, body, op, as_stored=as_stored))

    def add_once(  # noqa: PLR0913  # a job's fields
        self,
        caller: Caller,
        kind: str,
        data_set: str,
        body: str,
        op: str | None,
        *,
        as_stored: Callable[[str], str] = str,
    ) -> Job:
        """Store a new waiting job, or return the existing job of the operation unchanged.

        `as_stored` converts the body of an existing job to the form in which this version would
        store it.
        """
        _check_op(op)
        self._check_few(caller, op)
        name = self.dice.draw(12).hex()
        made = Job(
            id=name,
            user=caller.user,
            token=caller.token,
            kind=kind,
            data_set=data_set,
            op=op or name,
            body=body,
            created=self.clock.now(),
        )
        job = self.store.add(made)
        if (job.kind, job.data_set, as_stored(job.body)) != (kind, data_set, body):
            raise Refused(
                "op-reused",
                "This operation id already belongs to another job of yours.",
                "Choose a new operation id, or leave it out.",
            )
        return job

    def requeue(self, job: Job) -> Job:
        """Queue a failed or cancelled job again; return the job."""
        self.store.requeue(job.id)
        return self.store.find(job.id) or job

    def all(self, caller: Caller) -> list[Json]:
        """Return the caller's last hundred jobs as JSON, newest first."""
        jobs = self.store.of(caller.user)
        return [self.shown(job) for job in jobs if caller.reaches(job.data_set)]

    def one(self, caller: Caller, job: str) -> Job:
        """Return one of the caller's jobs; another user's job gets the refusal of a missing one."""
        found = self.store.find(job) if job.isalnum() and job.isascii() else None
        if found is None or found.user != caller.user or not caller.reaches(found.data_set):
            raise Refused(
                "job-unknown",
                "You have no job with this id.",
                "Take the id from the list of your jobs (GET /v1/jobs).",
            )
        return found

    def cancel(self, caller: Caller, job: str) -> Job:
        """Cancel a job that waits; refuse one that has started, which is paid and continues."""
        found = self.one(caller, job)
        if not self.store.cancel(found.id) and self.one(caller, job).state != "cancelled":
            raise Refused(
                "job-begun",
                "The job cannot be cancelled: it already reads rows, or it is over.",
                "Wait until the job ends. Its price is already paid.",
            )
        return self.one(caller, job)

    def shown(self, job: Job) -> Json:
        """Return the job as JSON for its user: ids, state, refusal and elapsed seconds.

        The elapsed time is the only measure of progress.
        """
        is_running = job.state == RUNNING and job.started
        return {
            "job": job.id,
            "kind": job.kind,
            "data_set": job.data_set,
            "op": job.op,
            "state": job.state,
            "begun": job.created,
            "seconds": None if job.state in OVER else self._since(job.created),
            "running": self._since(job.started) if is_running else None,
            "failed": json.loads(job.refusal) if job.refusal else None,
        }

    def _since(self, then: str) -> int:
        since = datetime.fromisoformat(self.clock.now()) - datetime.fromisoformat(then)
        return max(0, int(since.total_seconds()))

    # --- for runners ----------------------------------------------------------------------------

    def runner(self) -> str:
        """Return a new, random name for a runner: a process that runs queued jobs."""
        return self.dice.draw(12).hex()

    def ready(self) -> tuple[Job, ...]:
        """Return the jobs to run: those that wait, and those whose runner's lease has expired."""
        return self.store.ready(self.clock.now())

    def claim(self, job: Job, by: str) -> Job | None:
        """Lease a ready job to the runner `by`; return the job, or None if it is not ready."""
        now = self.clock.now()
        return self.store.find(job.id) if self.store.claim(job.id, by, now, _later(now)) else None

    def renew(self, by: str) -> None:
        """Extend all leases of the runner `by`; a living runner repeats this."""
        self.store.renew(by, _later(self.clock.now()))

    def finish(self, job: Job, by: str, refusal: Json | None) -> None:
        """Store that a runner's job is done, or that it failed with a refusal."""
        state = DONE if refusal is None else FAILED
        self.store.finish(job.id, by, state, "" if refusal is None else json.dumps(refusal))

    def _check_few(self, caller: Caller, op: str | None) -> None:
        """Refuse a new job if the user already has OPEN (20) unfinished ones.

        A repeated operation id belongs to an existing job, so it is not refused.
        """
        found = self.store.of(caller.user)
        if any(job.op == op for job in found):
            return
        if sum(job.state not in OVER for job in found) >= OPEN:
            raise Refused(
                "too-many",
                f"You have {OPEN} unfinished jobs, which is the maximum.",
                "Wait until one of them is finished, or cancel one.",
            )


def _check_op(op: str | None) -> None:
    if op is not None and not (1 <= len(op) <= 100 and op.isprintable()):
        raise Refused(
            "bad-request",
            "An operation id must be 1 to 100 printable characters.",
            "Choose another operation id.",
        )


def _later(now: str) -> str:
    return (datetime.fromisoformat(now) + LEASE).isoformat(timespec="milliseconds")
