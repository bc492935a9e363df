"""The console's pages of the user's own history, and of the auditor: ledger, releases, policies."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from starlette.responses import Response

from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit, whole_number

MAX_JOBS: Final = 10  # on the page of the history


async def history(visit: Visit) -> Response:
    """Show the user's own queries, newest first, and their jobs."""
    found, jobs = await asyncio.gather(
        visit.call("history", _from(visit, "before", 50)), visit.call("jobs")
    )
    newest = jobs["jobs"][:MAX_JOBS]
    return visit.page("history.html", questions=found["questions"], next=found["next"], jobs=newest)


async def releases(visit: Visit) -> Response:
    """Show all releases, newest first, without their answers."""
    asked: dict[str, object] = _from(visit, "before", 50)
    data_set = visit.request.query_params.get("data_set", "").strip()
    if data_set:
        asked["data_set"] = data_set
    found = await visit.call("releases", asked)
    return visit.page(
        "releases.html", releases=found["releases"], next=found["next"], data_set=data_set
    )


async def sheet(visit: Visit) -> Response:
    """Show the answer sheet of one release, as a printable page."""
    found = await visit.call("sheet", {"entry": visit.at("entry")})
    return visit.page("sheet.html", sheet=found, entry=visit.at("entry"), raw=_spelled(found))


async def sheet_file(visit: Visit) -> Response:
    """Return a release's signed answer sheet as a JSON file, to be verified offline."""
    entry = visit.at("entry")
    found = await visit.call("sheet", {"entry": entry})
    name = "".join(letter for letter in entry if letter.isdigit())
    headers = {"Content-Disposition": f'attachment; filename="sheet-{name}.json"'}
    return Response(_spelled(found).encode(), media_type="application/json", headers=headers)


async def chain(visit: Visit) -> Response:
    """Show the ledger's entries in order, and verify the hash chain if the URL asks for it."""
    found = await visit.call("entries", _from(visit, "after", 100))
    verdict = None
    if "verify" in visit.request.query_params:
        verdict = await visit.call("verify-ledger")
    return visit.page("chain.html", verdict=verdict, **found)


async def policies(visit: Visit) -> Response:
    """Show the data cards, grants, caps, and the users' roles."""
    return visit.page("policies.html", **await visit.call("policies"))


def _from(visit: Visit, place: str, limit: int) -> dict[str, object]:
    start = whole_number(visit.request.query_params.get(place, ""))
    return {"limit": limit} if start is None else {"limit": limit, place: start}


def _spelled(shape: object) -> str:
    return json.dumps(shape, indent=2, ensure_ascii=False)


PAGES: Final = (
    Page("GET", "/history", history, ("history", "jobs", "job")),
    Page("GET", "/releases", releases, ("releases",)),
    Page("GET", "/releases/{entry}", sheet, ("sheet",)),
    Page("GET", "/releases/{entry}/sheet.json", sheet_file, ("sheet",)),
    Page("GET", "/ledger", chain, ("entries", "verify-ledger")),
    Page("GET", "/policies", policies, ("policies",)),
)
