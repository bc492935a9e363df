"""Pieces of the console that need no browser: files, pictures, numbers, addresses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sfumato.client import Answer
from sfumato.features.queries.answer_pages import cells_of, csv_of
from sfumato.server.console.answer_pictures import LOOKS, drawn, harmless, pictured
from sfumato.server.console.number_text import bound, margin, moment, plain_number
from sfumato.server.console.templates_renderer import make_renderer
from sfumato.server.console.visit import safe_path

KEYS = ("=1+1", "+cmd", "-2", "@x", "\tx", "plain", None, True)


def answer(keys: tuple[object, ...] = KEYS, half: float = 8) -> Answer:
    """Return counts by a key, as the door would have made them."""
    outputs = [{"name": "=key", "key": "key"}, {"name": "n", "verb": "count", "of": []}]
    values = [-5 + 10 * place for place, _ in enumerate(keys)]
    return Answer(
        columns=("=key", "n"),
        rows=tuple(zip(keys, values, strict=True)),
        std=tuple((None, half / 2) for _ in keys),
        interval=tuple((None, (value - half, value + half)) for value in values),
        guarantee="central-dp",
        receipt={
            "question": {"outputs": outputs}, "data_set": "d", "version": "1", "says": "rows",
            "bounding": "", "epsilon": 1.0, "free": False,
        },
    )  # fmt: skip


def test_a_spreadsheet_runs_no_text_of_a_csv_file() -> None:
    lines = csv_of(answer()).splitlines()
    assert lines[0] == "'=key,n,n_std,n_low,n_high"
    cells = [line.partition(",")[0].strip('"') for line in lines[1:]]
    assert cells == ["'=1+1", "'+cmd", "'-2", "'@x", "'\tx", "plain", "", "True"]


def test_a_negative_number_of_a_csv_file_stays_a_number() -> None:
    assert csv_of(answer()).splitlines()[1].endswith(",-5,4.0,-13,3")


def test_keys_are_written_as_people_say_them() -> None:
    assert [row[0].text for row in cells_of(answer())][-2:] == ["(missing)", "true"]


@pytest.mark.parametrize("look", LOOKS)
def test_a_picture_holds_no_script_no_style_and_no_address(look: str) -> None:
    picture = pictured(answer(("<script>", 'a"b', "javascript:x")), "n")
    assert picture is not None
    svg = drawn(picture, look).decode()
    assert "&lt;script&gt;" in svg
    assert re.findall(r"<(?:script|style|image|a|foreignObject|use)\b", svg) == []
    assert re.findall(r'\s(?:style|href|xlink:href|on\w+)="', svg) == []


def test_uncertainty_has_soft_edges() -> None:
    picture = pictured(answer(("a", "b")), "n")
    assert picture is not None
    assert drawn(picture, "light").count(b"<linearGradient") >= 2


def test_what_is_not_on_the_list_is_taken_out() -> None:
    head = '<svg xmlns="http://www.w3.org/2000/svg" onload="x" style="y">'
    svg = f'{head}<script>x</script><a href="z"><text>t</text></a><g><use/></g></svg>'
    assert harmless(svg) == b'<svg xmlns="http://www.w3.org/2000/svg"><g /></svg>'


def test_texts_cannot_be_drawn() -> None:
    texts = replace(answer(("a",)), rows=(("a", "word"),))
    assert pictured(texts, "n") is None


@pytest.mark.parametrize("path", ["//evil", "/\\evil", "evil", "https://evil", "/a\nb", ""])
def test_no_address_leads_to_another_host(path: str) -> None:
    assert safe_path(path) == "/"


def test_an_address_of_ours_is_kept() -> None:
    assert safe_path("/data-sets/a") == "/data-sets/a"


def test_numbers_lose_the_dust_of_floats() -> None:
    assert plain_number(0.1 + 0.2) == "0.3"
    assert plain_number("3/10") == "0.3"
    assert plain_number(None) == "–"
    assert bound("2026-01-01") == "2026-01-01"
    assert margin(12.3456) == "12"
    assert moment("2026-11-21T20:39:11+00:00") == "2026-11-21 20:39"


def test_every_template_can_be_read() -> None:
    paper = make_renderer()
    names = ("base.html", "ask.html", "answer.html", "sheet.html")
    assert [paper.templates.get_template(name).name for name in names] == list(names)
    assert paper.file(paper.digest, "nothing.js") is None


PROMISED: dict[str, Any] = {
    "asked": 3, "of": 3, "guess": 90, "ever": None, "lifetime": 2.0, "epsilon": 2.0,
}  # fmt: skip
SURVEY: dict[str, Any] = {
    "title": "t", "asks": "a", "about": "", "series": "", "opens": "", "closes": "", "paper": False,
}  # fmt: skip


def survey_page(ways: Sequence[int | None]) -> str:
    """The respondent's page, over, of questions whose coins pick one of so many answers."""
    told = {"told": 50, "chance": 50, "guess": 75, "sent": "", "required": False}
    odds = [{**told, "ways": way} for way in ways]
    page = make_renderer().page(
        "survey.html", survey=SURVEY, promise={**PROMISED, "questions": odds}, odds=odds[0],
        guess=75, weak=99, state="closed", id="x", text="", proof="[]",
    )  # fmt: skip
    return bytes(page.body).decode()


def test_what_a_page_says_of_the_coins_holds_for_each_of_its_questions() -> None:
    """Three answers are those of one question, and another has more of them, or a list is sent."""
    assert "have their own answer sent</b>" in survey_page([3])
    assert "pick one of all 3 answers, “no answer” among them" in survey_page([3])
    for ways in ([3, 5], [3, None], [None]):
        said = survey_page(ways)
        assert "have their own answer in what is sent, on purpose</b>" in said
        assert "pick what is sent without a look at the answer" in said
        assert "one of all" not in said


def test_who_was_invited_is_told_whose_password_is_asked_for() -> None:
    page = make_renderer().page(
        "welcome.html", invitation="x", refused=None, me={"user": "", "actions": []}, path="/"
    )
    said = bytes(page.body).decode()
    assert "Do not reuse a password from elsewhere" in said
    assert "your user name, which the next page shows" in said
