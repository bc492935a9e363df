"""The rounds that a site is in just now: in memory, since a site that was killed has left them.

What a stage gave once is given again for the same message: a reply may be lost on its way. So a
round never says two things at one stage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.features.federated.average_release import AverageOrder
from sfumato.features.federated.sum_release import SumOrder
from sfumato.features.federated.training_release import TrainOrder

JOIN: Final = "join"
MOST: Final = 16  # at once, of one user's: a reply that waits to be asked for again has a size
Reply = Callable[[], Json]


@dataclass
class Round:
    """One round at this site; has state."""

    order: SumOrder | AverageOrder | TrainOrder
    participant: Participant
    stage: str
    heard: bytes  # what the last reply was given to, hashed
    reply: Json
    lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, stage: str, message: bytes, reply: Reply) -> Json:
        """Return what the stage gives; the same message again has the same reply, made once."""
        heard = hash_of(message)
        with self.lock:
            if (self.stage, self.heard) != (stage, heard):
                self.reply = reply()
                self.stage, self.heard = stage, heard
            return self.reply


class Rounds:
    """The rounds that are open; has state. The oldest of a user's goes when there are too many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], Round] = {}

    def add(self, user: str, nonce: str, made: Round) -> None:
        """Keep a round that was joined."""
        with self._lock:
            own = [key for key in self._open if key[0] == user]
            for key in own[: max(0, len(own) - MOST + 1)]:
                del self._open[key]
            self._open[user, nonce] = made

    def find(self, user: str, nonce: str) -> Round | None:
        """Return the user's round, or None."""
        with self._lock:
            return self._open.get((user, nonce))

    def begun(self, user: str, invitation: bytes) -> Json | None:
        """Return what that invitation of the user's was answered with, or None."""
        heard = hash_of(invitation)
        with self._lock:
            own = [made for key, made in self._open.items() if key[0] == user]
        found = [made.reply for made in own if (made.stage, made.heard) == (JOIN, heard)]
        return found[0] if found else None


def hash_of(message: bytes) -> bytes:
    """Return what stands for a message that was heard."""
    return sha256(message).digest()
