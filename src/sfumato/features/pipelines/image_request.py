"""Requests of researchers for images at a registry, which an operator accepts or declines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.dp.json_values import Json
from sfumato.sandbox.program_environment import IMAGE

WAITING, ACCEPTED, DECLINED = "waiting", "accepted", "declined"
THERE: Final = "there"  # shown of a request whose image is on the machine; never stored
MAX_WAITING: Final = 5  # the most waiting requests of one person
MAX_REQUESTS: Final = 100  # the most requests of one person in so many days
MAX_REQUESTS_DAYS: Final = 30
MAX_REASON: Final = 1000  # the most letters of a reason


@dataclass(frozen=True)
class ImageRequest:
    """A researcher's request for an image by its digest, with the operator's decision."""

    id: str
    by: str
    image: str  # REGISTRY/NAME@sha256:DIGEST
    why: str
    at: str
    state: str = WAITING
    decided_by: str = ""
    decided_at: str = ""
    reason: str = ""

    @property
    def environment(self) -> str:
        """Return the name that the image has as an environment of programs."""
        return f"{IMAGE}-{self.image.rpartition(':')[2]}"

    def as_json(self, brought: Sequence[str]) -> Json:
        """Return the request as JSON; its state says whether the image is on this machine."""
        return {
            "request": self.id,
            "by": self.by,
            "image": self.image,
            "environment": self.environment,
            "why": self.why,
            "at": self.at,
            "state": THERE if self.environment in brought else self.state,
            "decided_by": self.decided_by,
            "decided_at": self.decided_at,
            "reason": self.reason,
        }


class ImageRequestStore(Protocol):
    """A store of requests for images; a change is durable when its call returns."""

    def add(self, one: ImageRequest) -> None:
        """Store a request."""
        ...

    def all(self) -> tuple[ImageRequest, ...]:
        """Return all requests, the newest first."""
        ...

    def decide(self, one: ImageRequest) -> None:
        """Store the decision on a request."""
        ...
