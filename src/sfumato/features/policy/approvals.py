"""Requests to raise a cap that a second person must approve, and the protocol to store them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from sfumato.dp.accounting.privacy_filter import Cap

WAITING, APPROVED, DECLINED, OUTDATED = "waiting", "approved", "declined", "outdated"


@dataclass(frozen=True)
class Approval:
    """A request to raise a cap from its value `before`; a second person must approve it."""

    id: str
    data_set: str
    account: str
    before: Cap
    epsilon: Fraction
    delta: Fraction
    why: str
    asked_by: str
    asked_at: str
    state: str = WAITING
    decided_by: str = ""
    decided_at: str = ""


class ApprovalStore(Protocol):
    """A store of requests to raise a cap; a change is durable when its call returns."""

    def add(self, approval: Approval) -> None:
        """Store a request to raise a cap, which waits for approval."""
        ...

    def find(self, approval: str) -> Approval | None:
        """Return the request to raise a cap with this id, or None."""
        ...

    def all(self) -> tuple[Approval, ...]:
        """Return all requests to raise a cap, the newest first."""
        ...

    def decide(self, approval: str, state: str, by: str, at: str) -> bool:
        """Store the decision on a waiting request; return whether it was still waiting."""
        ...
