"""How long an asker waits for another's reading of the same answer: of card and price alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sfumato.query.plan import KEYS_AT_ONCE
from sfumato.query.price import Priced

PATIENCE_S: Final = 2 * 3600  # a reader who is older is gone; twice what an engine may take
PATIENT_ROWS: Final = 100_000  # a second, of as many rows as the card lets the question have
LONGEST_S: Final = 24 * 3600  # that anybody waits for the lists of many private keys
FEW: Final = Fraction(1, 1000)  # odds of being shown


def wait_limit(priced: Priced) -> int:
    """Return how old a reading may be to be waited for: of card and price, never of the keys.

    Lists of private keys are read so many keys at a time. A key is hardly ever shown of fewer
    people than `FEW` says, and each of them has a row, so the card's rows say how many keys are to
    be expected at most; but nobody waits longer than a day for that.
    """
    rows = priced.plan.measure.most_rows
    once = max(PATIENCE_S, rows // PATIENT_ROWS)
    if priced.selection is None or not priced.plan.has_lists:
        return once
    keys = rows // priced.selection.shown_from(FEW)
    further = -(-keys // KEYS_AT_ONCE) * max(rows // PATIENT_ROWS, 1)
    return max(once, min(once + further, LONGEST_S))
