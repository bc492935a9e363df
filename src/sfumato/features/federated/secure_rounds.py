"""The open rounds of a site, in memory only: a site that is killed has left its rounds.

A reply may be lost, so the convener may repeat a message. A stage answers the same message with the
same reply. So a round never sends two different replies at one stage.
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
MAX_ROUNDS: Final = 16  # rounds per user: a stored reply takes memory
Reply = Callable[[], Json]


@dataclass
class Round:
    """One open secure-sum round at this site, and its last reply; it changes at every stage."""

    order: SumOrder | AverageOrder | TrainOrder
    participant: Participant
    stage: str
    heard: bytes  # hash of the last message answered
    reply: Json
    lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, stage: str, message: bytes, reply: Reply) -> Json:
        """Return the reply to a stage's message; the same message again gets the stored reply."""
        heard = hash_of(message)
        with self.lock:
            if (self.stage, self.heard) != (stage, heard):
                self.reply = reply()
                self.stage, self.heard = stage, heard
            return self.reply


class Rounds:
    """The open secure-sum rounds of a site; beyond a limit, a user's oldest round is dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], Round] = {}

    def add(self, user: str, nonce: str, made: Round) -> None:
        """Store a round that this site joined; drop the user's oldest round beyond the limit."""
        with self._lock:
            own = [key for key in self._open if key[0] == user]
            for key in own[: max(0, len(own) - MAX_ROUNDS + 1)]:
                del self._open[key]
            self._open[user, nonce] = made

    def find(self, user: str, nonce: str) -> Round | None:
        """Return the user's open round with this nonce (its random identifier), or None."""
        with self._lock:
            return self._open.get((user, nonce))

    def begun(self, user: str, invitation: bytes) -> Json | None:
        """Return the reply that this user's same invitation got before, or None if there was none.

        So a repeated invitation joins no round twice.
        """
        heard = hash_of(invitation)
        with self._lock:
            own = [made for key, made in self._open.items() if key[0] == user]
        found = [made.reply for made in own if (made.stage, made.heard) == (JOIN, heard)]
        return found[0] if found else None


def hash_of(message: bytes) -> bytes:
    """Return the SHA-256 of a message, by which a repeated message is recognised."""
    return sha256(message).digest()
