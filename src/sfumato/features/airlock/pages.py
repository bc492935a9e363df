"""Console pages of the airlock: requests, drafts to review, votes; no file is rendered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.airlock.client import Files
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit
from sfumato.wire.json_text import bad_request

WAITS: Final = ("waiting", "running", "in review", "failed")


async def requests(visit: Visit) -> Response:
    """Show the airlock requests about a data set that the caller may see."""
    name = visit.at("data_set")
    found = await visit.call("airlock", {"data_set": name})
    return visit.page("airlock.html", data_set=name, requests=found["requests"])


async def request(visit: Visit) -> Response:
    """Show one airlock request; its reviewers also see the findings and can save the files."""
    return await _page(visit, None)


async def act(visit: Visit) -> Response:
    """Perform what a form asks for on an airlock request, such as a vote or a release."""
    verb, body = visit.form.text("do"), _BODIES.get(visit.form.text("do"))
    if body is None:
        raise bad_request("there is no such act")
    said, refused = await visit.tried(
        f"{verb}-airlock", lambda: {"request": visit.at("request"), **body(visit)}
    )
    if said is None:
        return await _page(visit, refused)
    return visit.go(f"/airlock/{said['request']}")


async def draft_file(visit: Visit) -> Response:
    """Send one file of a draft to a reviewer as a download; the server does not open it."""
    files = Files(await visit.call("show-airlock", {"request": visit.at("request")})).files
    path = visit.request.query_params.get("path", "")
    if path not in files:
        raise Refused(
            "unknown-page",
            "The airlock request has no file of this name.",
            "Go back to the page of the request, and choose one of its files.",
        )
    return _attachment(files[path], f"REVIEWERS-ONLY-{path.rsplit('/', 1)[-1]}")


async def fetched(visit: Visit) -> Response:
    """Send the files of a released request and the receipt as one .zip archive."""
    found = Files(await visit.call("fetch-airlock", {"request": visit.at("request")}))
    return _attachment(found.archive(), f"reviewed-not-dp-{found.shape['request']}.zip")


def _attachment(text: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f"attachment; filename={json.dumps(name)}"}
    return Response(text, media_type="application/octet-stream", headers=headers)


def _vote(visit: Visit) -> dict[str, object]:
    sent = visit.form
    return {
        "says": sent.text("says"),
        "seal": sent.text("seal"),
        "draft": sent.count("draft"),
        "why": sent.text("why"),
    }


def _nothing(_visit: Visit) -> dict[str, object]:
    return {}


_BODIES: Final[Mapping[str, Callable[[Visit], dict[str, object]]]] = {
    "run": _nothing,
    "decline": _nothing,
    "withdraw": _nothing,
    "release": _nothing,
    "vote": _vote,
    "trim": lambda visit: {"path": visit.form.text("path")},
}


async def _page(visit: Visit, refused: Refused | None) -> Response:
    found = await visit.call("show-airlock", {"request": visit.at("request")})
    is_author = found["author"] == visit.me["user"]
    own = found["program"]["environment"].partition("+")[2]
    kind, _, digest = own.partition("-")
    return visit.page(
        "airlock_request.html",
        refused,
        one=found,
        environment={"name": own, "kind": kind, "digest": digest},
        is_author=is_author,
        is_owner=found["owner"] == visit.me["user"],
        is_reviewer=visit.me["user"] in found["reviewers"],
        is_open=found["state"] in WAITS,
    )


_AT: Final = "/airlock/{request}"
_ACTS: Final = tuple(f"{verb}-airlock" for verb in _BODIES)
PAGES: Final = (
    Page("GET", "/data-sets/{data_set}/airlock", requests, ("airlock",)),
    Page("GET", _AT, request, ("show-airlock",)),
    Page("POST", _AT, act, ("show-airlock", *_ACTS)),
    Page("GET", f"{_AT}/file", draft_file, ("show-airlock",)),
    Page("GET", f"{_AT}/files", fetched, ("fetch-airlock",)),
)
