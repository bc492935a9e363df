"""A lesson's price: every site finds it by lesson, card, agreement and price alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.mechanisms import skellam
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.dithered_rounding import DitheredGrid
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.vault.card.data_card import Card, read_card
from support.seeded_dice import SeededDice

MEMBERS = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
AGREEMENT = Agreement("clinics", bytes(32), MEMBERS, 3, 1)
COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 100},
    "height": {"type": "number", "lower": 0, "upper": 3, "step": Fraction(1, 100)},
    "smoker": {"type": "boolean"},
    "town": {"type": "text", "keys": ["a", "b", "c"]},
    "note": {"type": "text"},
    "free": {"type": "number"},
}
SHAPE: dict[str, Any] = {
    "name": "ab" * 32, "features": ["age", "smoker"], "target": "town", "hidden": [5],
    "rounds": 10, "clip": 1,
}  # fmt: skip


def card(**changed: Any) -> Card:
    budget = {"epsilon": Fraction(10), "delta": Fraction(1, 1000)}
    return read_card("people", {"budget": budget, "columns": COLUMNS, **changed})


def plan(the: Card | None = None, epsilon: int = 3, **changed: Any) -> TrainPlan:
    lesson = read_training_task({**SHAPE, **changed})
    delta = Fraction(1, 10**6)
    return plan_training(the or card(), lesson, AGREEMENT, Fraction(epsilon), delta)


def test_what_is_charged_covers_all_rounds_dithers_and_widths() -> None:
    made = plan()
    rest = made.delta * 99 / 100 - 10 * made.sum.failure
    grid = made.sum.grid
    assert isinstance(grid, DitheredGrid)
    cost = skellam.epsilon_of(grid.most_absolute, grid.most_squared, made.sum.variance, rest, 10)
    assert cost <= 3
    assert 10 * grid.chance * 3**3 <= made.delta / 100
    assert made.sum.share == made.sum.variance / 2  # two honest ones of a floor of three


def test_rows_whose_gradients_may_pass_62_bits_are_refused() -> None:
    assert plan(card(limits={"rows": 2**30 - 1}), clip=4).sum.grid
    with pytest.raises(Refused, match="numbers-too-large"):
        plan(card(limits={"rows": 2**30}), clip=4)


def test_half_the_noise_would_cost_more_than_is_charged() -> None:
    made, grid = plan(), plan().sum.grid
    half = made.sum.variance / 2
    rest = made.delta
    assert skellam.epsilon_of(grid.most_absolute, grid.most_squared, half, rest, 10) > 3


def test_a_whole_update_is_charged_as_one_that_becomes_any_other() -> None:
    made = plan(local=2, rate=Fraction(1, 2), clip=1)
    assert made.sum.moves == 2
    l1, l2_squared = 2 * made.sum.grid.most_absolute, 4 * made.sum.grid.most_squared
    assert skellam.epsilon_of(l1, l2_squared, made.sum.variance, made.delta, 10) <= 3


def test_a_persons_own_update_is_charged_as_one_that_is_there_or_not() -> None:
    """Half of what a whole site's costs: and as much as a gradient of the same clip."""
    by_person = card(unit="who", max_rows=4)
    own = plan(by_person, local=2, rate=Fraction(1, 2), each="person", max_rows=4)
    one = plan(by_person, max_rows=4)
    assert (own.sum.moves, own.sum.variance) == (1, one.sum.variance)
    assert own.order("", bytes(1)).clip == 1
    assert one.order("", bytes(1)).clip == 1 / 4
    assert isinstance(own.sum.grid, DitheredGrid)
    assert own.sum.grid.people == by_person.limits.rows  # a person has one row at least


def test_a_lesson_of_sites_is_spelled_as_before_there_was_another() -> None:
    assert "each" not in str(plan(local=2, rate=1).lesson.as_json())
    assert plan(local=2, rate=1).about != plan(local=2, rate=1, each="person").about


def test_a_lesson_of_everybody_is_spelled_and_priced_as_before_there_were_samples() -> None:
    whole, everybody = plan(), plan(sample=1)
    assert "sample" not in str(whole.lesson.as_json())
    assert (everybody.about, everybody.sum) == (whole.about, whole.sum)
    assert everybody.lesson.as_json() == whole.lesson.as_json()
    # as it was before there were samples
    before = "cb8044fb1f1ba65a6a993f95146ce4e9c5a7b3bd9369b295eb2d8f6adcc89515"
    assert whole.about == f"training-at-sites/1 {before}"
    assert plan(sample=Fraction(1, 10)).about != whole.about
    assert plan(sample=Fraction(1, 10)).lesson.as_json()["sample"] == "1/10"


def test_a_sample_needs_less_noise_and_has_all_else_of_everybodys() -> None:
    """Grid, width, clip and room are those of all rows: who was drawn decides none of them."""
    whole, tenth = plan(), plan(sample=Fraction(1, 10))
    assert 10 * tenth.sum.variance < whole.sum.variance
    assert tenth.sum.variance * 100 > whole.sum.variance  # beside what is added up: more of it
    assert isinstance(tenth.sum.grid, DitheredGrid)
    assert isinstance(whole.sum.grid, DitheredGrid)
    assert (tenth.sum.grid.people, tenth.sum.grid.clip) == (whole.sum.grid.people, Fraction(1))
    assert tenth.sum.failure == whole.sum.failure
    weights = bytes(4 * whole.size)
    both = whole.order("", weights), tenth.order("", weights, tenth.coins(SeededDice(1)))
    assert both[0].row_s == both[1].row_s
    assert (both[0].most_rows, both[0].clip) == (both[1].most_rows, both[1].clip)


