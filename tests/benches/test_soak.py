"""What the bench of hours asks is new each time: what was asked before would not be charged."""

from __future__ import annotations

from bench.load import KINDS
from bench.soak import _new_sql


def test_no_question_of_hours_is_asked_twice() -> None:
    numbers = (
        *range(0, 3 * KINDS, 97),
        *range(KINDS - 500, KINDS + 500),
        *range(2 * KINDS, 2 * KINDS + 500),
    )
    assert len({_new_sql(number) for number in numbers}) == len(set(numbers))
