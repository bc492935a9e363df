"""A fleet site at one stage of a round: a process that handles one message and exits.

Flower starts a new client process for every message, so a `Participant` is saved between stages.
Its secrets are encrypted on disk. The key exists only in the memory of the node's SuperNode
(Flower's context). Without the key or the file, the secrets are lost. Saved state is deleted before
it is used. Otherwise two messages of one stage could read the same state, and make the site reveal
both secrets of a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields, refused
from sfumato.dp.secure_aggregation.participant import Participant, bad_update
from sfumato.dp.secure_aggregation.round_terms import not_trusted
from sfumato.features.federated.flower.fleet_node import Node
from sfumato.features.federated.flower.fleet_schedule import Plan, number_and_task, read_schedule

STAGES: Final = ("join", "share", "mask", "agree", "reveal")
Numbers = NDArray[np.float64]
_NONCE_BYTES: Final = 12


class Part:
    """One fleet site's part in a secure-sum round: it answers the messages of the stages.

    Between two stages its state is on disk, encrypted with `key`.
    """

    def __init__(self, node: Node, key: bytes, dice: RandomSource) -> None:
        self._node = node
        self._key = key
        self._dice = dice

    def join(self, invitation: bytes, spelled: str) -> bytes:
        """Check the round's terms and the budget, then return this site's keys for the round."""
        plan = Plan(self._node.agreement(), read_schedule(spelled))
        player = self._player(plan)
        said = player.join(invitation)
        number, task = number_and_task(player.terms.about)
        if player.terms != plan.terms(player.terms.nonce, number, task):
            raise not_trusted("they differ from the agreement and the schedule")
        with self._node.turn() as turn:
            turn.take_nonce(player.terms.nonce)
            turn.check_chargeable(plan, number)
            turn.forget_rounds()
            turn.keep(player.terms.nonce, self._sealed(player, spelled))
        return said

    def go_on(self, stage: str, nonce: bytes, message: bytes) -> bytes:
        """Return this site's message for a stage that reads no row: `share`, `agree`, `reveal`."""
        player, spelled = self._resumed(nonce)
        match stage:
            case "share":
                said = player.share(message)
            case "agree":
                said = player.agree(message)
            case "reveal":
                return player.reveal(message)  # the round is over, so save no state
            case _:
                raise refused("There is no such stage.")
        with self._node.turn() as turn:
            turn.keep(nonce, self._sealed(player, spelled))
        return said

    def mask(
        self, nonce: bytes, message: bytes, task: str, update: Callable[[], Numbers | None]
    ) -> bytes:
        """Charge the site, compute the update, clip it, add any noise, and return it masked.

        The charge comes before the update is computed. The app may fail or return invalid numbers,
        and a failure can depend on a row. So a site of a private sum then sends noise only.
        """
        player, spelled = self._resumed(nonce)
        plan = Plan(self._node.agreement(), read_schedule(spelled))
        player.receive_shares(message)
        number, agreed_task = number_and_task(player.terms.about)
        if task != agreed_task:
            raise not_trusted("the model or its settings differ from what all sites have signed")
        with self._node.turn() as turn:
            turn.charge(plan, number)
        said = player.masked(plan.integers(self._numbers(plan, update()), self._dice))
        with self._node.turn() as turn:
            turn.keep(nonce, self._sealed(player, spelled))
        return said

    def _numbers(self, plan: Plan, found: Numbers | None) -> Numbers:
        size = plan.schedule.size
        if found is not None and found.shape == (size,) and np.isfinite(found).all():
            return found
        if plan.noise is None:
            raise bad_update("The app must give finite numbers of the round's shape.")
        return np.zeros(size)

    def _player(self, plan: Plan) -> Participant:
        node, trust = self._node, plan.cohort.trust()
        # `join` checks nonces of earlier rounds, in the transaction that stores this nonce
        return Participant(node.rules.name, node.identity, trust, self._dice, set())

    def _sealed(self, player: Participant, spelled: str) -> bytes:
        at = self._dice.draw(_NONCE_BYTES)
        words = encode_fields("part", player.serialise(), spelled.encode())
        return at + ChaCha20Poly1305(self._key).encrypt(at, words, player.terms.nonce)

    def _resumed(self, nonce: bytes) -> tuple[Participant, str]:
        with self._node.turn() as turn:
            sealed = turn.take_kept(nonce)
        try:
            lock = ChaCha20Poly1305(self._key)
            words = lock.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], nonce)
        except (InvalidTag, ValueError) as wrong:
            raise refused(
                "The SuperNode stopped after that, and the secrets of the round are lost."
            ) from wrong
        kept, spelled = decode_fields(words, "part", 2)
        player = self._player(Plan(self._node.agreement(), read_schedule(spelled.decode())))
        player.resume(kept)
        return player, spelled.decode()
