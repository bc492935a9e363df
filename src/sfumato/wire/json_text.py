"""Read and write JSON with exact numbers; limit depth and length before parsing."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused

DEEPEST: Final = 128  # the most levels of nesting; the query reader takes fewer
LONGEST_NUMBER: Final = 64
_HALF: Final = re.compile("[\ud800-\udfff]")
_NO_BRACE: Final = re.compile(rb"[^\[\]{}]+")
# An unterminated string matches to the end: otherwise every quote in it could start a match.
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+(?:"|\Z|\\\Z)', re.DOTALL)
_NUMBER: Final = re.compile(rb"[0-9.eE+-]{%d,}" % (LONGEST_NUMBER + 1))


def read_json(text: bytes) -> dict[str, object]:
    """Parse a JSON object with exact decimals.

    Refuse text that is malformed or too deep, or that names a key twice.
    """
    bare = _STRING.sub(b'""', text.rstrip(b" "))  # spaces at the end pad a ballot to a fixed length
    if _depth(bare) > DEEPEST or _NUMBER.search(bare):
        raise bad_request("the JSON is too deep, or a number of it too long")
    read: object = None
    try:
        read = json.loads(
            text.decode("utf-8") or "{}",
            parse_float=Decimal,
            parse_constant=_no_constant,
            object_pairs_hook=_once,
        )
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict) or (b"\\" in text and cannot_be_kept(read)):
        raise bad_request("the body is no JSON object of whole letters, or names a key twice")
    return read


def read_reply(text: bytes) -> dict[str, object]:
    """Parse a reply's JSON object with floats as numbers; raise ValueError for any other text."""
    try:
        read = json.loads(text)
    except RecursionError:
        raise ValueError from None
    if not isinstance(read, dict):
        raise ValueError
    return read


def json_text(value: object) -> str:
    """Serialise a value as JSON; decimals and fractions are written exactly."""
    with contextlib.suppress(_ByHand):
        return _QUICK.encode(value)
    return _spelled(value)


class _ByHand(Exception):
    """Raised for a number that the fast JSON encoder can't write exactly; slower code then does."""


def _as_text(value: object) -> object:
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    raise _ByHand


_QUICK: Final = json.JSONEncoder(allow_nan=False, default=_as_text)


def _spelled(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(k))}: {_spelled(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    if isinstance(value, Fraction):
        return json.dumps(f"{value.numerator}/{value.denominator}")
    if isinstance(value, Decimal) and value.is_finite():
        return str(value).removeprefix("+")
    return json.dumps(value, allow_nan=False)


def bad_request(what: str) -> Refused:
    """Return the refusal of a malformed request, which says what is wrong."""
    return Refused(
        "bad-request",
        f"The request is malformed: {what}.",
        "Send a request of the form that /openapi.json describes.",
    )


def _depth(text: bytes) -> int:
    deepest = now = 0
    for byte in _NO_BRACE.sub(b"", text):
        if byte in b"{[":
            now += 1
            deepest = max(deepest, now)
        elif byte in b"}]":
            now -= 1
    return deepest


def cannot_be_kept(value: object) -> bool:
    """Return True if a text cannot be stored: it has an unpaired surrogate or a NUL character."""
    if isinstance(value, dict):
        return any(cannot_be_kept(one) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return any(map(cannot_be_kept, value))
    return isinstance(value, str) and ("\0" in value or _HALF.search(value) is not None)


def _no_constant(_name: str) -> object:
    raise ValueError


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made
