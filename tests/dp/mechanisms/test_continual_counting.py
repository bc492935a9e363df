"""Streams: what one person can move, over every spread of their rows, and along every path."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest

from sfumato.dp.budget import MIN_EPSILON
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.features.streams.stream_plan import MAX_ROWS, Stream
from sfumato.query.expression import DateTrunc, Ref, Unit
from sfumato.query.grouping_keys import LISTED
from sfumato.query.model import Aggregate, Output, Query
from support.stream_oracle import Day, taken_by_hand

SMALL = [Tree(n, b) for n in range(1, 7) for b in range(2, n + 2)]


def blocks(tree: Tree, counts: list[int]) -> list[int]:
    series = np.array(counts, dtype=np.int64).reshape(1, -1, 1)
    made: list[int] = tree.blocks(series).ravel().tolist()
    return made


def stream(periods: int, rows: int, epsilon: Fraction) -> Stream:
    along = DateTrunc("day", Ref("day"))
    outputs = (Output("day", along), Output("n", Aggregate("running_count", (along,))))
    question = Query("visits", outputs, None, (along,))
    return Stream("visits", "s", question, "2026-01-01", periods, rows, epsilon)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("tree", SMALL)
def test_no_spread_of_a_persons_rows_moves_the_blocks_by_more_than_c_levels(
    tree: Tree, most: int
) -> None:
    """Brute force, with people who have more rows than count."""
    worst = 0
    for rows in product(range(most + 2), repeat=tree.periods):
        days = [{"ann": n} for n in rows]
        taken = [day["ann"] for day in taken_by_hand(days, most)]
        worst = max(worst, sum(blocks(tree, taken)))
    assert worst == most * tree.levels == tree.l1(1, most)


def test_the_scale_is_c_levels_by_epsilon_over_the_whole_stream() -> None:
    of = stream(60, 3, Fraction(1, 2))
    assert of.running.tree.levels == 2
    assert of.running.noise.parameter == Fraction(3 * 2) / Fraction(1, 2)


def test_whatever_may_be_opened_can_be_drawn_exactly() -> None:
    for periods in (1, 2, 60, 365, LISTED):
        assert stream(periods, MAX_ROWS, MIN_EPSILON).running.is_drawable()


def laplace_loss(scale: float, noise_a: int, noise_b: int) -> float:
    """Return the logarithm of how much likelier the first draw is than the second."""
    return (abs(noise_b) - abs(noise_a)) / scale


def test_a_person_who_answers_to_what_was_released_loses_no_more_than_epsilon() -> None:
    """Along any transcript the exact blocks differ by c levels at most; and somebody loses it all.

    Everybody's rows of the next day, and how many ann has, are functions of what was released.
    """
    dice, of = Random(4), stream(6, 2, Fraction(1))
    tree, scale = Tree(6, 2), Fraction(2 * Tree(6, 2).levels)
    assert of.rows == 2
    losses = []
    for _ in range(3000):
        seed, released = dice.randrange(10**9), [dice.randrange(-30, 30) for _ in range(6)]
        both = [days_along(released, seed, with_ann) for with_ann in (True, False)]
        a, b = (
            blocks(tree, [sum(day.values()) for day in taken_by_hand(days, 2)]) for days in both
        )
        loss = sum(
            laplace_loss(float(scale), o - x, o - y) for o, x, y in zip(released, a, b, strict=True)
        )
        losses.append(loss)
    assert max(losses) <= 1 + 1e-9
    assert max(losses) == pytest.approx(1)


def days_along(released: list[int], seed: int, with_ann: bool) -> list[Day]:
    """Return the rows of every day, each a function of what was released before it."""
    made: list[Day] = []
    for end in range(len(released)):
        dice = Random(f"{seed} {released[:end]}")
        day = {who: dice.randrange(4) for who in ("bob", "cid")}
        ann = dice.randrange(4)
        made.append({**day, "ann": ann} if with_ann else day)
    return made


def test_a_shorter_stream_is_a_beginning_of_the_longer_one() -> None:
    """Block n is closed when period n is and needs nothing later."""
    dice = Random(6)
    for periods in (6, 27, 60):
        tree = stream(periods, 1, Fraction(1)).running.tree
        counts = [dice.randrange(9) for _ in range(periods)]
        whole = blocks(tree, counts)
        for end in range(1, periods + 1):
            first = stream(periods, 1, Fraction(1)).first_of_block(end)
            assert whole[end - 1] == sum(counts[first - 1 : end])


def by(unit: Unit, start: str) -> Stream:
    along = DateTrunc(unit, Ref("day"))
    outputs = (Output("d", along), Output("n", Aggregate("running_count", (along,))))
    return Stream("v", "s", Query("v", outputs, None, (along,)), start, 3, 1, Fraction(1))


def test_periods_begin_where_the_calendar_has_them_and_close_when_they_are_over() -> None:
    weeks, months = by("week", "2026-01-05"), by("month", "2026-01-01")
    assert [weeks.day(n) for n in (1, 2, 4)] == ["2026-01-05", "2026-01-12", "2026-01-26"]
    assert [months.day(n) for n in (1, 2, 4)] == ["2026-01-01", "2026-02-01", "2026-04-01"]
    assert [weeks.ends_by(f"2026-01-{d}") for d in ("10", "11", "12", "18")] == [0, 1, 1, 2]
    assert [months.ends_by(d) for d in ("2026-01-30", "2026-01-31", "2026-02-27")] == [0, 1, 1]
    assert [by("day", "2026-01-05").ends_by(f"2026-01-0{d}") for d in (4, 5, 6)] == [0, 1, 2]
