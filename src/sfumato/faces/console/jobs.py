"""Long work: a question that is asked as a job, how it goes on, and ending it while it waits."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response, StreamingResponse

from sfumato.faces.console.ask import ask_body, ask_page
from sfumato.faces.console.page import Page
from sfumato.faces.console.visit import Said, Visit
from sfumato.faces.line.edge_end import Answered
from sfumato.faces.line.telling import EVENTS, NOT_KEPT, check_listeners, told
from sfumato.wire import Refused, read_refusal


async def begin(visit: Visit) -> Response:
    """Ask as a job, and go to its page; a refusal is shown above the form as it was."""
    job, refused = await visit.tried("begin", lambda: ask_body(visit))
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    return await ask_page(visit, None, refused)


async def job(visit: Visit) -> Response:
    """Show how a job stands."""
    return await _page(visit, None)


async def cancel(visit: Visit) -> Response:
    """End a job that waits; one that reads rows already goes on, and that is said."""
    said, refused = await visit.tried("cancel-job", lambda: {"job": visit.at("job")})
    if said is not None:
        return visit.go(f"/jobs/{said['job']}")
    return await _page(visit, refused)


async def events(visit: Visit) -> Response:
    """Tell the script of the page how the job stands, again and again."""

    async def look() -> Answered:
        params: dict[str, object] = {"job": visit.at("job")}
        return await visit.line.call("events", token=visit.token, place=visit.place, params=params)

    check_listeners(visit.token)
    first = await look()
    refused = read_refusal(json.loads(first.body))
    if refused is not None:
        raise refused
    stream = told(visit.token, first, look)
    return StreamingResponse(stream, media_type=EVENTS, headers=NOT_KEPT)


async def _page(visit: Visit, refused: Refused | None) -> Response:
    found: Said = await visit.call("job", {"job": visit.at("job")})
    path = f"/jobs/{found['job']}"
    return visit.page("job.html", refused, job=found, at=path)


_SHOWN: Final = ("job", "events", "cancel-job")
PAGES: Final = (
    Page("POST", "/data-sets/{data_set}/ask/job", begin, ("begin", *_SHOWN)),
    Page("GET", "/jobs/{job}", job, _SHOWN),
    Page("POST", "/jobs/{job}/cancel", cancel, _SHOWN),
    Page("GET", "/jobs/{job}/events", events, _SHOWN, is_for_script=True),
)
