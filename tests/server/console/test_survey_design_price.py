"""The page that a survey is designed on, without a browser: what each question will tell."""

from __future__ import annotations

import json
import re
from typing import Any

from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.estimation import TRIED, expected, tried
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.privacy_statement import privacy_statement
from sfumato.features.surveys.randomised_report import Published
from sfumato.server.console.templates_renderer import make_renderer
from support.survey_fixtures import design

PAY: dict[str, Any] = {"text": "Pay?", "kind": "number", "low": 0, "high": 100_000}
BLANK = dict.fromkeys(("text", "kind", "options", "low", "high", "unit", "required"), "")
NAMES = (
    "title", "about", "asks", "opens", "closes", "series", "budget", "epsilon", "people",
    "minimum", "lifetime", "ever", "paper",
)  # fmt: skip


def page(shape: dict[str, Any]) -> str:
    """Return the page as it is after a preview of this design."""
    survey = read_survey(shape)
    made = Published(survey, PublicKey(1, 1))
    seen: dict[str, Any] = {
        "epsilon": float(made.epsilon), "guarantee": "local-dp", "promise": privacy_statement(made),
        "expected": [one.shape() for one in expected(survey)],
        "table": [
            {"epsilon": float(epsilon), "expected": [one.shape() for one in found]}
            for epsilon, found in tried(survey)
        ],
    }  # fmt: skip
    reply = make_renderer().page(
        "survey_design.html", refused=None, values=dict.fromkeys(NAMES, ""), asked=[BLANK],
        kinds=(), seen=json.loads(json.dumps(seen)), csrf="", path="/surveys/new",
        me={"user": "olga", "roles": [], "actions": []},
    )  # fmt: skip
    return bytes(reply.body).decode()


def rows_of(text: str) -> list[list[str]]:
    (table,) = re.findall(r"<table>.*?</table>", text, re.S)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]


def test_the_table_of_epsilons_shows_each_question() -> None:
    shape = design(questions=[*design()["questions"], PAY])
    head, *rows = rows_of(page(shape))
    assert head == ["ε", "Question 1", "Question 2", "Question 3"]
    assert len(rows) == len(TRIED)
    assert {len(row) for row in rows} == {4}
    for at, (epsilon, found) in enumerate(tried(read_survey(shape))):
        assert float(rows[at][0]) == float(epsilon)
        points = [f"± {round(100 * one.error, 1)} points" for one in found[:2]]
        assert rows[at][1:3] == [
            said if one.tells else "no estimate is possible"
            for said, one in zip(points, found[:2], strict=True)
        ]
        assert rows[at][3].startswith("± ") == found[2].tells


def test_a_number_of_which_nothing_is_learnt_says_so() -> None:
    """An interval as wide as the range itself is no result."""
    shape = design(questions=[PAY], people=10, epsilon="0.1")
    (one,) = expected(read_survey(shape))
    assert one.error > 50_000
    assert "Question 1: no estimate is possible from" in page(shape)
    assert "Question 1: ± " in page(design(questions=[PAY], people=1000, epsilon=2))


def respondents(**changed: Any) -> str:
    """Return the page that this design is answered on."""
    survey = read_survey(design(**changed))
    told = privacy_statement(Published(survey, PublicKey(1, 1)))
    odds = max(told["questions"], key=lambda one: one["told"])  # type: ignore[call-overload]  # JSON
    questions = [{"options": [], **one} for one in survey.shape()["questions"]]  # type: ignore[attr-defined]  # as above
    reply = make_renderer().page(
        "survey.html", id="a" * 32, survey={**survey.shape(), "questions": questions}, text="{}",
        state="open", proof="[]", promise=told, odds=odds, guess=odds["guess"], weak=95, qr="",
    )  # fmt: skip
    return bytes(reply.body).decode()


def test_a_page_promises_no_memory_beyond_the_coins_own() -> None:
    """Two surveys that are no series are two draws: asked daily, they can be averaged."""
    alone, series = respondents(), respondents(series="daily")
    waves = respondents(series="daily", ever=4)
    assert "The same question in another survey is a new draw of the coins, and adds up" in alone
    assert "Another survey that asks the same question has its own coin flips" in alone
    assert "daily waves tell nobody more" not in alone
    assert "So even daily waves tell nobody more." in series
    assert "So even daily waves tell nobody more than that lasting answer would" in waves
    for page_ in (series, waves):
        assert "its own coin flips" not in page_
        assert "new draw of the coins, and adds up" not in page_
