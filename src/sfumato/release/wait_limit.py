"""Limit how long an asker waits while another operation computes the same answer.

The limit depends only on card and price, so that it reveals nothing about the rows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sfumato.query.plan import KEYS_AT_ONCE
from sfumato.query.price import Priced

BASE_LIMIT_S: Final = 2 * 3600  # twice the engine's time limit: by then, an older read has ended
# assumed reading speed, applied to the most rows that the card allows
ROWS_A_SECOND: Final = 100_000
MAX_LIMIT_S: Final = 24 * 3600  # the longest wait for the histograms of many private keys
# a key with fewer people than this probability needs is ignored
SHOWN_PROBABILITY: Final = Fraction(1, 1000)


def wait_limit(priced: Priced) -> int:
    """Return how old (in seconds) a read may be for others to wait for its answer.

    Histograms of private keys are read 1,000 keys at a time (KEYS_AT_ONCE), so the limit grows with
    the number of keys. The limit uses an upper estimate, not the real keys. A key with few people
    is shown with a probability below 1/1000 (SHOWN_PROBABILITY), and is not counted. Each person of
    a key has a row, so the card's maximum of rows bounds the number of keys. The histograms never
    raise the limit above a day.
    """
    rows = priced.plan.measure.max_table_rows
    once = max(BASE_LIMIT_S, rows // ROWS_A_SECOND)
    if priced.selection is None or not priced.plan.has_histograms:
        return once
    keys = rows // priced.selection.people_for_odds(SHOWN_PROBABILITY)
    further = -(-keys // KEYS_AT_ONCE) * max(rows // ROWS_A_SECOND, 1)
    return max(once, min(once + further, MAX_LIMIT_S))
