"""Confirmations by a second person that the people of added rows have no budget so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sfumato.features.policy.approvals import WAITING


@dataclass(frozen=True)
class Confirmation:
    """A confirmation that an add job needs from one named user: the people are new."""

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
    """A store of second persons' confirmations; a change is durable when its call returns."""

    def add(self, confirmation: Confirmation) -> None:
        """Store a confirmation that a second person has to decide."""
        ...

    def find(self, confirmation: str) -> Confirmation | None:
        """Return the confirmation with this id, or None."""
        ...

    def of_job(self, job: str) -> Confirmation | None:
        """Return the newest confirmation of an add job, or None."""
        ...

    def all(self) -> tuple[Confirmation, ...]:
        """Return all confirmations, the newest first."""
        ...

    def decide(self, confirmation: str, state: str, by: str, at: str) -> bool:
        """Store the decision on a waiting confirmation; return whether it was still waiting."""
        ...
