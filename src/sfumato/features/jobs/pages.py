"""The pages of jobs: run a query as a job, follow its state, cancel it while it waits."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.queries.pages import ask_body, ask_page
from sfumato.server.console.live_updates import follow_state
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit


async def begin(visit: Visit) -> Response:
    """Run the form's query as a job, and redirect to its page; or show the form with a refusal."""
    job, refused = await visit.tried("begin", lambda: ask_body(visit))
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    return await ask_page(visit, None, refused)


async def job(visit: Visit) -> Response:
    """Show the page of one job, with its state."""
    return await _page(visit, None)


async def cancel(visit: Visit) -> Response:
    """Cancel a job that waits; for one that has started, show the refusal."""
    said, refused = await visit.tried("cancel-job", lambda: {"job": visit.at("job")})
    if said is not None:
        return visit.go(f"/jobs/{said['job']}")
    return await _page(visit, refused)


async def events(visit: Visit) -> Response:
    """Send the job's state to the page's script, as server-sent events."""
    return await follow_state(visit, "events", {"job": visit.at("job")})


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
