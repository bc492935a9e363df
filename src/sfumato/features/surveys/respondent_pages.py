"""Web pages for respondents, open to everybody without identification."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from sfumato.features.surveys.schema import WEAK
from sfumato.server.console.page import Page
from sfumato.server.console.qr_code import address_of, qr_of
from sfumato.server.console.visit import Said, Visit

MAX_PAGES: Final = 20  # the most pages in one CSV file; with 64 parts a page, about 50,000 reports


async def answer(visit: Visit) -> Response:
    """Show the page on which a respondent answers a survey."""
    return visit.page("survey.html", **await _shown(visit))


async def results(visit: Visit) -> Response:
    """Show the estimates of a survey, once its minimum of reports is met."""
    asked = {"survey": visit.at("survey"), **_shares_asked(visit)}
    found = await visit.call("survey-estimates", asked)
    return visit.page("survey_results.html", found=found, **await _shown(visit))


def _shares_asked(visit: Visit) -> dict[str, str]:
    shares = visit.request.query_params.get("shares")
    return {} if shares is None else {"shares": shares}


async def reports(visit: Visit) -> Response:
    """Show the published randomised reports of a survey."""
    listed = await _listed(visit, None)
    rest = None if listed["next"] is None else await _listed(visit, listed["next"])
    # the parameter `next` may lead to an empty page
    is_more = rest is not None and bool(rest["reports"])
    shown = await _shown(visit)
    from sfumato.features.surveys.respondent_client import (
        in_words,  # imported here, because an edge server needs it for this page alone
    )

    words = in_words(shown["text"], [one["said"] for one in listed["reports"]])
    told = list(zip(listed["reports"], words, strict=True))
    return visit.page("survey_reports.html", reports=told, is_more=is_more, **shown)


async def as_csv(visit: Visit) -> Response:
    """Stream the reports as CSV: marks and randomised answers, of letters, digits and dots.

    The file is streamed page by page, so concurrent downloads need little memory.
    """
    first = await _listed(visit, None)  # read before the stream starts, so a refusal is a page
    name = f'attachment; filename="survey-{visit.at("survey")}.csv"'
    headers = {"Content-Disposition": name}
    parts = csv_parts(first, partial(_listed, visit))
    return StreamingResponse(parts, media_type="text/csv", headers=headers)


async def csv_parts(listed: Said, more: Callable[[str], Awaitable[Said]]) -> AsyncIterator[str]:
    """Yield the reports as CSV text, page by page.

    A last line says if reports were left out because there are too many.
    """
    yield "mark,said\r\n"
    for _ in range(MAX_PAGES):
        yield "".join(f"{one['mark']},{one['said']}\r\n" for one in listed["reports"])
        if listed["next"] is None:
            return
        listed = await more(listed["next"])
    if listed["reports"]:
        yield "cut,there are more reports: read them page by page as JSON\r\n"


async def _listed(visit: Visit, after: str | None) -> Said:
    """Fetch one page of a survey's published reports."""
    asked = {"survey": visit.at("survey")} | ({} if after is None else {"after": after})
    return await visit.call("survey-reports", asked)


async def paper(visit: Visit) -> Response:
    """Show the page on how to answer a survey with two dice."""
    return visit.page("survey_paper.html", **await _shown(visit), counted=None, code="")


async def sheet(visit: Visit) -> Response:
    """Submit a report that a respondent made with dice, and show whether it was counted."""
    shown = await _shown(visit)
    survey, code = visit.at("survey"), visit.form.text("code")
    asked = range(len(shown["survey"]["questions"]))
    said = " ".join(f"{n}.0.{visit.form.text(f'q{n}')}" for n in asked)
    body = {"survey": survey, "invitation": code, "said": said}
    counted, refused = await visit.tried("survey-sheet", lambda: body)
    return visit.page("survey_paper.html", refused, **shown, counted=counted, code=code)


async def _shown(visit: Visit) -> Said:
    said = await visit.call("survey", {"survey": visit.at("survey")})
    table: dict[str, Any] = json.loads(said["text"])  # Any: JSON that the service has checked
    for question in table["survey"]["questions"]:
        question.setdefault("options", [])
    odds = max(said["promise"]["questions"], key=lambda one: one["told"])
    return {
        "id": said["survey"],
        "survey": table["survey"],
        "text": said["text"],
        "state": said["state"],
        "proof": json.dumps(said["proof"]),
        "promise": said["promise"],
        "odds": odds,
        "guess": max(one["guess"] for one in said["promise"]["questions"]),
        "weak": WEAK,
        "qr": qr_of(address_of(visit.request, said["survey"])),
    }


PAGES: Final = (
    Page("GET", "/s/{survey}", answer, ("survey",), is_open=True),
    Page("GET", "/s/{survey}/results", results, ("survey-estimates",), is_open=True),
    Page("GET", "/s/{survey}/reports", reports, ("survey-reports",), is_open=True),
    Page("GET", "/s/{survey}/reports.csv", as_csv, ("survey-reports",), is_open=True),
    Page("GET", "/s/{survey}/paper", paper, ("survey",), is_open=True),
    Page("POST", "/s/{survey}/paper", sheet, ("survey-sheet",), is_open=True),
)
