"""The client's side in Flower: a mod around an app that trains, of which only masked words leave.

The app stays as it is: it gets a model and settings, and answers with the model that it has
trained. What it answers goes no further than here. Its metrics are dropped, and so is the text of
its exceptions, which Flower would send to the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields, refused
from sfumato.dp.secure_aggregation.participant import Participant, bad_update
from sfumato.dp.secure_aggregation.round_terms import not_trusted
from sfumato.features.federated.flower.fleet_node import Node
from sfumato.features.federated.flower.fleet_schedule import (
    ARRAYS,
    OURS,
    SETTINGS,
    Plan,
    check_records,
    flat,
    number_and_task,
    read_schedule,
    task_digest,
)
from sfumato.system.randomness import StretchedDice

# --- A site of a fleet at one stage of a round: a process that begins, says one thing, and ends
#
# Flower starts a client anew for every message, so a `Participant` is written down between stages.
# Its secrets are encrypted on disk, by a key that lives in the memory of the node's SuperNode alone
# (Flower's context): when either is gone, they are. What was kept is given once, and deleted before
# it is used: two messages of one stage would otherwise both find the same state, and could be told
# to reveal both secrets of a neighbour.


STAGES: Final = ("join", "share", "mask", "agree", "reveal")
Numbers = NDArray[np.float64]
_NONCE_BYTES: Final = 12


class Part:
    """A site's part in a fleet's rounds; `key` encrypts what it keeps between two stages."""

    def __init__(self, node: Node, key: bytes, dice: Dice) -> None:
        self._node = node
        self._key = key
        self._dice = dice

    def join(self, invitation: bytes, spelled: str) -> bytes:
        """Return this site's keys for a round that it may take part in, and could pay."""
        plan = Plan(self._node.agreement(), read_schedule(spelled))
        player = self._player(plan)
        said = player.join(invitation)
        number, task = number_and_task(player.terms.about)
        if player.terms != plan.terms(player.terms.nonce, number, task):
            raise not_trusted("they are not those of the agreement and the schedule")
        with self._node.turn() as turn:
            turn.take_nonce(player.terms.nonce)
            turn.look(plan, number)
            turn.forget_rounds()
            turn.keep(player.terms.nonce, self._sealed(player, spelled))
        return said

    def go_on(self, stage: str, nonce: bytes, message: bytes) -> bytes:
        """Return this site's message of a stage in which no row is touched."""
        player, spelled = self._resumed(nonce)
        match stage:
            case "share":
                said = player.share(message)
            case "agree":
                said = player.agree(message)
            case "reveal":
                return player.reveal(message)  # and nothing is kept: the round is over
            case _:
                raise refused("There is no such stage.")
        with self._node.turn() as turn:
            turn.keep(nonce, self._sealed(player, spelled))
        return said

    def mask(
        self, nonce: bytes, message: bytes, task: str, update: Callable[[], Numbers | None]
    ) -> bytes:
        """Return the update under its noise and masks; it is charged before it is computed.

        Where there is none (the app failed, or what it gave are no such numbers) a site of a
        private sum sends nothing but noise: whether an app fails can depend on a row.
        """
        player, spelled = self._resumed(nonce)
        plan = Plan(self._node.agreement(), read_schedule(spelled))
        player.hear(message)
        number, agreed_task = number_and_task(player.terms.about)
        if task != agreed_task:
            raise not_trusted("the model or its settings are not those that all sites have signed")
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
            raise bad_update("The app gave no finite numbers of the round's shape.")
        return np.zeros(size)

    def _player(self, plan: Plan) -> Participant:
        node, trust = self._node, plan.cohort.trust()
        # the nonces of earlier rounds are looked up in the file, in the turn that puts this down
        return Participant(node.rules.name, node.identity, trust, self._dice, set())

    def _sealed(self, player: Participant, spelled: str) -> bytes:
        at = self._dice.draw(_NONCE_BYTES)
        words = encode_fields("part", player.kept(), spelled.encode())
        return at + ChaCha20Poly1305(self._key).encrypt(at, words, player.terms.nonce)

    def _resumed(self, nonce: bytes) -> tuple[Participant, str]:
        with self._node.turn() as turn:
            sealed = turn.take_kept(nonce)
        try:
            lock = ChaCha20Poly1305(self._key)
            words = lock.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], nonce)
        except (InvalidTag, ValueError) as wrong:
            raise refused(
                "The SuperNode has ended since, and the round's secrets with it."
            ) from wrong
        kept, spelled = decode_fields(words, "part", 2)
        player = self._player(Plan(self._node.agreement(), read_schedule(spelled.decode())))
        player.resume(kept)
        return player, spelled.decode()


