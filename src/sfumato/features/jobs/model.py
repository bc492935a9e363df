"""Long work that goes on when nobody waits: what was asked for, by whom, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
STATES: Final = (WAITING, RUNNING, DONE, FAILED, CANCELLED)
OVER: Final = (DONE, FAILED, CANCELLED)
ASK, ADD = "ask", "add"


@dataclass(frozen=True)
class Job:
    """One piece of long work; of an answer or a row nothing is here."""

    id: str
    user: str
    token: str  # the id of the token that began it; a revoked one lets it go no further
    kind: str
    data_set: str
    op: str  # the operation: what is begun again pays once
    body: str  # what was asked for, as JSON with exact numbers
    created: str
    state: str = WAITING
    tries: int = 0  # how often it was begun; more than once after a crash
    refusal: str = ""  # as JSON, if it failed


class JobStore(Protocol):
    """Long work and how it stands; every change is durable when it returns."""

    def add(self, job: Job) -> Job:
        """Remember the job; or return the one that stands under the user's operation."""
        ...

    def find(self, job: str) -> Job | None:
        """Return one by its id, or None."""
        ...

    def of(self, user: str) -> tuple[Job, ...]:
        """Return the user's last hundred jobs, the newest first."""
        ...

    def ready(self, now: str) -> tuple[Job, ...]:
        """Return what waits, and what runs nowhere any more, the oldest first."""
        ...

    def claim(self, job: str, by: str, now: str, until: str) -> bool:
        """Let a runner have a job that is ready; say whether it is theirs."""
        ...

    def renew(self, by: str, until: str) -> None:
        """Say that the runner is still there."""
        ...

    def finish(self, job: str, by: str, state: str, refusal: str) -> bool:
        """End a job of the runner's; say whether it was theirs still."""
        ...

    def cancel(self, job: str) -> bool:
        """End a job that waits; say whether it did."""
        ...

    def again(self, job: str) -> bool:
        """Let a job wait again that failed or was cancelled; say whether it had."""
        ...
