"""Console pages of the airlock: a form, requests, drafts to review; no file is rendered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.airlock.client import Files
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit
from sfumato.wire.json_text import bad_request

MAX_FILES: Final = 16  # as in file_types.py, which the console does not import
_FIELDS: Final = ("path", "by", "count", "of")
WAITS: Final = ("waiting", "running", "in review", "failed")


async def requests(visit: Visit) -> Response:
    """Show the airlock requests about a data set that the caller may see."""
    name = visit.at("data_set")
    found = await visit.call("airlock", {"data_set": name})
    return visit.page("airlock.html", data_set=name, requests=found["requests"])


async def form(visit: Visit) -> Response:
    """Show the form in which a researcher hands in a program for output checking."""
    return await _form_page(visit, None)


async def hand_in(visit: Visit) -> Response:
    """Hand in the form's program, and go to its page; or show the form with what is wrong."""
    if visit.form.has("rows"):  # for another file
        return await _form_page(visit, None)
    made, refused = await visit.tried("submit-airlock", lambda: _submitted(visit))
    if made is not None:
        return visit.go(f"/airlock/{made['request']}")
    return await _form_page(visit, refused)


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


async def _form_page(visit: Visit, refused: Refused | None) -> Response:
    name = {"data_set": visit.at("data_set")}
    card, found = await asyncio.gather(visit.call("card", name), visit.call("pipelines", name))
    files = _typed_files(visit.form)
    wanted = visit.form.count("rows") if visit.form.has("rows") else None
    empty = dict.fromkeys(_FIELDS, "")
    return visit.page(
        "airlock_form.html",
        refused,
        card=card,
        columns=[column["name"] for column in card["columns"]],
        environments=found["environments"],
        form=visit.form,
        chosen=visit.form.all("column"),
        files=[*files, *[empty] * MAX_FILES][: min(MAX_FILES, max(2, len(files), wanted or 0))],
    )


def _submitted(visit: Visit) -> dict[str, object]:
    """Return the request to submit the form's program."""
    sent = visit.form
    limits = {"cpu_s": sent.number("cpu_s")}
    counts = {name: sent.count(name) for name in ("memory_mb", "disk_mb")}
    named = {name: value for name, value in {**limits, **counts}.items() if value is not None}
    columns = sent.all("column")
    return {
        "data_set": visit.at("data_set"),
        "source": sent.raw("source"),
        "files": list(map(_file, _typed_files(sent))),
        "why": sent.text("why"),
        **({"columns": columns} if columns else {}),
        **({"environment": sent.text("environment")} if sent.has("environment") else {}),
        **named,
    }


def _file(typed: Mapping[str, str]) -> dict[str, object]:
    """Return a row of the form as a declared file; the reader on the other side checks it."""
    by = [name.strip() for name in typed["by"].split(",") if name.strip()]
    words = {name: typed[name] for name in ("count", "of") if typed[name]}
    return {"path": typed["path"], **({"by": by} if by else {}), **words}


def _typed_files(sent: Form) -> list[dict[str, str]]:
    """Return the rows of files that are not empty, as they were typed."""
    columns = [[one.strip() for one in sent.fields.get(f"file_{name}", ())] for name in _FIELDS]
    rows = [dict(zip(_FIELDS, row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if any(row.values())][:MAX_FILES]


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


_NEW: Final = "/data-sets/{data_set}/airlock/new"
_FORMS: Final = ("submit-airlock", "card", "pipelines")
_AT: Final = "/airlock/{request}"
_ACTS: Final = tuple(f"{verb}-airlock" for verb in _BODIES)
PAGES: Final = (
    Page("GET", "/data-sets/{data_set}/airlock", requests, ("airlock",)),
    Page("GET", _NEW, form, _FORMS),
    Page("POST", _NEW, hand_in, _FORMS),
    Page("GET", _AT, request, ("show-airlock",)),
    Page("POST", _AT, act, ("show-airlock", *_ACTS)),
    Page("GET", f"{_AT}/file", draft_file, ("show-airlock",)),
    Page("GET", f"{_AT}/files", fetched, ("fetch-airlock",)),
)
