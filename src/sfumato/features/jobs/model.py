"""The data model of jobs: what was requested, by whom, and the job's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
STATES: Final = (WAITING, RUNNING, DONE, FAILED, CANCELLED)
OVER: Final = (DONE, FAILED, CANCELLED)
ASK, ADD = "ask", "add"


@dataclass(frozen=True)
class Job:
    """One job: its request and state; it has no answer and no rows."""

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


class JobStore(Protocol):
    """A store of jobs; every change is durable when its method returns."""

    def add(self, job: Job) -> Job:
        """Store the job; or return the stored job of the same user and operation."""
        ...

    def find(self, job: str) -> Job | None:
        """Return a job by its id, or None."""
        ...

    def of(self, user: str) -> tuple[Job, ...]:
        """Return the user's last hundred jobs, newest first."""
        ...

    def ready(self, now: str) -> tuple[Job, ...]:
        """Return jobs that wait, or whose runner is gone, oldest first."""
        ...

    def claim(self, job: str, by: str, now: str, until: str) -> bool:
        """Lease a ready job to runner `by` until a time; return whether it got the job."""
        ...

    def renew(self, by: str, until: str) -> None:
        """Extend the leases of a runner that is alive."""
        ...

    def finish(self, job: str, by: str, state: str, refusal: str) -> bool:
        """End a runner's job; return whether it still had the lease."""
        ...

    def cancel(self, job: str) -> bool:
        """Cancel a job that waits; return whether it did."""
        ...

    def requeue(self, job: str) -> bool:
        """Queue a failed or cancelled job again; return whether it was one."""
        ...
