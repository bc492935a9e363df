"""Console pages to append rows that arrive later: send a file, name the version, start a job."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.card_steps import words_of
from sfumato.features.data_sets.earlier_card import next_version
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit

_FIELDS: Final = ("table", "version", "into", "different_people", "accept_unreadable")
OWN: Final = ""  # the card's own table gets the rows


async def choose(visit: Visit) -> Response:
    """Show the form to send a file; or why no rows can be appended to this data set."""
    card = await _own_card(visit)
    return visit.page("append.html", await _impossible(visit, card), card=card)


async def form(visit: Visit) -> Response:
    """Show the form to append an upload, or to choose a table of it first."""
    card, chosen = await _own_card(visit), visit.request.query_params.get("table", "")
    return await _form(visit, card, {"table": chosen, "version": next_version(card["version"])})


async def append(visit: Visit) -> Response:
    """Start a job that appends the upload; show the form again if that is refused."""
    card, typed = await _own_card(visit), visit.form
    job, refused = await visit.tried("append", lambda: _asked(visit))
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    return await _form(visit, card, {name: typed.text(name) for name in _FIELDS}, refused)


async def _form(
    visit: Visit,
    card: dict[str, Any],  # Any: JSON of the wire
    values: dict[str, str],
    refused: Refused | None = None,
) -> Response:
    upload = visit.at("upload")
    values = {name: values.get(name, "") for name in _FIELDS}
    named = {"table": values["table"]} if values["table"] else {}
    found, unread = await visit.tried("proposed", lambda: {"upload": upload, **named})
    choices = [] if unread is None else unread.facts.get("choices", [])
    if unread is not None and not choices:
        raise unread
    file = "" if found is None else str(found["name"])
    tables = [one["name"] for one in card["tables"] if not one["public"]]
    return visit.page(
        "append_rows.html", refused, card=card, upload=upload, values=values, file=file,
        tables=tables, choices=choices,
    )  # fmt: skip


def _asked(visit: Visit) -> dict[str, object]:
    form, upload = visit.form, visit.at("upload")
    into, table = form.raw("into"), form.raw("table")
    rows: dict[str, object] = {"upload": upload} if into == OWN else {"tables": {into: upload}}
    rows |= {"table": table} if table else {}
    if who := form.text("different_people"):
        rows["different_people"] = who
    if accepted := words_of(form.text("accept_unreadable")):
        rows["accept_unreadable"] = accepted
    return {"data_set": visit.at("data_set"), "version": form.text("version"), **rows}


async def _own_card(visit: Visit) -> dict[str, Any]:  # Any: JSON of the wire
    """Return the data card if the visitor owns the data set; refuse everybody else."""
    name = {"data_set": visit.at("data_set")}
    await visit.call("grants", name)
    return await visit.call("card", name)


async def _impossible(visit: Visit, card: dict[str, Any]) -> Refused | None:  # Any: as above
    """Return why no rows can be appended, before a file is sent; None if they can.

    A request without rows is refused in any case, and appends nothing.
    """
    asked = {"data_set": card["name"], "version": f"{card['version']} and more"}
    _, refused = await visit.tried("append", lambda: asked)
    return refused if refused is not None and refused.code == "not-allowed" else None


_AT: Final = "/data-sets/{data_set}/append"
_SENT: Final = ("append", "grants", "card", "proposed", "upload", "job")
PAGES: Final = (
    Page("GET", _AT, choose, _SENT),
    Page("GET", f"{_AT}/{{upload}}", form, _SENT),
    Page("POST", f"{_AT}/{{upload}}", append, _SENT),
)
