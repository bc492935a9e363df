"""Readers of single data card fields; each refuses a value of another type or range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sfumato.dp.refusal import Refused

MOST: Final = 20  # the most faults of a card that one refusal lists


def check_known(shape: Mapping[str, object], known: set[str], where: str) -> None:
    """Refuse a table of the data card that has an unknown key."""
    unknown = sorted(set(shape) - known)
    if unknown:
        it_knows = ", ".join(sorted(known))
        named = ", ".join(map(repr, unknown[:MOST]))
        raise bad_card(f"{where} does not know {named} (it knows {it_knows})")


def as_table(shape: object, name: str, known: set[str] | None) -> Mapping[str, object]:
    """Return a data card field if it is a table with known keys only; refuse any other value."""
    if not isinstance(shape, Mapping):
        raise bad_card(f"{name} is missing or not a table")
    if known is not None:
        check_known(shape, known, name)
    return shape


def as_texts(shape: object, name: str) -> tuple[str, ...]:
    """Return a data card field as a tuple if it is a list of texts; refuse any other value."""
    if not isinstance(shape, list) or not all(isinstance(t, str) for t in shape):
        raise bad_card(f"{name} must be a list of texts")
    return tuple(shape)


def as_text(shape: object, name: str) -> str:
    """Return a data card field if it is a text of 1 to 200 printable characters; refuse others."""
    if isinstance(shape, str) and not shape.isprintable():
        raise bad_card(f"{name} has a character that cannot be printed, such as a line end")
    if not isinstance(shape, str) or not 1 <= len(shape) <= 200:
        raise bad_card(f"{name} must be a text of 1 to 200 letters")
    return shape


def as_count(shape: object, name: str) -> int:
    """Return a data card field if it is a whole number from 1 to 10,000,000,000; refuse others."""
    if isinstance(shape, bool) or not isinstance(shape, int) or not 1 <= shape <= 10**10:
        raise bad_card(f"{name} must be a whole number from 1")
    return shape


def bad_card(what: str) -> Refused:
    """Return the refusal of an invalid data card, for this reason."""
    return Refused(
        "bad-card",
        f"{what[0].upper()}{what[1:]}.",
        "Correct the data card, and add the data set again.",
    )


def refusals(readers: Iterable[Callable[[], object]]) -> list[Refused]:
    """Call each reader of a part of a data card, and return the refusals of all."""
    found = []
    for reader in readers:
        try:
            reader()
        except Refused as refused:
            found.append(refused)
    return found


def all_faults(first: Refused, others: Iterable[Refused]) -> Refused:
    """Return one refusal that lists all faults of a data card, each once."""
    causes = dict.fromkeys([*(one.cause for one in others)])
    if first.cause not in causes:
        causes = {first.cause: None, **causes}
    if len(causes) < 2:
        return first
    lines = [f"({number}) {cause}" for number, cause in enumerate([*causes][:MOST], 1)]
    more = [f"... and {len(causes) - MOST} more."] if len(causes) > MOST else []
    return Refused(
        first.code,
        f"The data card has {len(causes)} faults. {' '.join([*lines, *more])}",
        "Correct the data card, and add the data set again.",
    )
