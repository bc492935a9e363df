"""Console pages to add a data set: upload a file or name a table, then sign the data card.

A background job adds the data set.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.guided_card_pages import (
    HIDDEN,
    TYPES,
    card_of,
    fields_of,
    file_of,
    words_of,
)
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit, unknown_page, whole_number
from sfumato.server.ipc.body_drain import drain_body
from sfumato.server.ipc.file_sender import send_file
from sfumato.wire.http_status import STATUS
from sfumato.wire.json_text import read_json


async def choose(visit: Visit) -> Response:
    """Show the form to upload a file or to choose a table of a connection."""
    if not visit.may("own"):
        raise Refused(
            "not-allowed",
            "Only users with the role owner may upload files and add data sets.",
            "Ask an operator for the role owner.",
        )
    return await _choice(visit, None, {})


async def _choice(visit: Visit, refused: Refused | None, chosen: dict[str, str]) -> Response:
    """Show the form to upload a file or to choose a table, with what was chosen before."""
    connections = (await visit.call("connections"))["connections"]
    return visit.page("upload.html", refused, connections=connections, chosen=chosen)


async def send(visit: Visit) -> Response:
    """Stream an uploaded file, or a part of a folder, to the vault process, which stores it."""
    request = visit.request
    params: dict[str, object] = {
        "name": request.query_params.get("name", ""),
        "bytes": whole_number(request.headers.get("content-length", "")),
    }
    if "folder" in request.query_params:
        params["folder"] = request.query_params["folder"]
    header: dict[str, object] = {"token": visit.token, "place": visit.place, "params": params}
    parts = request.stream()
    answer = await send_file(visit.line.path, header, parts)
    if answer.code is None:
        return Response(answer.body, media_type="application/json")
    await drain_body(parts)
    status = STATUS.get(answer.code, 500)
    return Response(answer.body, status, {"Connection": "close"}, "application/json")


async def begin_folder(visit: Visit) -> Response:
    """Begin or resume the upload of a folder or an archive; say which parts are missing."""
    text = bytearray()
    async for piece in visit.request.stream():
        text += piece
        if len(text) > MAX_LIST:
            raise Refused(
                "too-large",
                "The folder has more parts than one upload can have.",
                "Choose a smaller folder.",
            )
    return JSONResponse(await visit.call("begin-folder", read_json(bytes(text))))


async def finish_folder(visit: Visit) -> Response:
    """Unpack a folder whose parts are all there; say how far that is."""
    return JSONResponse(await visit.call("finish-folder", {"upload": visit.at("upload")}))


async def card(visit: Visit) -> Response:
    """Show the form with the data card that is proposed for an upload, or for a table of it."""
    wanted = visit.request.query_params.get("table", "")
    proposed, refused = await visit.tried("proposed", lambda: _upload_of(visit, wanted))
    if proposed is not None:
        return await _page(visit, {**proposed, "table": wanted, "inner_table": ""}, None)
    if refused is None or not refused.facts.get("choices"):
        raise refused or unknown_page()
    return _choose_table(visit, refused, wanted, None)


async def add(visit: Visit) -> Response:
    """Sign the data card, and start a job that adds the upload as a data set."""
    rows = _upload_of(visit, visit.form.raw("table"))
    job, refused = await visit.tried("add", lambda: {**rows, **_signed(visit.form)})
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    named = {"table": visit.form.raw("table"), "inner_table": ""}
    return await _page(visit, {**await visit.call("proposed", rows), **named}, refused)


def _upload_of(visit: Visit, table: str) -> dict[str, object]:
    """Return the fields of a request for an upload, and for one of its tables, if one is named."""
    return {"upload": visit.at("upload"), **({"table": table} if table else {})}


async def table(visit: Visit) -> Response:
    """Show the form with the proposed card for a table; if refused, the choice of tables again."""
    asked = visit.request.query_params
    named = {"connection": asked.get("connection", ""), "table": asked.get("table", "").strip()}
    inner = asked.get("inner_table", "")
    rows = {**named, **({"inner_table": inner} if inner else {})}
    proposed, refused = await visit.tried("proposed-table", lambda: rows)
    if proposed is not None:
        return await _page(visit, {**proposed, "inner_table": inner}, None)
    if refused is not None and refused.facts.get("choices"):
        return _choose_table(visit, refused, inner, named)
    return await _choice(visit, refused, named)


async def add_table(visit: Visit) -> Response:
    """Sign the data card, and start a job that reads the table and adds it as a data set."""
    names = ("connection", "table", "inner_table")
    rows = {name: visit.form.raw(name) for name in names if visit.form.raw(name)}
    job, refused = await visit.tried("add", lambda: {**rows, **_signed(visit.form)})
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    proposed = await visit.call("proposed-table", rows)
    return await _page(visit, {**proposed, "inner_table": rows.get("inner_table", "")}, refused)


def _choose_table(
    visit: Visit, refused: Refused, chosen: str, connection: dict[str, str] | None
) -> Response:
    """Show the form to choose one of the tables of a file, which a refusal lists."""
    choices = refused.facts["choices"]
    more = {"chosen": chosen, "connection": connection}
    return visit.page("upload_table.html", None, cause=refused.cause, choices=choices, **more)


def _signed(form: Form) -> dict[str, object]:
    who = form.text("different_people")
    confirmed: dict[str, object] = {"different_people": who} if who else {}
    accepted = words_of(form.text("accept_unreadable"))
    more = {"accept_unreadable": accepted} if accepted else {}
    return {"name": form.text("name"), "card": card_of(form), **confirmed, **more}


async def _page(visit: Visit, proposed: Said, refused: Refused | None) -> Response:
    columns = fields_of(proposed, visit.form)
    values = {"form": visit.form, "types": (*TYPES, HIDDEN), "file": file_of(proposed)}
    return visit.page("guided.html", refused, proposed=proposed, columns=columns, **values)


MAX_LIST: Final = 1024 * 1024  # most bytes of a request that lists the parts of a folder
_SENT: Final = (
    "upload", "begin-folder", "finish-folder", "proposed", "add", "job", "connections",
    "proposed-table",
)  # fmt: skip
PAGES: Final = (
    Page("GET", "/uploads", choose, _SENT),
    Page("PUT", "/uploads", send, _SENT, is_for_script=True, takes_a_file=True),
    Page("POST", "/folders", begin_folder, _SENT, is_for_script=True, takes_a_file=True),
    Page("POST", "/folders/{upload}", finish_folder, _SENT, is_for_script=True, takes_a_file=True),
    Page("GET", "/uploads/{upload}", card, _SENT),
    Page("POST", "/uploads/{upload}", add, _SENT),
    Page("GET", "/connections", table, _SENT),
    Page("POST", "/connections", add_table, _SENT),
)
