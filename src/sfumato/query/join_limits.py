"""How many rows a join may have, by what the card says of each of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Limits, Table

MAX_ROWS: Final = 10**10  # that a join may have by the card's limits
MAX_ROWS_PER_PERSON: Final = 10**6


def limits_of(private: Sequence[Table]) -> Limits:
    """Return what a join of these may have: every row of a person beside every other of theirs."""
    if len(private) == 1:
        return private[0].limits
    per_person = prod(table.limits.rows_per_person for table in private)
    rows = min(
        table.limits.rows * (per_person // table.limits.rows_per_person) for table in private
    )
    if rows > MAX_ROWS or per_person > MAX_ROWS_PER_PERSON:
        raise Refused(
            "question-too-large",
            f"By the card's limits these tables make up to {rows:,} rows together, and "
            f"{per_person:,} of one person; {MAX_ROWS:,} and {MAX_ROWS_PER_PERSON:,} are the most.",
            "Ask the owner to declare limits.rows and limits.rows_per_person for each table.",
        )
    return Limits(rows, per_person, max(table.limits.text_length for table in private))
