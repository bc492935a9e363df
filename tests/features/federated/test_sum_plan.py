"""Questions over several sites: all find the same plan, and the noise is what is charged."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms import skellam
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.federated.agreement import Agreement, read_agreement
from sfumato.features.federated.sum_plan import (
    FINE,
    Summand,
    SummedSkellam,
    SumPlan,
    _cost,
    plan_sum,
)
from sfumato.query.sql.select import read_sql
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.card.data_card import Card, read_card
from support.federated_sites import site_card

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
QUESTIONS = (
    "SELECT COUNT(*) FROM patients",
    "SELECT zip, COUNT(*), AVG(age), SUM(salary) FROM patients GROUP BY zip",
    "SELECT VAR_SAMP(salary), AVG(salary) FROM patients",
)


def an_agreement(floor: int = 3, colluders: int = 1, sites: int = 4) -> Agreement:
    keys = {f"s{n:02}": f"{n + 1:064x}" for n in range(sites)}
    shape = {"name": "f", "convener": "0" * 64, "sites": keys}
    return read_agreement({**shape, "floor": floor, "colluders": colluders})


def a_card(name: str = "east", more: str = "", **changed: str) -> Card:
    return read_card("patients", site_card(name, more, **changed))


def planned(sql: str = QUESTIONS[0], card: Card | None = None, **how: Fraction) -> SumPlan:
    epsilon, delta = how.get("epsilon", EPSILON), how.get("delta", DELTA)
    question = read_sql(sql, "patients")
    return plan_sum(card or a_card(), question, an_agreement(), epsilon, delta)


@pytest.mark.parametrize("sql", QUESTIONS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 10), Fraction(1)])
def test_the_noise_costs_what_is_charged_and_hardly_less(sql: str, epsilon: Fraction) -> None:
    made = planned(sql, epsilon=epsilon)
    assert epsilon * Fraction(9, 10) < made.cost() <= epsilon


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(20)], ids=str)
def test_a_site_that_is_silent_counts_on_both_sides_of_the_price(epsilon: Fraction) -> None:
    made = planned(epsilon=epsilon)
    failing = float(made.failure) * (1 + math.exp(float(epsilon)))
    assert failing <= float(DELTA) / 100
    assert _cost(made.summands, DELTA - Fraction(failing)) <= epsilon


def test_the_parts_cost_what_their_divergences_add_up_to() -> None:
    """By hand, for two parts: the sum at one order, and its epsilon."""
    made = planned("SELECT COUNT(*), SUM(age) FROM patients")
    count, age = made.summands
    assert (count.l1, count.l2_squared, age.l1) == (1, 1, -(-110 // age.grid))
    alone = skellam.epsilon_of(1, 1, Fraction(count.variance), DELTA)
    assert alone < made.cost() < EPSILON + Fraction(1, 10**9)


def test_a_floor_of_honest_sites_draws_all_of_the_noise() -> None:
    made = planned()
    (summand,) = made.summands
    assert made.share(summand) * (3 - 1) == summand.variance


@pytest.mark.parametrize("grid", [1, 2, 8, 64])
@pytest.mark.parametrize("moved", [1, 7, 8, 110])
def test_rounding_to_a_grid_moves_no_cell_further_than_is_counted(grid: int, moved: int) -> None:
    """Every place on the grid, every change up to the largest, in both directions."""
    summand = Summand(grid, 1, -(-moved // grid), 1)
    values = np.arange(-200, 200, dtype=np.int64)
    for change in range(-moved, moved + 1):
        apart = np.abs(summand.on_grid(values + change) - summand.on_grid(values))
        assert apart.max() <= summand.per_cell


def test_rounding_is_to_the_nearest_and_a_grid_of_one_changes_nothing() -> None:
    values = np.arange(-9, 10, dtype=np.int64)
    assert (Summand(1, 1, 1, 1).on_grid(values) == values).all()
    assert np.abs(Summand(4, 1, 1, 1).on_grid(values) * 4 - values).max() == 2


def test_a_wide_part_goes_on_a_grid_on_which_its_noise_can_be_drawn() -> None:
    (summand,) = planned("SELECT SUM(salary) FROM patients", epsilon=Fraction(1, 100)).summands
    assert summand.grid > 1
    assert summand.variance <= 2 * FINE
    assert summand.grid * summand.per_cell >= 200_000


def test_sites_whose_cards_differ_in_what_counts_find_another_sum() -> None:
    base = planned(QUESTIONS[1]).about
    same = planned(QUESTIONS[1], a_card("west", "limits = { rows = 1000 }"))
    assert same.about == base
    for changed in ({"upper = 110": "upper = 100"}, {"step = 1": "step = 2"},
                    {'"10001", "10002"': '"10002", "10001"'},
                    {'"10001", "10002"': '"10001", "10003"'}):  # fmt: skip
        assert planned(QUESTIONS[1], a_card(**changed)).about != base
    assert planned(QUESTIONS[1], epsilon=Fraction(2)).about != base
    assert planned(QUESTIONS[1], delta=DELTA / 2).about != base
    question = read_sql(QUESTIONS[1], "patients")
    for other in (an_agreement(floor=4), an_agreement(sites=5, floor=4)):
        assert plan_sum(a_card(), question, other, EPSILON, DELTA).about != base


def test_a_person_who_may_have_more_rows_gets_more_noise() -> None:
    one, five = planned().summands[0], planned(card=a_card(more="max_rows = 5")).summands[0]
    assert five.per_cell == 5 * one.per_cell
    assert 20 < five.variance / one.variance < 30


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MEDIAN(age) FROM patients",
        "SELECT MAX(age) FROM patients",
        "SELECT COUNT(DISTINCT zip) FROM patients",
    ],
)
def test_what_is_no_sum_over_sites_is_refused(sql: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(sql)
    assert refused.value.code == "not-in-language"


def test_private_keys_are_refused() -> None:
    card = a_card(**{'keys = ["10001", "10002"]': ""})
    with pytest.raises(Refused) as refused:
        planned(QUESTIONS[1], card)
    assert refused.value.code in ("not-in-language", "keys-needed")


def test_without_a_delta_it_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        planned(delta=Fraction(0))
    assert refused.value.code == "bad-budget"


def test_the_width_has_room_for_every_site_at_its_largest_and_its_noise() -> None:
    made = planned(card=a_card(more="limits = { rows = 1000 }"))
    (summand,) = made.summands
    far = skellam.noise_bound(made.share(summand), made.failure / 4)
    assert (1 << (made.bits - 1)) - 1 >= 4 * (1000 + far)
    assert planned().bits > made.bits


def test_the_noise_of_several_sites_is_drawn_by_none() -> None:
    (noise,) = planned().priced(4).noises
    assert isinstance(noise, SummedSkellam)
    with pytest.raises(Bug):
        noise.sample(1, SystemRandomSource())


@pytest.mark.parametrize("variance", [1, 2, 3, 5, 10, 40, 200, 1000])
def test_what_is_said_of_the_error_holds_for_skellam_noise(variance: int) -> None:
    """The interval is a Gaussian's of that variance; here against the law itself."""
    from scipy import stats

    within = SummedSkellam("gaussian", Fraction(variance), 3, 1).margin()
    law = stats.skellam(variance / 2, variance / 2)
    assert law.cdf(within) - law.cdf(-within - 1) >= 0.95


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"colluders": 0}, "bad-federation"),
        ({"floor": 2}, "sum-not-trusted"),
        ({"floor": True}, "bad-federation"),
        ({"convener": "0" * 63}, "bad-federation"),
        ({"convener": "G" * 64}, "bad-federation"),
        ({"name": "no spaces"}, "bad-federation"),
        ({"sites": {"a": "1" * 64, "b": "1" * 64, "c": "2" * 64}}, "sum-not-trusted"),
        ({"sites": {"a": "1" * 64, "b": "2" * 64}}, "sum-not-trusted"),
        ({"sites": []}, "bad-federation"),
    ],
)
def test_an_agreement_that_would_not_protect_is_refused(
    change: dict[str, object], why: str
) -> None:
    shape: dict[str, object] = {**an_agreement().as_json(), **change}
    with pytest.raises(Refused) as refused:
        read_agreement(shape)
    assert refused.value.code == why


def test_a_sum_that_would_not_fit_in_whole_steps_is_refused_and_none_is_shown() -> None:
    """Each site's fits; what they are together would wrap around."""
    finer = {"upper = 200000\nstep = 1": "upper = 1000000000000\nstep = 0.001"}
    sql = "SELECT SUM(salary) FROM patients"
    with pytest.raises(Refused, match="noise-out-of-range"):
        _ = planned(sql, a_card(more="limits = { rows = 4000 }", **finer)).bits
    made = planned(sql, a_card(more="limits = { rows = 400 }", **finer))
    assert made.bits < 64
    (summand,) = made.summands
    most = ((1 << 63) - 1) // summand.grid
    assert made.parts_of(np.array([-most]))[0].tolist() == [-most * summand.grid]
    for total in (most + 1, -most - 1, -(1 << 63)):
        with pytest.raises(Refused, match="noise-out-of-range"):
            made.parts_of(np.array([total], dtype=np.int64))
