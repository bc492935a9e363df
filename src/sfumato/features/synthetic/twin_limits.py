"""Limits on the seed and the size of a twin (synthetic data)."""

from __future__ import annotations

from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.schema_twin import most_rows
from sfumato.vault.card.data_card import Card

MAX_VALUES: Final = 2_000_000  # the most cells of all tables together
MAX_FILES: Final = 20_000  # the most files of a BIDS folder


def seed_of(seed: str | None, dice: RandomSource) -> str:
    """Return the given seed, or a new random one; the synthetic twin's stamp records it."""
    if seed is None:
        return dice.draw(8).hex()
    if not 1 <= len(seed) <= 100 or not seed.isprintable():
        raise Refused(
            "not-in-language",
            "The seed of a synthetic twin must be 1 to 100 printable characters.",
            "Choose another seed.",
        )
    return seed


def check_rows(card: Card, rows: int) -> None:
    """Refuse a synthetic twin of more rows than the limits on cells and files allow."""
    if rows > largest(card, MAX_VALUES):
        raise Refused(
            "too-large",
            f"A synthetic twin of {rows:,} rows is too large to make at once.",
            "Ask for fewer rows.",
        )


def largest(card: Card, values: int) -> int:
    """Return the most rows of the first table (or people) that a twin may have.

    The limits are on the number of values (`values`), and of files in a BIDS folder.
    """
    people = [table for table in card.every_table if not table.is_public]
    # the mean number of rows per person, if each possible number is equally likely
    first = (1 + most_rows(people[0])) / 2
    width = sum((1 + most_rows(t)) / 2 / first * (len(t.columns) + 1) for t in people)
    by_files = MAX_FILES // (2 * len(card.bids)) if card.bids else values
    return max(1, min(int(values / width), by_files))
