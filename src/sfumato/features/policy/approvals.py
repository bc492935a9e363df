"""What waits for a second person: a cap that somebody wants raised."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

from sfumato.dp.accounting.privacy_filter import Cap

WAITING, APPROVED, DECLINED, OUTDATED = "waiting", "approved", "declined", "outdated"
STATES: Final = (WAITING, APPROVED, DECLINED, OUTDATED)


@dataclass(frozen=True)
class Approval:
    """A cap that is raised when somebody else agrees; `before` is what it is raised from."""

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
    """Acts that wait for a second person; every change is durable when it returns."""

    def add(self, approval: Approval) -> None:
        """Remember an act that waits."""
        ...

    def find(self, approval: str) -> Approval | None:
        """Return one by its id, or None."""
        ...

    def all(self) -> tuple[Approval, ...]:
        """Return every one, the newest first."""
        ...

    def decide(self, approval: str, state: str, by: str, at: str) -> bool:
        """End the waiting of one; say whether this call was the one."""
        ...
