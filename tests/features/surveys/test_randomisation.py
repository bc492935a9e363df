"""Each question's best randomiser: chosen once, written down, said in words, and counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.dp.local.ballot_split import Sampled
from sfumato.dp.local.frequency_estimation import variances
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import worst_ratio
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.randomiser_choice import best_ballot, best_oracle
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.estimation import expected, results
from sfumato.features.surveys.model import Question, read_survey
from sfumato.features.surveys.randomisation import (
    CHOOSABLE,
    NUMBERS,
    choose_randomisers,
    cost_of,
    grid_step_width,
    in_words,
    is_valid_report,
    last_grid_step,
    people_of,
    round_to_grid,
)
from sfumato.features.surveys.randomised_report import (
    Published,
    Truth,
    make_report,
    read_published,
    read_report,
    said_of,
    words_for,
    words_of,
)
from sfumato.features.surveys.tally import Tally, nothing, read_tally

KEY = PublicKey(0xC0FFEE, 65537)
LINES = [f"line {n}" for n in range(20)]
CHOICE = {"id": "line", "text": "Which line?", "kind": "choice", "options": LINES}
HOURS = {"id": "hours", "text": "How long?", "kind": "number", "low": 0, "high": 60, "unit": "h"}
PAY = {"id": "pay", "text": "How much?", "kind": "number", "low": -500, "high": 99_999}
OLD: dict[str, Any] = json.loads(Path(__file__).with_name("survey_format_1.json").read_text())


def made(*questions: Mapping[str, object], **changed: Any) -> Published:
    shape = {
        "title": "T", "about": "A", "asks": "W", "questions": list(questions), "epsilon": 1,
        "people": 1000, "minimum": 50, "opens": "2026-11-01", "closes": "2026-12-24", **changed,
    }  # fmt: skip
    return Published(read_survey(shape), KEY)


@pytest.mark.parametrize("number", range(len(OLD["surveys"])))
def test_a_survey_of_format_1_reads_answers_and_counts_as_it_did(number: int) -> None:
    """The file was written by the program that knew no other format."""
    old = OLD["surveys"][number]
    read = read_published(old["text"])
    assert (read.id, read.text, read.survey.format) == (old["id"], old["text"], 1)
    truths: list[Mapping[str, Truth]] = OLD["truths"]
    said = [make_report(read, case, bytes([n]) * 32) for n in range(4) for case in truths]
    assert said == old["reports"]
    assert all(read_report(read, report) for report in said)
    assert nothing(read.survey).with_reports(said).text() == old["tally"]
    assert read_tally(old["tally"]).text() == old["tally"]


def test_what_was_chosen_is_read_and_never_chosen_again() -> None:
    """A survey that is kept reads the same when the chooser has learnt something better."""
    survey = made(CHOICE, HOURS)
    other = Published(survey.survey, KEY, (KAry.within(21, Fraction(1, 2)), survey.coins[1]))
    assert isinstance(survey.coins[0], Subset)
    assert read_published(survey.text).coins == survey.coins
    assert read_published(other.text).coins == other.coins
    assert other.id != survey.id


@pytest.mark.parametrize(
    "coin",
    [
        {"kind": "k-ary", "size": 20, "truth": 5}, {"kind": "k-ary", "size": 21, "truth": 2**31},
        {"kind": "unary", "size": 21, "other": 5}, {"kind": "piecewise", "steps": 21, "window": 2,
        "truth": 5}, {"kind": "waves", "size": 21, "permanent": 9, "momentary": 9}, {"kind": "x"},
    ],
)  # fmt: skip
def test_coins_of_another_question_or_above_the_epsilon_are_refused(coin: dict[str, Any]) -> None:
    table = json.loads(made(CHOICE).text)
    table["coins"] = [coin]
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    with pytest.raises(Refused):
        read_published(text)


def test_a_choice_of_many_errs_less_than_k_ary_and_little_more_than_the_best() -> None:
    for size in (3, 6, 11, 16, 21):
        for epsilon in map(Fraction, ("0.1", "0.5", "2", "10")):
            chosen, any_ = best_oracle(size, epsilon, kinds=CHOOSABLE), best_oracle(size, epsilon)
            rare = np.zeros(size)
            errors = [float(variances(one, rare, 1).max()) for one in (chosen, any_)]
            assert errors[0] <= 1.05 * errors[1]
    k_ary = KAry.within(21, Fraction(1, 2))
    gain = variances(k_ary, np.zeros(21), 1).max()
    assert (
        gain
        > 3 * variances(best_oracle(21, Fraction(1, 2), kinds=CHOOSABLE), np.zeros(21), 1).max()
    )


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "10"])
def test_a_number_errs_no_more_than_by_its_two_ends(epsilon: str) -> None:
    of_ends = expected(made(HOURS, epsilon=epsilon, format=1).survey)[0].error
    assert expected(made(HOURS, epsilon=epsilon).survey)[0].error <= 1.001 * of_ends


def test_a_number_at_a_large_epsilon_errs_much_less() -> None:
    of_ends = expected(made(HOURS, epsilon=4, format=1).survey)[0].error
    assert expected(made(HOURS, epsilon=4).survey)[0].error < 0.6 * of_ends


@pytest.mark.parametrize("question", [CHOICE, HOURS, PAY])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5", "10"])
def test_the_law_of_every_coin_is_within_the_epsilon(
    question: dict[str, Any], epsilon: str
) -> None:
    (coin,) = choose_randomisers(made(question, epsilon=epsilon).survey)
    assert cost_of(coin) <= Fraction(epsilon)
    if not isinstance(coin, NUMBERS) or coin.steps <= 100:
        worst = worst_ratio(coin.law)
        assert worst is not None
        assert worst <= coin.ratio
        assert float(coin.ratio) <= exp(float(Fraction(epsilon)))


def test_a_grid_has_whole_steps_and_the_highest_number_lies_on_it_or_just_below() -> None:
    for low, high in ((0, 1), (0, 60), (-500, 99_999), (0, 1000), (0, 1001), (-(10**9), 10**9)):
        question = Question("q", "t", "number", low=low, high=high)
        unit, steps = grid_step_width(question), last_grid_step(question)
        assert steps <= 1000
        assert high <= low + unit * steps < high + unit
        assert round_to_grid(question, low, 0) == 0
        assert round_to_grid(question, high, 2**32 - 1) <= steps
        assert round_to_grid(question, low - 1, 0) == steps + 1


def test_a_number_between_two_steps_is_right_on_average() -> None:
    """By words that stand evenly in their range: the upper step has exactly its share of them."""
    question = Question("q", "t", "number", low=0, high=7000)
    for value in (0, 1, 3, 6, 6999):
        steps = [round_to_grid(question, value, word << 22) for word in range(1024)]
        assert abs(7 * sum(steps) / 1024 - value) < 7 / 1024 + 1e-9


def test_every_report_that_a_device_makes_is_read_and_no_other() -> None:
    survey = made(CHOICE, HOURS, epsilon=2)
    truths: list[Mapping[str, Truth]] = [{}, {"line": "line 7", "hours": 35}]
    for n in range(100):
        for case in truths:
            assert len(read_report(survey, make_report(survey, case, bytes([n]) * 32))) == 2
    choice, number = survey.coins
    assert isinstance(choice, Subset)
    assert not isinstance(number, KAry | Subset)
    assert not is_valid_report(choice, 0)  # no first number
    assert not is_valid_report(choice, choice.field)
    assert not is_valid_report(choice, 1 + (choice.field << 16))
    assert not is_valid_report(choice, 1 << 32)
    assert is_valid_report(choice, 1 + (choice.field - 1 << 16))
    assert not is_valid_report(number, 1 << 60)
    good = make_report(survey, {}, b"x" * 32).split()
    for wrong in (f"{good[0]} 1.0.99999999999999", f"{good[0]}0000000 {good[1]}", f"{good[0]} 1.0.",
                  f"{good[0]} 1.0.0{good[1][4:]}", f"{good[0]} 1.0.-1"):  # fmt: skip
        with pytest.raises(Refused):
            read_report(survey, wrong)


def test_a_set_is_said_as_its_options_and_a_place_as_a_stretch() -> None:
    choice = read_survey(made(CHOICE).survey.shape()).questions[0]
    coin = Subset(21, 23, 3, 1 << 30)
    assert in_words(choice, coin, 0, 1) == "one of: line 0, line 1, line 2"
    assert in_words(choice, coin, 0, 1 + (2 << 16)) == "one of: line 0"
    assert in_words(choice, coin, 0, 1 + (3 << 16)) == "one of: no answer"
    assert in_words(choice, Subset(21, 23, 1, 1), 0, 1 + (1 << 16)) == "none of these"
    hours = made(HOURS).survey.questions[0]
    place = Piecewise(60, 10, 1 << 30)
    said = [in_words(hours, place, 0, at) for at in (0, 9, 30, 69, 70, 79)]
    assert said == ["0 h", "0 to 9 h", "21 to 30 h", "60 h", "no answer", "no answer"]
    pay = made(PAY).survey.questions[0]
    assert (
        in_words(pay, Piecewise(last_grid_step(pay), 1, 1 << 30), 0, last_grid_step(pay)) == "99999"
    )


def _told(survey: Published, people: int, truths: Mapping[str, Truth]) -> Tally:
    reports = [make_report(survey, truths, n.to_bytes(32, "big")) for n in range(people)]
    return nothing(survey.survey).with_reports(reports)


def test_what_many_say_comes_back() -> None:
    survey = made(CHOICE, HOURS, epsilon=4)
    assert isinstance(survey.coins[0], Subset)
    tally = _told(survey, 1500, {"line": "line 7", "hours": 35})
    assert tally.reports == 1500
    assert [people_of(c, of[0]) for c, of in zip(survey.coins, tally.counts, strict=True)] == [
        1500, 1500
    ]  # fmt: skip
    lines, hours = results(survey, tally)
    shares = {one.label: one for one in lines.estimates}
    assert shares["line 7"].low > 0.85
    assert max(one.low for one in lines.estimates if one.label != "line 7") < 0.05
    (mean,) = hours.estimates
    assert mean.low < 35 < mean.high
    assert mean.high - mean.low < 4
    assert (hours.measure, hours.people) == ("mean", 1500)


def test_tallies_of_the_same_coins_add_up_and_of_others_never() -> None:
    survey = made(CHOICE, HOURS, epsilon=2)
    tally = _told(survey, 10, {})
    assert read_tally(tally.text()) == tally
    assert (tally + tally).reports == 20
    assert tally + nothing(survey.survey) == tally
    with pytest.raises(Bug):
        tally + nothing(made(CHOICE, HOURS, epsilon=3).survey)


def test_reports_are_counted_one_by_one_as_all_at_once() -> None:
    survey = made(CHOICE, HOURS, epsilon=1)
    reports = [make_report(survey, {"hours": n % 61}, bytes([n]) * 32) for n in range(40)]
    one_by_one = nothing(survey.survey)
    for report in [*reports, *reports]:
        one_by_one = one_by_one.with_reports([report])
    assert one_by_one == nothing(survey.survey).with_reports([*reports, *reports])


def test_a_report_is_told_in_words_by_every_question() -> None:
    survey = made(CHOICE, HOURS, epsilon=1)
    told = words_for(survey, make_report(survey, {}, b"k" * 32))
    assert [text for text, _ in told] == ["Which line?", "How long?"]
    assert all(words for _, words in told)


SMOKES = {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"}


def waves(count: int, *questions: Mapping[str, object], **changed: Any) -> list[Published]:
    """Return so many waves of one series."""
    shape = {"series": "daily", "ever": 4, "epsilon": 1, **changed}
    return [made(*questions, title=f"Day {n}", **shape) for n in range(count)]


def test_waves_of_one_device_differ_and_are_all_about_one_lasting_lie() -> None:
    """Who averages all waves of somebody finds what the lasting coins said, true or not."""
    daily = waves(240, SMOKES)
    coin = daily[0].coins[0]
    assert isinstance(coin, PermanentResponse)
    found = []
    for n in range(12):
        secret = bytes([n]) * 32
        said = Counter(make_report(wave, {"smokes": True}, secret) for wave in daily)
        assert len(said) == 3
        found.append(said.most_common(1)[0][0])
        words = words_of(secret, ["said", "", daily[0].response_ids[0], 0, 0])
        assert found[-1] == f"0.0.{said_of(coin.permanent, 0, words)}"
    again = [make_report(daily[0], {"smokes": True}, b"\x01" * 32) for _ in range(3)]
    assert len(set(again)) == 1  # within one wave the same again: nothing to average


def test_a_wave_costs_its_fresh_coins_and_all_of_them_the_lasting_ones() -> None:
    """The wave's own ratio is no price that may be added up (permanent_response.proof.md)."""
    (wave,) = waves(1, SMOKES, HOURS)
    assert all(isinstance(coin, PermanentResponse) for coin in wave.coins)
    ever = [coin.epsilon_ever for coin in wave.coins if isinstance(coin, PermanentResponse)]
    fresh = [coin.momentary.epsilon for coin in wave.coins if isinstance(coin, PermanentResponse)]
    assert sum(ever) <= 4
    assert wave.costs == tuple(fresh)
    assert 0.99 < float(wave.epsilon) <= 1
    assert all(coin.epsilon < cost for coin, cost in zip(wave.coins, fresh, strict=True))


