"""Limit how long an asker waits while another operation computes the same answer.

The limit depends on card and price alone, so that it reveals nothing about the rows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sfumato.query.plan import KEYS_AT_ONCE
from sfumato.query.price import Priced

BASE_LIMIT_S: Final = 2 * 3600  # twice the engine's limit: an older read has ended
ROWS_A_SECOND: Final = 100_000  # rows a second, for the most rows that the card allows
MAX_LIMIT_S: Final = 24 * 3600  # the longest wait for the histograms of many private keys
SHOWN_PROBABILITY: Final = Fraction(1, 1000)  # probability of being shown


def wait_limit(priced: Priced) -> int:
    """Return the largest age in seconds of a read for which another asker still waits.

    Histograms of private keys are read `KEYS_AT_ONCE` at a time, so the limit grows with the
    number of keys. It uses an upper estimate, not the real keys: with fewer people than
    SHOWN_PROBABILITY asks for, a key is hardly ever shown, and each person has a row. So the card's
    rows bound the number of keys. No wait is longer than a day.
    """
    rows = priced.plan.measure.max_table_rows
    once = max(BASE_LIMIT_S, rows // ROWS_A_SECOND)
    if priced.selection is None or not priced.plan.has_histograms:
        return once
    keys = rows // priced.selection.people_for_odds(SHOWN_PROBABILITY)
    further = -(-keys // KEYS_AT_ONCE) * max(rows // ROWS_A_SECOND, 1)
    return max(once, min(once + further, MAX_LIMIT_S))