KEY_BYTES: Final = 32
Next = Callable[[Message, Context], Message]
_LOG: Final = logging.getLogger("flwr")


def secure_mod(setting: str = "sfumato-site") -> Callable[[Message, Context, Next], Message]:
    """Return the mod of a site whose folder the node's configuration names under that setting."""

    def mod(message: Message, context: Context, call_next: Next) -> Message:
        try:
            said = _said(setting, message, context, call_next)
        except Refused as refusal:
            _LOG.warning("sfumato: %s", refusal)
            said = {"refused": refusal.code}
        return Message(RecordDict({OURS: ConfigRecord(said)}), reply_to=message)

    return mod


def _said(setting: str, message: Message, context: Context, call_next: Next) -> dict[str, Any]:
    """Return what the site says at that stage; Any: bytes and texts of a record."""
    asked = message.content.get(OURS)
    folder = context.node_config.get(setting)
    if not isinstance(asked, ConfigRecord) or not isinstance(folder, str):
        raise refused(f"It is none of a secure sum, or the node has no setting {setting!r}.")
    stage, nonce, heard = (_bytes(asked, name) for name in ("stage", "nonce", "message"))
    part = Part(Node(Path(folder)), _key(context, stage == b"join"), StretchedDice())
    if stage == b"join":
        return {"message": part.join(heard, _bytes(asked, "schedule").decode())}
    if stage != b"mask":
        return {"message": part.go_on(stage.decode(), nonce, heard)}
    check_records(message.content)
    arrays = _arrays(message)
    settings = dict(message.content.get(SETTINGS, {}))

    def update() -> Numbers | None:
        return _trained(arrays, message, context, call_next)

    return {"message": part.mask(nonce, heard, task_digest(arrays, settings), update)}


def _key(context: Context, is_new: bool) -> bytes:
    """Return the key in the SuperNode's memory, a new one for every round."""
    if is_new:
        context.state[OURS] = ConfigRecord({"key": StretchedDice().draw(KEY_BYTES)})
    held = context.state.get(OURS)
    key = held.get("key") if isinstance(held, ConfigRecord) else None
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise refused("The SuperNode has ended since, and the round's secrets with it.")
    return key


def _trained(
    arrays: dict[str, Any], message: Message, context: Context, call_next: Next
) -> Numbers | None:
    """Return how the app moves the model; None if it fails, whatever the reason."""
    try:
        reply = call_next(message, context)
        return flat(_arrays(reply), arrays) - flat(arrays, arrays)
    except SystemExit:
        said = "it ended itself"
    except Exception as wrong:  # noqa: BLE001  # its text could hold a row
        said = type(wrong).__name__
    _LOG.error("sfumato: the app gave no update (%s); the site adds nothing to the sum", said)
    return None


def _arrays(message: Message) -> dict[str, Any]:
    record = message.content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise refused(f"A message of a model holds it as the record {ARRAYS!r}.")
    return {name: array.numpy() for name, array in record.items()}


def _bytes(asked: ConfigRecord, name: str) -> bytes:
    found = asked.get(name)
    if not isinstance(found, bytes):
        raise refused(f"The message holds no bytes {name!r}.")
    return found
