"""The owner's console page of a program under review: what it is, what changed, a checklist."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.pages import facts, people_of
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit
from sfumato.wire.json_text import bad_request

_SIGNS: Final = {"+": "added", "-": "removed", "@": "hunk"}


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff, and how the page marks it."""

    text: str
    kind: str


async def review(visit: Visit) -> Response:
    """Show a program to the data set's owner, with all that a decision needs."""
    return await _page(visit, None)


async def decide(visit: Visit) -> Response:
    """Approve or decline the program as the owner's form says, and show it again."""
    one = await visit.call("pipeline", _named(visit))
    said, refused = await visit.tried("decide-pipeline", lambda: _body(visit, one))
    if said is None:
        return await _page(visit, refused)
    return visit.go(f"{visit.request.url.path.rsplit('/', 1)[0]}/review#decision")


def diff_lines(lines: Sequence[str] | None) -> list[DiffLine] | None:
    """Return the lines of a diff with their marks; None if the texts were not compared."""
    if lines is None:
        return None
    return [DiffLine(line, _SIGNS.get(line[:1], "")) for line in lines]


async def _page(visit: Visit, refused: Refused | None) -> Response:
    one, card = await asyncio.gather(
        visit.call("pipeline", _named(visit)),
        visit.call("card", {"data_set": visit.at("data_set")}),
    )
    if not one["may_decide"]:
        raise Refused(
            "not-allowed",
            "Only the data set's owner approves programs.",
            "Go back to the program, and see there what the owner has decided.",
        )
    changes = one["changes"]
    return visit.page(
        "program_review.html",
        refused,
        **facts(one),
        data_set=visit.at("data_set"),
        people=people_of(card),
        terms=[] if changes is None else diff_lines(changes["terms"]),
        environment_changes=[] if changes is None else diff_lines(changes.get("environment", [])),
        text_changes=[] if changes is None else diff_lines(changes["text"]),
        file_changes=[] if changes is None else _file_changes(changes),
        ticked=visit.form.all("checked"),
        most=visit.form.text("most_epsilon") or "1",
        reason=visit.form.raw("reason"),
    )


def _file_changes(changes: Said) -> list[dict[str, object]]:
    """Return what became of each file besides the main one, with its diff."""
    return [{**one, "text": diff_lines(one["text"])} for one in changes["files"]]


def _body(visit: Visit, one: Said) -> dict[str, object]:
    sent = visit.form
    reason = {"reason": sent.text("reason")} if sent.has("reason") else {}
    match sent.text("do"):
        case "decline":
            return {**_named(visit), "state": "declined", **reason}
        case "approve":
            missing = [q["asks"] for q in one["checklist"] if q["id"] not in sent.all("checked")]
            if missing:
                raise Refused(
                    "bad-pipeline",
                    f"You have not confirmed: {missing[0]} Nothing was approved.",
                    "Confirm every question of the checklist, or decline the program.",
                )
            terms: dict[str, object] = {
                "most_epsilon": sent.number("most_epsilon"),
                "checked": sent.all("checked"),
                **({"timing": sent.text("timing")} if sent.has("timing") else {}),
            }
            return {**_named(visit), "state": "approved", **terms, **reason}
        case _:
            raise bad_request("there is no such decision")


def _named(visit: Visit) -> dict[str, object]:
    return {"data_set": visit.at("data_set"), "pipeline": visit.at("pipeline")}


_ONE: Final = "/data-sets/{data_set}/programs/{pipeline}"
_SHOWN: Final = ("pipeline", "card", "decide-pipeline")
PAGES: Final = (
    Page("GET", f"{_ONE}/review", review, _SHOWN),
    Page("POST", f"{_ONE}/decision", decide, _SHOWN),
)
