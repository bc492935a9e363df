"""What follows from counts or precedes them: simplex, people, liars, the choice, the mixing."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sfumato.dp.local import shuffle_amplification
from sfumato.dp.local.ballot_split import Sampled, Split
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_estimation import estimate
from sfumato.dp.local.frequency_oracle import Tally, randomise, simulate, tally
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.heavy_hitters import PrefixOracle, grow, prefix_oracle_of
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.mean_estimation import NumberTally, estimate_mean, randomise_numbers
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.random_words import drawn
from sfumato.dp.local.randomiser_choice import best_ballot, best_numbers, best_oracle, candidates
from sfumato.dp.local.sample_size import (
    influence_on_mean,
    influence_on_share,
    margin_of,
    margin_of_mean,
    people_for,
    people_for_mean,
)
from sfumato.dp.local.simplex_projection import likeliest, nearest
from sfumato.dp.local.unary_encoding import Unary
from sfumato.dp.refusal import Bug, Refused
from support.seeded_dice import SeededDice

ONE = Fraction(1)
SHARES = arrays(np.float64, st.integers(1, 30), elements=st.floats(-3, 3))


@settings(deadline=None)
@given(SHARES)
def test_the_nearest_shares_are_shares_and_nearer_than_any_others(shares: Any) -> None:
    found = nearest(shares)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    generator = np.random.default_rng(1)
    others = generator.dirichlet(np.ones(len(shares)), 50)
    distance = np.linalg.norm(found - shares)
    assert (distance <= np.linalg.norm(others - shares, axis=1) + 1e-9).all()


def test_shares_that_are_shares_stay() -> None:
    assert nearest(np.array([0.2, 0.5, 0.3])) == pytest.approx([0.2, 0.5, 0.3])


@pytest.mark.parametrize("kind", [KAry, Hadamard, Projective])
def test_the_likeliest_shares_are_likelier_than_those_around_them(kind: Any) -> None:
    oracle = kind.within(6, ONE)
    made = simulate(oracle, np.repeat([0, 1, 2], [3000, 1500, 500]), SeededDice(1))
    found = likeliest(made)
    assert found.sum() == pytest.approx(1)
    law = oracle.law
    table = np.array([[float(law[v][y]) for y in sorted(law[v])] for v in sorted(law)])

    def log_likelihood(shares: Any) -> float:
        return float((made.counts * np.log(shares @ table)).sum())

    generator = np.random.default_rng(2)
    for _ in range(200):
        other = 0.95 * found + 0.05 * generator.dirichlet(np.ones(6))
        assert log_likelihood(found) >= log_likelihood(other) - 1e-3
    inside = estimate(made).shares
    if inside.min() > 0:
        assert found == pytest.approx(inside, abs=1e-3)


def test_post_processing_makes_the_error_smaller() -> None:
    oracle, truth = KAry.within(30, ONE), np.zeros(30)
    truth[0] = 1
    raw = [estimate(simulate(oracle, np.zeros(4000, int), SeededDice(n))).shares for n in range(20)]
    moved = [nearest(shares) for shares in raw]
    assert np.mean((np.array(moved) - truth) ** 2) < 0.3 * np.mean((np.array(raw) - truth) ** 2)


def test_counts_that_keep_no_whole_reports_have_no_likeliest_shares() -> None:
    with pytest.raises(Refused, match="does not support this randomiser"):
        likeliest(simulate(Unary.within(5, ONE), np.zeros(10, int), SeededDice(1)))


def test_so_many_people_make_two_points_and_one_fewer_do_not() -> None:
    oracle = KAry.within(3, ONE)
    people = people_for(oracle, 0.02)
    assert margin_of(oracle, people) <= 0.02 < margin_of(oracle, people - 1)
    assert people_for(oracle, 0.02, share=0.0) <= people
    shares = [estimate(simulate(oracle, people_of(people, n), SeededDice(n))).shares[0]
              for n in range(400)]  # fmt: skip
    within = np.mean(np.abs(np.array(shares) - 0.5) <= 0.02)
    assert within > 0.95 - 4.5 * math.sqrt(0.05 * 0.95 / 400)


def people_of(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).choice(3, count, p=[0.5, 0.3, 0.2])


def test_so_many_people_make_a_mean_exact_to_a_step() -> None:
    one = Piecewise.within(100, ONE)
    people = people_for_mean(one, 5)
    assert margin_of_mean(one, people) <= 5 < margin_of_mean(one, people - 1)


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan])
def test_no_margin_is_refused(margin: float) -> None:
    with pytest.raises(Refused, match="margin"):
        people_for(KAry.within(3, ONE), margin)


@pytest.mark.parametrize("kind", [KAry, Unary, Hadamard])
def test_liars_reach_the_bound_and_do_not_pass_it(kind: Any) -> None:
    oracle, people, liars = kind.within(4, ONE), 20_000, 2000
    honest = randomise(oracle, np.ones(people, dtype=np.int64), SeededDice(1))
    before = estimate(tally(oracle, honest)).shares[0]
    lies = honest.copy()
    lies[:liars] = loudest(oracle)
    moved = estimate(tally(oracle, lies)).shares[0] - before
    bound = float(influence_on_share(oracle, Fraction(liars, people)))
    assert 0.4 * bound < moved <= bound + 1e-12


def loudest(oracle: Any) -> Any:
    """A report that speaks for the answer 0."""
    said = randomise(oracle, np.zeros(100, dtype=np.int64), SeededDice(2))
    return next(r for r in said if oracle.supports(oracle.counts(r[np.newaxis]))[0])


@pytest.mark.parametrize("kind", [Duchi, Piecewise, Hybrid])
def test_liars_move_a_sum_no_further_than_their_reach(kind: Any) -> None:
    one = kind.within(50, ONE)
    people, liars = 4000, 200
    honest = randomise_numbers(one, np.zeros(people, dtype=np.int64), SeededDice(1))
    bound = float(influence_on_mean(one, Fraction(liars, people)))
    base = total(one, honest)
    furthest = 0.0
    for report in np.unique(randomise_numbers(one, np.arange(3000) % 51, SeededDice(3)), axis=0):
        lies = honest.copy()
        lies[:liars] = report
        furthest = max(furthest, abs(total(one, lies) - base))
    assert 0.3 * bound < furthest <= bound + 1e-9


def total(one: Any, reports: Any) -> float:
    found = estimate_mean(NumberTally(one, len(reports), one.counts(reports)))
    from sfumato.dp.local.mean_estimation import _moments

    assert found.people == len(reports)
    return float(_moments(NumberTally(one, len(reports), one.counts(reports)))[0][0] / len(reports))


@pytest.mark.parametrize("share", [Fraction(-1), Fraction(2)])
def test_a_share_of_liars_is_a_share(share: Fraction) -> None:
    with pytest.raises(Refused):
        influence_on_share(KAry.within(3, ONE), share)


def test_the_best_oracle_is_k_ary_for_few_answers_and_a_set_for_many() -> None:
    assert [best_oracle(k, ONE).parameters["kind"] for k in (2, 3, 4)] == [
        "k-ary",
        "k-ary",
        "k-ary",
    ]
    assert best_oracle(64, ONE).parameters["kind"] == "subset"
    assert best_oracle(16, Fraction(4)).parameters["kind"] == "k-ary"  # 16 < 3 exp(4) + 2


def test_no_oracle_with_so_short_a_report_is_a_refusal() -> None:
    for asked in ({"width": 0}, {"kinds": ("projective",), "width": 1}):
        with pytest.raises(Refused):
            best_oracle(1024, ONE, **asked)


def test_the_errors_are_those_of_the_literature() -> None:
    """n times the variance at epsilon 1 and 16 answers: known values, measured elsewhere."""
    errors = {one.kind: one.error for one in candidates(16, ONE)}
    assert errors["k-ary"] == pytest.approx(5.66, abs=0.01)
    assert errors["unary"] == pytest.approx(3.68, abs=0.01)
    assert errors["hashing"] == pytest.approx(3.68, abs=0.02)
    assert errors["subset"] == pytest.approx(3.2, abs=0.08)  # among 17 answers: 3.17
    assert errors["hadamard"] == pytest.approx(4.68, abs=0.01)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3000), st.sampled_from([Fraction(1, 2), ONE, Fraction(5, 2)]))
def test_what_is_chosen_is_as_good_as_any_and_within_its_bytes(size: int, eps: Fraction) -> None:
    found = candidates(size, eps)
    chosen = best_oracle(size, eps)
    error = next(one.error for one in found if one.oracle == chosen)
    assert error <= 1.01 * found[0].error
    assert best_oracle(size, eps, width=2).width <= 2
    assert chosen.epsilon <= eps


def test_one_question_is_drawn_where_epsilon_is_small_and_all_are_asked_where_it_is_large() -> None:
    makers: list[Any] = [partial(KAry.within, 3), partial(Duchi.within, 10)]
    assert isinstance(best_ballot(makers * 3, ONE), Sampled)
    assert isinstance(best_ballot(makers, Fraction(12)), Split)
    assert best_ballot(makers * 3, ONE).epsilon <= 1


def test_a_choice_of_numbers_is_within_its_epsilon() -> None:
    assert best_numbers(1000, Fraction(1, 2)).epsilon <= Fraction(1, 2)


KNOWN = [(10**4, 1.0, 0.053), (10**4, 3.0, 0.321)]


@pytest.mark.parametrize(("people", "local", "numeric"), KNOWN)
def test_mixing_gives_the_known_values(people: int, local: float, numeric: float) -> None:
    assert shuffle_amplification.amplified(local, people, 1e-6) == pytest.approx(numeric, abs=9e-4)


@pytest.mark.parametrize(("people", "local", "epsilon"), [(40, 1.0, 0.3), (200, 2.0, 0.5)])
def test_the_delta_of_mixing_is_never_below_the_sum_over_everything(
    people: int, local: float, epsilon: float
) -> None:
    """Against every pair of counts, with scipy's binomials and no shortcut."""
    heads, total = 1 / (1 + math.exp(-local)), 0.0
    for clones in range(people):
        chance = stats.binom.pmf(clones, people - 1, math.exp(-local))
        seen = np.arange(clones + 2)
        coins = stats.binom.pmf(seen, clones, 0.5)
        more = stats.binom.pmf(seen - 1, clones, 0.5)
        one, other = heads * more + (1 - heads) * coins, (1 - heads) * more + heads * coins
        total += chance * np.maximum(one - math.exp(epsilon) * other, 0).sum()
    found = shuffle_amplification.delta_of(epsilon, local, people)
    assert total <= found <= 1.3 * total + 1e-12


