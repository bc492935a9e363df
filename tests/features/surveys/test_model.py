"""A survey's definition, a device's report, and the way back from many of them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import exp, log
from typing import Any

import numpy as np
import pytest

from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import epsilon_of
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.refusal import Refused
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.estimation import expected, results
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.privacy_statement import privacy_statement
from sfumato.features.surveys.randomisation import sides_of
from sfumato.features.surveys.randomised_report import (
    Published,
    Truth,
    make_report,
    read_published,
    read_report,
    value_of,
    words_of,
)
from sfumato.features.surveys.tally import Tally, nothing, read_tally

KEY = PublicKey(0xC0FFEE, 65537)
DESIGN: dict[str, Any] = {
    "title": "How we work",
    "about": "Two questions.\nAnonymous.",
    "asks": "The works council",
    "questions": [
        {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"},
        {"id": "way", "text": "How do you come?", "kind": "choice", "options": ["foot", "bus"]},
        {"id": "has", "text": "Which have you had?", "kind": "several", "options": ["a", "b", "c"]},
        {"id": "hours", "text": "How long?", "kind": "number", "low": 0, "high": 60, "unit": "h"},
        {"id": "rank", "text": "What first?", "kind": "ranking", "options": ["x", "y", "z"]},
    ],
    "epsilon": 4,
    "budget": "split",
    "people": 500,
    "minimum": 50,
    "opens": "2026-11-01",
    "closes": "2026-12-24",
}
TRUTHS: Mapping[str, Truth] = {
    "smokes": True, "way": "bus", "has": ["a", "c"], "hours": 35, "rank": ["z", "x", "y"],
}  # fmt: skip


def test_no_promise_is_smaller_than_the_truth() -> None:
    for epsilon in (0.5, 1, 4.59, 4.6, 5, 6.9, 7.5, 9.99, 10):
        yes = made(questions=DESIGN["questions"][:1], epsilon=epsilon, lifetime=10)
        told: dict[str, Any] = privacy_statement(yes)
        sure = 100 / (1 + exp(-float(yes.epsilon)))
        assert sure <= told["guess"] < 100
        (odds,) = told["questions"]
        assert odds["told"] >= 100 * coin_of(yes).p_minus_q
        assert odds["told"] + odds["chance"] == 100


def made(**changed: Any) -> Published:
    return Published(read_survey({**DESIGN, **changed}), KEY)


def coin_of(published: Published, question: int = 0) -> KAry:
    coin = published.coins[question]
    assert isinstance(coin, KAry)
    return coin


def test_a_survey_reads_back_from_the_text_that_it_was_published_as() -> None:
    survey = made()
    assert read_published(survey.text).text == survey.text
    assert read_published(survey.text).id == survey.id


@pytest.mark.parametrize(
    "changed",
    [
        {"title": "How we play"}, {"epsilon": 3}, {"minimum": 60}, {"series": "yearly"},
        {"questions": DESIGN["questions"][:3]}, {"about": ""},
    ],
)  # fmt: skip
def test_whatever_changes_the_id_changes(changed: dict[str, Any]) -> None:
    assert made(**changed).id != made().id


def test_another_key_is_another_id() -> None:
    assert Published(made().survey, PublicKey(0xC0FFEF, 65537)).id != made().id


@pytest.mark.parametrize(
    "changed",
    [
        {"title": ""}, {"title": "a\nb"}, {"title": 7}, {"epsilon": 0}, {"epsilon": 11},
        {"epsilon": "x"}, {"epsilon": True}, {"epsilon": float("nan")}, {"budget": "half"},
        {"people": 0}, {"people": 1.5}, {"people": True}, {"minimum": 9}, {"opens": "soon"},
        {"opens": "2026-13-01"}, {"closes": "2026-10-31"}, {"lifetime": 3}, {"paper": 1},
        {"questions": []}, {"questions": [{}]}, {"questions": "x"}, {"more": 1},
        {"questions": [{"text": "a", "kind": "essay"}]},
        {"questions": [{"text": "a", "kind": "choice", "options": ["one"]}]},
        {"questions": [{"text": "a", "kind": "choice", "options": ["one", "one"]}]},
        {"questions": [{"text": "a", "kind": "choice", "options": ["one", "no answer"]}]},
        {"questions": [{"text": "a", "kind": "number", "low": 3, "high": 3}]},
        {"questions": [{"text": "a", "kind": "yes-no", "options": ["a", "b"]}]},
        {"paper": True},
        {"questions": [{"id": "a", "text": "a", "kind": "yes-no"}] * 2},
        {"questions": [{"id": i, "text": "a", "kind": "yes-no"} for i in "ab"]},
        {"questions": [{"text": "a", "kind": "several", "options": ["b", "c"]}] * 2},
        {"questions": [{"text": "a", "kind": "number", "low": 0, "high": 3, "required": True}]},
        {"questions": [{"text": "a", "kind": "several", "options": ["b", "c"], "required": True}]},
        {"questions": [{"text": "a", "kind": "yes-no", "required": "yes"}]},
        {"questions": [{"text": "a", "kind": "yes-no", "required": 1}]},
        {"questions": [{"text": "a", "kind": "yes-no", "required": True}], "paper": True},
        {"questions": [{"text": "a", "kind": "yes-no", "required": True}], "format": 1},
    ],
)  # fmt: skip
def test_what_is_no_survey_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        made(**changed)


def test_the_whole_ballot_costs_no_more_than_its_epsilon() -> None:
    assert 3.9 < float(made().epsilon) <= 4
    assert float(made(budget="sampled").epsilon) <= 4


def test_a_ballot_of_dice_is_charged_what_the_dice_give_away() -> None:
    published = made(paper=True, questions=DESIGN["questions"][:2], epsilon=2)
    of_dice = [
        epsilon_of(1 + Fraction(sides_of(coin) * coin.size, 36 - sides_of(coin)))
        for coin in (coin_of(published, n) for n in range(2))
    ]
    pairs = [(dice, coin.epsilon) for dice, coin in zip(of_dice, published.coins, strict=True)]
    assert any(dice > coin for dice, coin in pairs)
    assert published.epsilon == sum(max(pair) for pair in pairs)


def test_dice_cost_no_more_than_the_epsilon_either() -> None:
    published = made(paper=True, questions=DESIGN["questions"][:2])
    for coin in (coin_of(published, n) for n in range(2)):
        sides = sides_of(coin)
        ratio = 1 + Fraction(sides * coin.size, 36 - sides)
        assert float(epsilon_of(ratio)) <= 2
        assert abs(float(coin.p_minus_q) - sides / 36) < 1e-9


@pytest.mark.parametrize("series", ["", "yearly"])
def test_no_two_questions_of_a_ballot_share_their_coins(series: str) -> None:
    listed = [
        {"text": "a", "kind": "yes-no"}, {"text": "b", "kind": "yes-no"},
        {"text": "a", "kind": "choice", "options": ["c", "d"]},
        {"text": "a", "kind": "choice", "options": ["d", "c"]},
        {"text": "a", "kind": "ranking", "options": ["c", "d"]},
        {"text": "a", "kind": "number", "low": 0, "high": 9},
        {"text": "a", "kind": "number", "low": 0, "high": 9, "unit": "h"},
    ]  # fmt: skip
    memos = made(questions=listed, series=series).response_ids
    assert len(set(memos)) == len(listed)


def test_a_device_says_the_same_again() -> None:
    survey = made()
    first = make_report(survey, TRUTHS, b"a" * 32)
    assert first == make_report(survey, TRUTHS, b"a" * 32)
    assert len({make_report(survey, TRUTHS, bytes([n]) * 32) for n in range(30)}) > 20


def test_a_series_is_of_one_asker() -> None:
    ours, theirs = made(series="daily"), made(series="daily", asks="Somebody else")
    assert not set(ours.response_ids) & set(theirs.response_ids)


def test_a_series_remembers_and_a_survey_by_itself_does_not() -> None:
    secret = b"s" * 32
    waves = [made(series="daily", title=f"Day {n}") for n in range(30)]
    assert len({make_report(wave, TRUTHS, secret) for wave in waves}) == 1
    alone = [made(title=f"Day {n}") for n in range(30)]
    assert len({make_report(one, TRUTHS, secret) for one in alone}) > 20


@pytest.mark.parametrize("budget", ["split", "sampled"])
def test_every_report_has_the_same_parts_whatever_the_truth(budget: str) -> None:
    survey = made(budget=budget)
    for n in range(60):
        secret = bytes([n]) * 32
        reports = [
            make_report(survey, truths, secret)
            for truths in (TRUTHS, {}, {**TRUTHS, "smokes": False, "has": [], "hours": None})
        ]
        assert len({tuple(part.rpartition(".")[0] for part in r.split()) for r in reports}) == 1
        assert {read_report(survey, report) is not None for report in reports} == {True}


@pytest.mark.parametrize(
    "text",
    [
        "", "0.0.0", "0.0.0 1.0.0 2.0.0 3.0.0 4.0.3", "0.0.0 1.0.0 2.3.0 3.0.0 4.0.0",
        "0.0.0 0.0.0 2.0.0 3.0.0 4.0.0", "0.0.0 1.0.0 2.0.0 3.0.0 4.0.0 ",
        "00.0.0 1.0.0 2.0.0 3.0.0 4.0.0", "0.0.-1 1.0.0 2.0.0 3.0.0 4.0.0", "٣.0.0 1.0.0",
        "1.0.0 0.0.0 2.0.0 3.0.0 4.0.0", "x" * 5000, "5.0.0 1.0.0 2.0.0 3.0.0 4.0.0",
    ],
)  # fmt: skip
def test_what_no_device_makes_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_report(made(), text)


@pytest.mark.parametrize(
    "truths",
    [
        {"smokes": "yes"}, {"way": "car"}, {"has": ["d"]}, {"has": ["a", "a"]}, {"hours": 61},
        {"hours": True}, {"rank": ["x", "y"]}, {"way": 1},
    ],
)  # fmt: skip
def test_what_is_no_answer_to_a_question_is_refused(truths: Mapping[str, Truth]) -> None:
    survey = made().survey
    question = next(q for q in survey.questions if q.id in truths)
    with pytest.raises(Refused):
        value_of(question, 0, truths[question.id])


def _told(survey: Published, truths: Mapping[str, Truth], people: int) -> Tally:
    secrets = (n.to_bytes(32, "big") for n in range(people))
    return nothing(survey.survey).with_reports(
        [make_report(survey, truths, secret) for secret in secrets]
    )


def test_seventy_in_a_hundred_come_back_as_seventy() -> None:
    survey = made(questions=DESIGN["questions"][:1], epsilon=1, people=2000)
    yes, no = _told(survey, {"smokes": True}, 1400), nothing(survey.survey)
    rest = [make_report(survey, {"smokes": False}, n.to_bytes(33, "big")) for n in range(600)]
    share = results(survey, yes + no.with_reports(rest))[0].estimates[0]
    assert share.low < 0.7 < share.high
    assert share.high - share.low < 0.17
    assert abs(share.value - 0.7) < 0.09


def test_every_kind_of_question_comes_back_right() -> None:
    survey = made(epsilon=10)
    found = {one.question.id: one for one in results(survey, _told(survey, TRUTHS, 2500))}
    shares = {e.label: e for e in found["way"].estimates}
    assert shares["bus"].low < 1 <= shares["bus"].high + 0.02
    assert shares["no answer"].low < 0.02
    ticked = {e.label: e.value for e in found["has"].estimates}
    assert ticked["a"] > 0.85
    assert ticked["c"] > 0.85
    assert ticked["b"] < 0.15
    mean = found["hours"].estimates[0]
    assert mean.low < 35 < mean.high
    assert mean.high - mean.low < 9
    before = {e.label: e.value for e in found["rank"].estimates}
    assert before["x before y"] > 0.85
    assert before["x before z"] < 0.15


def test_silence_is_hidden_like_every_answer() -> None:
    survey = made(questions=DESIGN["questions"][:1], epsilon=1)
    tally = _told(survey, {}, 1500).counts[0][0]
    most = (exp(1) / (exp(1) + 2)) * 1500
    assert abs(tally[2] - most) < 85
    assert min(tally) > 200


# --- questions that need an answer ----------------------------------------------------------------

NEEDED: list[dict[str, Any]] = [
    {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no", "required": True},
    {"id": "way", "text": "How?", "kind": "choice", "options": ["foot", "bus"], "required": True},
    {"id": "lines", "text": "Which?", "kind": "choice", "options": [f"l{n}" for n in range(18)],
     "required": True},
]  # fmt: skip
SAID: dict[str, Truth] = {"smokes": True, "way": "bus", "lines": "l7"}


@pytest.mark.parametrize("epsilon", [1, 4, 10])
@pytest.mark.parametrize("changed", [{}, {"budget": "sampled"}, {"series": "s", "ever": 10}])
def test_where_an_answer_is_needed_there_is_no_category_for_none(
    epsilon: int, changed: dict[str, Any]
) -> None:
    survey = made(questions=NEEDED, epsilon=epsilon, lifetime=10, **changed)
    kinds = KAry | Subset | PermanentResponse
    assert [coin.size for coin in survey.coins if isinstance(coin, kinds)] == [2, 2, 18]
    assert float(survey.epsilon) <= epsilon
    assert read_survey(survey.survey.shape()) == survey.survey
    found = results(survey, _told(survey, SAID, 400))
    labels = [[e.label for e in one.estimates] for one in found]
    assert labels == [["yes", "no"], ["foot", "bus"], [f"l{n}" for n in range(18)]]


def test_a_share_of_those_who_all_answered_comes_back() -> None:
    survey = made(questions=NEEDED[:1], epsilon=1, people=2000)
    yes = _told(survey, {"smokes": True}, 1400)
    rest = [
        make_report(survey, {"smokes": False}, (n + 9000).to_bytes(32, "big")) for n in range(600)
    ]
    one, other = results(survey, yes.with_reports(rest))[0].estimates
    assert one.low < 0.7 < one.high
    assert one.value + other.value == pytest.approx(1)
    with_none = made(questions=DESIGN["questions"][:1], epsilon=1, people=2000)
    assert expected(survey.survey)[0].error < 0.85 * expected(with_none.survey)[0].error


@pytest.mark.parametrize("budget", ["split", "sampled"])
def test_a_device_with_a_blank_makes_no_report_whatever_it_would_have_drawn(budget: str) -> None:
    survey = made(questions=[*NEEDED, DESIGN["questions"][3]], budget=budget)
    for n in range(40):
        secret = bytes([n]) * 32
        assert read_report(survey, make_report(survey, SAID, secret))
        for name in SAID:
            for blank in ({k: v for k, v in SAID.items() if k != name}, {**SAID, name: None}):
                with pytest.raises(Refused):
                    make_report(survey, blank, secret)


def test_a_report_of_no_answer_is_none_where_an_answer_is_needed() -> None:
    survey = made(questions=NEEDED[:2], epsilon=1)
    assert read_report(survey, "0.0.1 1.0.1")
    for text in ("0.0.2 1.0.1", "0.0.1 1.0.2"):
        with pytest.raises(Refused):
            read_report(survey, text)


def test_a_question_that_needs_no_answer_is_written_as_it_always_was() -> None:
    shape: Any = made().survey.shape()
    assert all("required" not in question for question in shape["questions"])
    needed = made(
        questions=[{**one, "required": one["kind"] == "yes-no"} for one in DESIGN["questions"]]
    )
    assert needed.id != made().id
    assert needed.response_ids[0] != made().response_ids[0]
    assert needed.response_ids[1:] == made().response_ids[1:]


def test_the_error_that_was_announced_is_the_error_that_comes() -> None:
    survey = made(questions=DESIGN["questions"][:1], epsilon=1, people=400)
    announced = expected(survey.survey)[0].error
    rng = np.random.default_rng(5)
    coin, found = coin_of(survey), []
    for _ in range(2000):
        seen = rng.multinomial(
            400,
            [0.5 * float(coin.p_minus_q) + c for c in coin.q[:2]] + [float(coin.q[2])],
        )
        tally = Tally(400, ((tuple(map(int, seen)),),))
        found.append(results(survey, tally)[0].estimates[0].value)
    assert abs(1.96 * float(np.std(found)) / announced - 1) < 0.06


def test_a_tally_reads_back_and_adds_up() -> None:
    survey = made()
    tally = _told(survey, TRUTHS, 20)
    assert read_tally(tally.text()) == tally
    assert (tally + tally).reports == 40
    assert (tally + nothing(survey.survey)) == tally


def test_liars_move_a_share_by_no_more_than_is_said() -> None:
    survey = made(questions=DESIGN["questions"][:1], epsilon=1)
    said = expected(survey.survey)[0].liars
    coin = coin_of(survey)
    honest = Tally(10_000, (((4000, 4000, 2000),),))
    lying = Tally(10_000, (((4100, 3900, 2000),),))  # one in a hundred now all say yes
    moved = results(survey, lying)[0].estimates[0].value
    moved -= results(survey, honest)[0].estimates[0].value
    assert moved <= said + 1e-12
    assert abs(said - 0.01 / float(coin.p_minus_q)) < 1e-12


def test_the_words_are_those_of_an_hmac_and_hang_on_every_part_of_the_label() -> None:
    words = words_of(b"k" * 32, ["said", "", "ab", 0, 1])
    assert len(words) == 8
    assert words != words_of(b"k" * 32, ["said", "", "ab", 0, 2])
    assert log(max(words)) < 22.2
