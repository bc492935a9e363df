"""Validate the names of users and groups."""

from __future__ import annotations

from sfumato.dp.refusal import Refused


def check_words(*words: str) -> None:
    """Refuse an invalid name of a user or group."""
    for word in words:
        if not 1 <= len(word) <= 100 or not word.isprintable() or "/" in word:
            raise Refused(
                "unknown-user",
                "The name of a user or group must be 1 to 100 printable letters without '/'.",
                "Choose another name.",
            )