def test_mixing_never_claims_more_than_was_there_and_helps_the_more_people_there_are() -> None:
    found = [
        shuffle_amplification.amplified(1.0, people, 1e-6) for people in (1, 10, 1000, 100_000)
    ]
    assert 0.99999 < found[0] <= 1.0  # a delta buys that little
    assert found == sorted(found, reverse=True)
    with pytest.raises(Refused):
        shuffle_amplification.amplified(0.0, 10, 1e-6)


@pytest.mark.parametrize("people", [1, 40, 10**6, 10**8, 10**9])
@pytest.mark.parametrize("chance", [0.5, math.exp(-3)])
def test_the_chances_of_clones_are_never_too_small_however_many_people(
    people: int, chance: float
) -> None:
    """Logarithms of factorials lose digits: less than all chances would be a delta too small."""
    first, chances = shuffle_amplification._binomial(people, chance)
    assert 1 - 1e-12 <= float(chances.sum()) <= 1 + 1e-4
    assert 0 <= first <= people * chance


WORDS = ["salt", "sea", "sand", "stone", "sun", None]


def test_texts_that_many_have_are_found_and_rare_ones_are_not() -> None:
    oracle = PrefixOracle.within("adelnostu", 5, Fraction(3))
    generator = np.random.default_rng(1)
    chances = [0.4, 0.25, 0.15, 0.001, 0.1, 0.099]
    kept = [WORDS[i] for i in generator.choice(6, 200_000, p=chances)]
    values = oracle.encoded(kept)
    reports = oracle.randomise(values, drawn(SeededDice(2), oracle.words_per_report, len(values)))
    found = grow(oracle, reports)
    assert [one.text for one in found] == ["salt", "sea", "sand", "sun"]
    for one, share in zip(found, chances[:3], strict=False):
        assert one.low - 0.01 < share < one.high + 0.01
    assert grow(oracle, reports[:0]) == ()