def test_waves_with_other_fresh_coins_share_the_lasting_answer() -> None:
    one, other = waves(1, SMOKES)[0], waves(1, SMOKES, epsilon=2)[0]
    assert one.response_ids == other.response_ids
    assert one.response_ids != waves(1, SMOKES, ever=5)[0].response_ids


def test_what_many_say_in_a_wave_comes_back() -> None:
    (wave,) = waves(1, SMOKES, HOURS, ever=8, epsilon=6)
    tally = _told(wave, 2000, {"smokes": True, "hours": 60})
    smokes, hours = results(wave, tally)
    assert abs(smokes.estimates[0].value - 1) < 0.05  # five deviations
    assert hours.estimates[0].high > 57
    assert hours.estimates[0].high - hours.estimates[0].low < 12


@pytest.mark.parametrize(
    "changed",
    [{"ever": 4}, {"ever": 0.5, "series": "s"}, {"ever": 4, "series": "s", "paper": True},
     {"ever": 4, "series": "s", "format": 1}, {"ever": 0, "series": "s"}, {"format": 3},
     {"format": True}, {"format": "2"}],
)  # fmt: skip
def test_waves_are_of_a_series_and_cost_more_together_than_one(changed: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        made(SMOKES, **changed)


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5", "1", "2", "4", "10"])
def test_no_oracle_errs_less_on_a_part_of_several_or_of_a_ranking(epsilon: str) -> None:
    """Three answers, silence among them: there the formula chooses k-ary at every epsilon."""
    things = ["a", "b", "c", "d"]
    several = {"text": "Which?", "kind": "several", "options": things}
    ranking = {"text": "In which order?", "kind": "ranking", "options": things}
    survey = made(several, ranking, epsilon=epsilon, budget="sampled").survey
    chosen = best_oracle(3, Fraction(epsilon))
    assert [coin.parameters for coin in choose_randomisers(survey)] == [chosen.parameters] * 2


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
@pytest.mark.parametrize("options", [2, 3, 5, 10, 20])
def test_drawing_one_option_errs_less_than_asking_of_all(options: int, epsilon: str) -> None:
    """By the formula of rare answers, and for what half of the people have ticked too."""
    makers = [lambda each: KAry.within(3, each)] * options
    assert isinstance(best_ballot(makers, Fraction(epsilon)), Sampled)
    halves = np.array([0.5, 0.5, 0.0])
    drawn = variances(KAry.within(3, Fraction(epsilon)), halves, 1)[0] * options
    assert drawn < variances(KAry.within(3, Fraction(epsilon) / options), halves, 1)[0]
