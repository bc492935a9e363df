"""Canonical encoding of secure aggregation messages: a kind, then length-prefixed fields.

Each message has exactly one encoding.
"""

from __future__ import annotations

from typing import Final

from sfumato.dp.refusal import Refused

MAGIC: Final = b"sfum-sum/1"
_COUNT: Final = 4
_LENGTH: Final = 8


def encode_fields(kind: str, *fields: bytes) -> bytes:
    """Encode byte fields as one message; `kind` names what the message is."""
    name = kind.encode("ascii")
    parts = [MAGIC, bytes([len(name)]), name, len(fields).to_bytes(_COUNT, "little")]
    for field in fields:
        parts += [len(field).to_bytes(_LENGTH, "little"), field]
    return b"".join(parts)


def decode_fields(message: bytes, kind: str, count: int | None = None) -> list[bytes]:
    """Decode a message into its byte fields; `kind` is the kind of message that is expected.

    A message of another kind is refused, and one whose number of fields is not `count`.
    """
    name = kind.encode("ascii")
    head = MAGIC + bytes([len(name)]) + name
    start = len(head) + _COUNT
    if not isinstance(message, bytes) or message[: len(head)] != head or len(message) < start:
        raise malformed(kind)
    said = int.from_bytes(message[len(head) : start], "little")
    if said > len(message) // _LENGTH or count not in (None, said):
        raise malformed(kind)
    return _fields(message, start, said, kind)


def _fields(message: bytes, start: int, count: int, kind: str) -> list[bytes]:
    fields = []
    for _ in range(count):
        begin = start + _LENGTH
        end = begin + int.from_bytes(message[start:begin], "little")
        if end > len(message):
            raise malformed(kind)
        fields.append(message[begin:end])
        start = end
    if start != len(message):
        raise malformed(kind)
    return fields


def exactly(field: bytes, size: int, kind: str) -> bytes:
    """Return a message field unchanged, or refuse it if it does not have exactly `size` bytes."""
    if len(field) != size:
        raise malformed(kind)
    return field


def malformed(kind: str) -> Refused:
    """Build the refusal of bytes that are not a message of this kind."""
    return refused(f"The bytes are not a message of the kind {kind!r}.")


def refused(cause: str) -> Refused:
    """Build the refusal (an exception) of a message, of which the receiver has stored nothing.

    `cause` is the sentence that says what is wrong.
    """
    return Refused(
        "sum-message-refused",
        cause,
        "The message was discarded. Send the message that the round's current stage expects, once.",
    )