def test_a_text_is_encoded_as_it_is_decoded_and_a_strange_one_is_refused() -> None:
    oracle = PrefixOracle.within("ab", 3, ONE, step=2)
    rows = oracle.encoded(["ab", "", "babab", None])
    assert [oracle.decoded(row) for row in rows[:3].tolist()] == ["ab", "", "bab"]
    assert rows[3].tolist() == [3, 0, 0]
    with pytest.raises(Refused, match="symbol"):
        oracle.encoded(["abc"])
    with pytest.raises(Bug):
        PrefixOracle("aa", 3, 1, 4, 5)


@pytest.mark.parametrize("text", ["", "a", "acbc", "cccc", None])
def test_a_report_on_a_text_is_that_of_the_page(text: str | None) -> None:
    oracle, generator = PrefixOracle.within("abc", 4, ONE, step=3), np.random.default_rng(5)
    symbols = oracle.encoded([text])
    for _ in range(30):
        words = generator.integers(0, 2**32, oracle.words_per_report, dtype=np.uint32)
        said = oracle.randomise(symbols, words.reshape(-1, 1)).tobytes()
        assert said == plain_growing(oracle, symbols[0].tolist(), words.tolist())


def plain_growing(oracle: PrefixOracle, symbols: list[int], w: list[int]) -> bytes:
    level = w[0] * oracle.levels >> 32
    some = symbols[: (level + 1) * oracle.step]
    hashed = (sum(a * s for a, s in zip(w[1:], some, strict=False)) + w[oracle.length + 1]) % 2**32
    cell = (hashed >> 16) * oracle.cells >> 16
    told = w[oracle.length + 2] < oracle.truth
    said = cell if told else w[oracle.length + 3] * oracle.cells >> 32
    seeds = b"".join(word.to_bytes(4, "little") for word in w[1 : oracle.length + 2])
    return bytes([level]) + seeds + bytes([said])


