"""What a second person is asked to confirm: that rows are of people who have no budget yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sfumato.features.policy.approvals import WAITING


@dataclass(frozen=True)
class Confirmation:
    """The word of one named user, which one job waits for."""

    id: str
    job: str
    data_set: str
    people: str
    asked_of: str
    asked_by: str
    asked_at: str
    state: str = WAITING
    decided_by: str = ""
    decided_at: str = ""


class ConfirmationStore(Protocol):
    """What second persons are asked; every change is durable when it returns."""

    def add(self, confirmation: Confirmation) -> None:
        """Remember what somebody is asked."""
        ...

    def find(self, confirmation: str) -> Confirmation | None:
        """Return one by its id, or None."""
        ...

    def of_job(self, job: str) -> Confirmation | None:
        """Return the newest that the job waits for, or None."""
        ...

    def all(self) -> tuple[Confirmation, ...]:
        """Return every one, the newest first."""
        ...

    def decide(self, confirmation: str, state: str, by: str, at: str) -> bool:
        """End the waiting of one; say whether this call was the one."""
        ...
