"""Read fields of a request body; refuse a missing field or a wrong type."""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.wire.json_text import bad_request

Body = Mapping[str, object]


def text_of(body: Body, key: str) -> str:
    """Return a text field, or refuse."""
    value = body.get(key)
    if not isinstance(value, str):
        raise bad_request(f"{key} is a text")
    return value


def texts_of(body: Body, key: str) -> list[str]:
    """Return a field that is a list of texts, or refuse."""
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad_request(f"{key} is a list of texts")
    return list(value)


def count_of(body: Body, key: str, otherwise: int, most: int) -> int:
    """Return a whole number from 1 to `most`, or the default; or refuse."""
    value = body.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise bad_request(f"{key} is a whole number from 1 to {most}")
    return value


def optional_texts(body: Body, key: str) -> list[str] | None:
    """Return a list of texts, or None if the field is missing; or refuse."""
    return None if body.get(key) is None else texts_of(body, key)


def flag_of(body: Body, key: str) -> bool:
    """Return a boolean field, or refuse."""
    value = body.get(key)
    if not isinstance(value, bool):
        raise bad_request(f"{key} is true or false")
    return value


def text_or(body: Body, key: str, otherwise: str) -> str:
    """Return a text field, or the default if it is missing; or refuse."""
    return otherwise if body.get(key) is None else text_of(body, key)
