"""The client side in Flower: a mod around a training app that sends only masked updates.

The app does not change: it receives a model and settings, and returns the trained model. The mod
does not forward that model. It drops the app's metrics, and the text of its exceptions, which
Flower would send to the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.message_encoding import refused
from sfumato.features.federated.flower.fleet_node import Node
from sfumato.features.federated.flower.fleet_schedule import (
    ARRAYS,
    OURS,
    SETTINGS,
    check_records,
    flat,
    task_digest,
)
from sfumato.features.federated.flower.round_stages import Numbers, Part
from sfumato.system.randomness import BulkRandomSource

KEY_BYTES: Final = 32
Next = Callable[[Message, Context], Message]
_LOG: Final = logging.getLogger("flwr")


def secure_mod(setting: str = "sfumato-site") -> Callable[[Message, Context, Next], Message]:
    """Return the Flower mod that wraps a site's training app and sends only masked updates.

    The node's configuration names the site's folder under `setting`.
    """

    def mod(message: Message, context: Context, call_next: Next) -> Message:
        try:
            said = _said(setting, message, context, call_next)
        except Refused as refusal:
            _LOG.warning("sfumato: %s", refusal)
            said = {"refused": refusal.code}
        return Message(RecordDict({OURS: ConfigRecord(said)}), reply_to=message)

    return mod


def _said(setting: str, message: Message, context: Context, call_next: Next) -> dict[str, Any]:
    """Handle the server's message for one stage of a round; return the site's reply as a record.

    The values of the record's fields are bytes or texts.
    """
    asked = message.content.get(OURS)
    folder = context.node_config.get(setting)
    if not isinstance(asked, ConfigRecord) or not isinstance(folder, str):
        raise refused(
            f"The message is not part of a secure sum, or the node has no setting {setting!r}."
        )
    stage, nonce, heard = (_bytes(asked, name) for name in ("stage", "nonce", "message"))
    part = Part(Node(Path(folder)), _key(context, stage == b"join"), BulkRandomSource())
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
    """Return the key that encrypts the round's state, from the SuperNode's memory.

    The first stage, `join`, makes a new key.
    """
    if is_new:
        context.state[OURS] = ConfigRecord({"key": BulkRandomSource().draw(KEY_BYTES)})
    held = context.state.get(OURS)
    key = held.get("key") if isinstance(held, ConfigRecord) else None
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise refused("The SuperNode stopped after that, and the secrets of the round are lost.")
    return key


def _trained(
    arrays: dict[str, Any], message: Message, context: Context, call_next: Next
) -> Numbers | None:
    """Return the app's update of the model, or None if the app fails for any reason.

    The log gets the type of the error, and never its text.
    """
    try:
        reply = call_next(message, context)
        return flat(_arrays(reply), arrays) - flat(arrays, arrays)
    except SystemExit:
        said = "it stopped itself"
    except Exception as wrong:  # noqa: BLE001  # the text could contain a row
        said = type(wrong).__name__
    _LOG.error("sfumato: the app gave no update (%s); the site adds nothing to the sum", said)
    return None


def _arrays(message: Message) -> dict[str, Any]:
    record = message.content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise refused(f"The message does not contain the model as the record {ARRAYS!r}.")
    return {name: array.numpy() for name, array in record.items()}


def _bytes(asked: ConfigRecord, name: str) -> bytes:
    found = asked.get(name)
    if not isinstance(found, bytes):
        raise refused(f"The message holds no bytes {name!r}.")
    return found