def test_parameters_lead_back_to_the_texts() -> None:
    oracle = PrefixOracle.within("abc", 4, ONE)
    good = dict(oracle.parameters)
    assert prefix_oracle_of(good) == oracle
    for bad in ({}, good | {"more": 1}, good | {"kind": "k-ary"}, good | {"alphabet": 5},
                good | {"alphabet": "aa"}, good | {"step": True}, good | {"cells": 1}):  # fmt: skip
        with pytest.raises(Refused, match="do not describe a randomiser"):
            prefix_oracle_of(bad)


def test_noise_alone_names_no_text() -> None:
    oracle = PrefixOracle.within("abcdefgh", 4, ONE)
    generator, found = np.random.default_rng(3), 0
    for seed in range(20):
        values = generator.integers(1, 9, (20_000, 4))  # all texts are equally rare
        reports = oracle.randomise(
            values, drawn(SeededDice(seed), oracle.words_per_report, len(values))
        )
        found += bool(grow(oracle, reports))
    assert found <= 2


def test_a_report_on_texts_that_nobody_makes_is_refused() -> None:
    oracle = PrefixOracle.within("ab", 2, ONE)
    with pytest.raises(Refused, match="this randomiser never gives"):
        grow(oracle, np.full((1, oracle.width), 255, dtype=np.uint8))


def test_a_tally_says_whose_it_is() -> None:
    oracle = KAry.within(3, ONE)
    assert isinstance(simulate(oracle, np.array([0, 1]), SeededDice(1)), Tally)
