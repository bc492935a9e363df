"""The data model of jobs: what was requested, by whom, and the job's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
OVER: Final = (DONE, FAILED, CANCELLED)
ASK, ADD, RUN = "ask", "add", "run"


@dataclass(frozen=True)
class Job:
    """One stored job: a request and its state; it has no answer and no rows."""

    id: str
    user: str
    token: str  # the id of the token that began the job; if it is revoked, the job stops
    kind: str
    data_set: str
    op: str  # the operation id; a restarted job has the same one, so it pays once
    body: str  # the request, as JSON with exact numbers
    created: str
    state: str = WAITING
    tries: int = 0  # how often it was started; more than once after a crash
    refusal: str = ""  # the refusal as JSON, if the job failed
    started: str = ""  # when a runner last took it


class JobStore(Protocol):
    """A store of jobs; every change is durable when its method returns."""

    def add(self, job: Job) -> Job:
        """Store the job, unless the user has one with its operation id; return the stored job."""
        ...

    def find(self, job: str) -> Job | None:
        """Return a job by its id, or None."""
        ...

    def of(self, user: str) -> tuple[Job, ...]:
        """Return the user's last hundred jobs, newest first."""
        ...

    def ready(self, now: str) -> tuple[Job, ...]:
        """Return the jobs to run: those that wait, and those whose runner's lease has expired.

        Each user's oldest jobs come first. Jobs without a token are left out, because their own
        (embedded) process runs them.
        """
        ...

    def claim(self, job: str, by: str, now: str, until: str) -> bool:
        """Lease a ready job to the runner `by` until a time; return True if this succeeds."""
        ...

    def renew(self, by: str, until: str) -> None:
        """Extend all leases of the runner `by` until a time; a living runner repeats this."""
        ...

    def finish(self, job: str, by: str, state: str, refusal: str) -> bool:
        """Store a job's final state; return False, unchanged, if the runner has lost its lease."""
        ...

    def cancel(self, job: str) -> bool:
        """Cancel a job if it still waits; return True if it was cancelled."""
        ...

    def requeue(self, job: str) -> bool:
        """Queue a failed or cancelled job again; return False for a job in another state."""
        ...
