"""Made-up pictures of digits, for sites that learn to read them.

The pictures are drawn here, eight by eight, from strokes that are moved, thinned and blotted by a
hash: nobody's data, and the same on every machine.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import Decimal
from hashlib import shake_256
from pathlib import Path
from typing import Any, Final

SIDE: Final = 8
INK: Final = 16
FEATURES: Final = tuple(f"p{place}" for place in range(SIDE * SIDE))
TARGET: Final = "digit"
# strokes: top, upper right, lower right, bottom, lower left, upper left, middle
STROKES: Final = (
    "123456", "23", "12754", "12734", "6723", "16734", "167345", "123", "1234567", "123467",
)  # fmt: skip
_LINES: Final = {
    "1": ((1, 2), (1, 5)), "2": ((1, 5), (3, 5)), "3": ((4, 5), (6, 5)), "4": ((6, 2), (6, 5)),
    "5": ((4, 2), (6, 2)), "6": ((1, 2), (3, 2)), "7": ((3, 2), (3, 5)),
}  # fmt: skip


def digits(count: int, seed: str) -> Iterator[dict[str, int]]:
    """Yield so many pictures, each a row of inks from 0 to 16 and the digit that it shows."""
    for number in range(count):
        drawn = shake_256(f"{seed} {number}".encode()).digest(4 + SIDE * SIDE)
        digit = drawn[0] % 10
        inks = _picture(STROKES[digit], 0, drawn[1] % 2, drawn[4:])
        yield {**dict(zip(FEATURES, inks, strict=True)), TARGET: digit}


def _picture(strokes: str, down: int, right: int, blots: bytes) -> list[int]:
    inks = [0] * (SIDE * SIDE)
    for stroke in strokes:
        (top, left), (bottom, end) = _LINES[stroke]
        for row in range(top, bottom + 1):
            for column in range(left, end + 1):
                inks[(row + down) % SIDE * SIDE + (column + right) % SIDE] = INK
    return [_blotted(ink, blot) for ink, blot in zip(inks, blots, strict=True)]


def _blotted(ink: int, blot: int) -> int:
    """Return an ink that is fainter or stronger; now and then a dot is lost or made."""
    if blot < 10:
        return INK - ink
    return max(0, min(INK, ink + blot % 9 - (6 if ink else 3)))


def digits_card(people: str, rows: int, epsilon: float = 100) -> dict[str, Any]:
    """Return the card of a site's pictures."""
    inks = {name: {"type": "integer", "lower": 0, "upper": INK} for name in FEATURES}
    return {
        "unit": "row",
        "people": people,
        "budget": {"epsilon": epsilon, "delta": Decimal("1e-3")},
        "limits": {"rows": 10 * rows},
        "ask": {"who": ["researchers"]},
        "columns": {**inks, TARGET: {"type": "integer", "lower": 0, "upper": 9}},
    }


def write_digits(path: Path, rows: list[dict[str, int]]) -> Path:
    """Write pictures as a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*FEATURES, TARGET))
        writer.writeheader()
        writer.writerows(rows)
    return path