def test_what_a_sample_is_charged_covers_all_rounds_dithers_and_widths() -> None:
    made = plan(sample=Fraction(1, 10))
    rest, grid = made.delta * 99 / 100 - 10 * made.sum.failure, made.sum.grid
    assert isinstance(grid, DitheredGrid)
    terms = grid.most_absolute, grid.most_squared, made.sum.variance
    assert skellam.epsilon_of(*terms, rest, 10, Fraction(1, 10)) <= 3
    assert skellam.epsilon_of(*terms, rest, 10, Fraction(11, 100)) > 3
    assert made.sum.epsilon(made.delta * 99 / 100, 10) <= 3
    assert made.sum.renyi(8) < skellam.renyi(8, *terms)


def test_no_round_of_a_sample_is_read_without_coins_or_with_others() -> None:
    tenth, whole = plan(sample=Fraction(1, 10)), plan()
    assert whole.coins(SeededDice(1)) is None
    for the, coins in (
        (tenth, None), (tenth, plan(sample=Fraction(1, 5)).coins(SeededDice(1))),
        (whole, tenth.coins(SeededDice(1))),
    ):  # fmt: skip
        with pytest.raises(Bug):
            the.order("", bytes(1), coins)


def test_a_persons_own_steps_are_sampled_and_a_whole_sites_are_not() -> None:
    by_person, local = card(unit="who", max_rows=4), {"local": 2, "rate": 1}
    own = plan(by_person, **local, each="person", max_rows=4, sample=Fraction(1, 10))
    one = plan(by_person, max_rows=4, sample=Fraction(1, 10))
    assert own.sum.variance == one.sum.variance
    with pytest.raises(Refused, match="protected as one"):
        plan(by_person, **local, sample=Fraction(1, 10))
    with pytest.raises(Bug):
        replace(plan(by_person, **local).sum, chance=Fraction(1, 10))


def test_a_person_with_several_rows_moves_no_more_than_one_with_one() -> None:
    by_person = card(unit="who", max_rows=4)
    one, four = plan(by_person), plan(by_person, max_rows=4)
    assert four.row_clip == one.row_clip / 4
    assert four.sum.grid.most_squared == one.sum.grid.most_squared
    assert four.order("", bytes(1)).max_rows == 4


@pytest.mark.parametrize(
    "change",
    [{"rounds": 9}, {"clip": 2}, {"hidden": [6]}, {"features": ["smoker", "age"]}, {"epsilon": 4},
     {"name": "cd" * 32}, {"activation": "tanh"}, {"sample": Fraction(1, 10)}],
    ids=lambda change: "-".join(change),
)  # fmt: skip
def test_whatever_counts_changes_what_the_sites_compare(change: dict[str, Any]) -> None:
    assert plan(**change).about != plan().about


def test_budgets_limits_and_people_of_a_card_do_not() -> None:
    other = card(people="others", limits={"rows": 77}, version="3")
    assert plan(other).about == plan().about
    assert plan(card(columns={**COLUMNS, "age": {**COLUMNS["age"], "upper": 99}})).about != (
        plan().about
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"features": ["nothing"]}, "unknown-column"),
        ({"features": ["note"]}, "type-mismatch"),
        ({"features": ["free"]}, "no-bounds"),
        ({"target": "height"}, None),
        ({"target": "height", "loss": "squares"}, None),
        ({"target": "note"}, "type-mismatch"),
        ({"max_rows": 2}, None),
        ({"hidden": [1024, 1024]}, "question-too-large"),
        ({"epsilon": 1, "rounds": 10_000, "hidden": [1024]}, "noise-out-of-range"),
        ({"weights": {"zz": 1}}, "bad-request"),
        ({"each": "person"}, "bad-request"),
        ({"each": "row", "local": 1, "rate": 1}, "bad-request"),
        ({"each": "person", "local": 1, "rate": 1, "weights": {"ab": 1}}, "bad-request"),
        ({"each": "person", "local": 1, "rate": 1, "max_rows": 4097}, "bad-request"),
        ({"weights": {"zz": 1}, "local": 1, "rate": 1}, "bad-request"),
        ({"local": 1}, "bad-request"),
        ({"rate": 1}, "bad-request"),
        ({"clip": 5}, "bad-request"),
        ({"rounds": True}, "bad-request"),
        ({"hidden": "5"}, "bad-request"),
        ({"name": "AB" * 32}, "bad-request"),
        ({"features": ["age", "age"]}, "bad-request"),
        ({"activation": "sigmoid"}, "bad-request"),
        ({"more": 1}, "bad-request"),
        ({"sample": 0}, "bad-request"),
        ({"sample": Fraction(1, 10**7)}, "bad-request"),
        ({"sample": Fraction(11, 10)}, "bad-request"),
        ({"sample": "0.1"}, "bad-budget"),
        ({"sample": True}, "bad-budget"),
        ({"sample": Fraction(1, 2), "local": 1, "rate": 1}, "bad-request"),
    ],
    ids=lambda value: str(value) if value is None or isinstance(value, str) else None,
)
def test_lessons_that_are_none_are_refused(change: dict[str, Any], code: str | None) -> None:
    if code is None:
        assert plan(**change).size > 0
        return
    with pytest.raises(Refused, match=f"^{code}:"):
        plan(**change)


def test_more_rows_of_a_person_than_the_card_allows_are_refused() -> None:
    with pytest.raises(Refused, match="not-in-language"):
        plan(card(unit="who", max_rows=3), max_rows=4)
