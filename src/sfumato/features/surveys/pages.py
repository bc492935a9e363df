"""Console pages for a survey's owner: list, design with preview, invitations, results."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.qr_code import address_of, qr_of
from sfumato.server.console.visit import Said, Visit, whole_number

FIRST_QUESTIONS: Final = 2
MAX_QUESTIONS: Final = 20
KINDS: Final = (
    ("yes-no", "Yes or no"), ("choice", "One of several"), ("several", "Any of several"),
    ("number", "A number"), ("ranking", "A ranking"),
)  # fmt: skip
PLAIN: Final = ("title", "about", "asks", "opens", "closes", "series", "budget")


async def listed(visit: Visit) -> Response:
    """Show the page with the list of the owner's surveys."""
    found = await visit.call("surveys")
    return visit.page("surveys.html", surveys=found["surveys"])


async def new(visit: Visit) -> Response:
    """Show the empty form to design a survey."""
    return _form(visit, Form({}), FIRST_QUESTIONS)


async def design(visit: Visit) -> Response:
    """Preview a survey design's epsilon and expected errors, or publish the survey."""
    form, count = visit.form, _count(visit.form)
    if form.text("do") == "more":
        return _form(visit, form, min(count + 1, MAX_QUESTIONS))
    verb = "publish-survey" if form.text("do") == "publish" else "preview-survey"
    said, refused = await visit.tried(verb, lambda: {"survey": _design(form, count)})
    if said is not None and verb == "publish-survey":
        return visit.go(f"/surveys/{said['survey']}")
    return _form(visit, form, count, said, refused)


async def shown(visit: Visit) -> Response:
    """Show one of the owner's surveys: its link, its invitations and its estimates."""
    return visit.page("survey_own.html", **await _own(visit), codes=[], people=[])


async def invite(visit: Visit) -> Response:
    """Create invitations to a survey and show their codes, which are shown only this once."""
    people = [line.strip() for line in visit.form.text("people").split("\n") if line.strip()]

    def body() -> dict[str, object]:
        who = {"people": people} if people else {"count": visit.form.count("count") or 1}
        return {"survey": visit.at("survey"), **who}

    said, refused = await visit.tried("invite-to-survey", body)
    codes = [] if said is None else said["codes"]
    return visit.page("survey_own.html", refused, **await _own(visit), codes=codes, people=people)


async def close(visit: Visit) -> Response:
    """Close a survey to new ballots, and go to its page."""
    await visit.call("close-survey", {"survey": visit.at("survey")})
    return visit.go(f"/surveys/{visit.at('survey')}")


async def _own(visit: Visit) -> Said:
    survey = visit.at("survey")
    mine = await visit.call("surveys")
    found = [one for one in mine["surveys"] if one["survey"] == survey]
    if not found:
        raise Refused(
            "survey-unknown",
            "You have no survey with this id.",
            "Choose one of your surveys on the page Surveys.",
        )
    said = await visit.call("survey", {"survey": survey})
    table: dict[str, Any] = json.loads(said["text"])  # Any: JSON that the service has checked
    address = address_of(visit.request, survey)
    return {
        "one": found[0],
        "id": survey,
        "survey": table["survey"],
        "promise": said["promise"],
        "found": await visit.call("survey-estimates", {"survey": survey}),
        "address": address,
        "qr": qr_of(address),
    }


def _count(form: Form) -> int:
    wanted = whole_number(form.text("questions"))
    return FIRST_QUESTIONS if wanted is None else min(max(wanted, 1), MAX_QUESTIONS)


def _form(
    visit: Visit,
    form: Form,
    count: int,
    seen: Said | None = None,
    refused: Refused | None = None,
) -> Response:
    names = (*PLAIN, "epsilon", "people", "minimum", "lifetime", "ever", "paper")
    values = {name: form.text(name) for name in names}
    asked = [
        {
            part: form.text(f"{part}{n}")
            for part in ("text", "kind", "options", "low", "high", "unit", "required")
        }
        for n in range(count)
    ]
    return visit.page(
        "survey_design.html", refused, values=values, asked=asked, kinds=KINDS, seen=seen
    )


def _design(form: Form, count: int) -> dict[str, object]:
    made: dict[str, object] = {name: form.text(name) for name in PLAIN if form.text(name)}
    for name in ("epsilon", "lifetime", "ever"):
        if form.text(name):
            made[name] = form.text(name)
    for name in ("people", "minimum"):
        if form.text(name):
            made[name] = form.count(name)
    numbers = [n for n in range(count) if form.text(f"text{n}")]
    made["paper"] = form.has("paper")
    made["questions"] = [_question(form, n) for n in numbers]
    return made


def _question(form: Form, n: int) -> dict[str, object]:
    kind = form.text(f"kind{n}")
    made: dict[str, object] = {"text": form.text(f"text{n}"), "kind": kind}
    if kind == "number":
        made |= {end: _whole(form.text(f"{end}{n}")) for end in ("low", "high")}
        if form.text(f"unit{n}"):
            made["unit"] = form.text(f"unit{n}")
    elif kind != "yes-no":
        lines = form.text(f"options{n}").split("\n")
        made["options"] = [line.strip() for line in lines if line.strip()]
    if form.has(f"required{n}"):
        made["required"] = True
    return made


def _whole(typed: str) -> object:
    digits = typed.removeprefix("-")
    is_whole = digits.isascii() and digits.isdecimal() and len(digits) <= 12
    return int(typed) if is_whole else typed


PAGES: Final = (
    Page("GET", "/surveys", listed, ("surveys",)),
    Page("GET", "/surveys/new", new, ("preview-survey",)),
    Page("POST", "/surveys/new", design, ("publish-survey",)),
    Page("GET", "/surveys/{survey}", shown, ("surveys",)),
    Page("POST", "/surveys/{survey}/invite", invite, ("invite-to-survey",)),
    Page("POST", "/surveys/{survey}/close", close, ("close-survey",)),
)
