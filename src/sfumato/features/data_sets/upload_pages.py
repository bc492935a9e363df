"""Console pages to add a data set: upload a file or name a table, then sign the data card.

A background job adds the data set.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.card_steps import Answers, Step, card_of, faults, words_of
from sfumato.features.data_sets.earlier_card import (
    as_new_version,
    is_version_of,
    without_earlier,
)
from sfumato.features.data_sets.guided_card_pages import (
    PLACES,
    answers_of,
    first_answers,
    neighbour,
    page_values,
    refusal_of_faults,
    step_called,
    step_of_refusal,
    step_with_fault,
)
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit, unknown_page, whole_number
from sfumato.server.ipc.body_drain import drain_body
from sfumato.server.ipc.file_sender import send_file
from sfumato.wire.http_status import STATUS
from sfumato.wire.json_text import read_json


async def choose(visit: Visit) -> Response:
    """Show the form to upload a file or to choose a table of a connection."""
    _check_owner(visit)
    return await _choice(visit, None, {})


def _check_owner(visit: Visit) -> None:
    if not visit.may("own"):
        raise Refused(
            "not-allowed",
            "Only users with the role owner may upload files and add data sets.",
            "Ask an operator for the role owner.",
        )


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
    """Show the first step of the form, with the card proposed for an upload or a table of it."""
    wanted = visit.request.query_params.get("table", "")
    proposed, refused = await visit.tried("proposed", lambda: _upload_of(visit, wanted))
    if proposed is not None:
        of_table = {"table": wanted} if wanted else {}
        return _page(visit, first_answers({**proposed, **of_table}), step_called(""))
    if refused is None or not refused.facts.get("choices"):
        raise refused or unknown_page()
    return _choose_table(visit, refused, wanted, None)


async def add(visit: Visit) -> Response:
    """Go on to another step of the form; at the end, start a job that adds the upload."""
    return await _answered(visit, {"upload": visit.at("upload")} | _places(visit))


def _upload_of(visit: Visit, table: str) -> dict[str, str]:
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
        of_table = {"inner_table": inner} if inner else {}
        return _page(visit, first_answers({**proposed, **of_table}), step_called(""))
    if refused is not None and refused.facts.get("choices"):
        return _choose_table(visit, refused, inner, named)
    return await _choice(visit, refused, named)


async def add_table(visit: Visit) -> Response:
    """Go on to another step of the form; at the end, start a job that adds the table."""
    return await _answered(visit, _places(visit))


def _places(visit: Visit) -> dict[str, str]:
    """Return the fields of the form that say where the rows are, if they are filled."""
    return {name: visit.form.raw(name) for name in PLACES if visit.form.raw(name)}


def _choose_table(
    visit: Visit, refused: Refused, chosen: str, connection: dict[str, str] | None
) -> Response:
    """Show the form to choose one of the tables of a file, which a refusal lists."""
    choices = refused.facts["choices"]
    more = {"chosen": chosen, "connection": connection}
    return visit.page("upload_table.html", None, cause=refused.cause, choices=choices, **more)


async def _answered(visit: Visit, rows: dict[str, str]) -> Response:
    """Show the step that follows these answers, or sign the card if the owner says so."""
    _check_owner(visit)
    answers, step = answers_of(visit.form), step_called(visit.form.text("step"))
    do = visit.form.text("do")
    if do == "back":
        return _page(visit, answers, neighbour(step, -1))
    if do in ("show", "next"):
        is_over = do == "next" and not faults(answers, step.name)
        if is_over and step.name == "who":
            answers = await _with_earlier(visit, answers)
        return _page(
            visit, answers, neighbour(step, 1) if is_over else step, is_checked=not is_over
        )
    wrong = step_with_fault(answers)
    if wrong is not None:
        return _page(visit, answers, wrong, is_checked=True)
    job, refused = await visit.tried("add", lambda: {**rows, **_signed(answers)})
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    return _page(visit, answers, step if refused is None else step_of_refusal(refused), refused)


async def _with_earlier(visit: Visit, answers: dict[str, str]) -> dict[str, str]:
    """Return the answers with the terms of the visitor's own data set of that name, if any.

    They are taken once, so that what the owner changes afterwards stays changed.
    """
    name = answers.get("name", "").strip()
    if is_version_of(answers, name):
        return answers
    others, body = without_earlier(answers), {"data_set": name}
    own, _ = await visit.tried("grants", lambda: body)  # refuses everybody but the owner
    card, _ = (None, None) if own is None else await visit.tried("card", lambda: body)
    return others if card is None else as_new_version(others, card)


def _signed(answers: Answers) -> dict[str, object]:
    who = answers.get("different_people", "").strip()
    confirmed: dict[str, object] = {"different_people": who} if who else {}
    accepted = words_of(answers.get("accept_unreadable", ""))
    more = {"accept_unreadable": accepted} if accepted else {}
    name = answers.get("name", "").strip()
    return {"name": name, "card": card_of(answers), **confirmed, **more}


def _page(
    visit: Visit,
    answers: Answers,
    step: Step,
    refused: Refused | None = None,
    *,
    is_checked: bool = False,
) -> Response:
    """Show a step of the form; if it is checked, with its faults beside their fields."""
    found = faults(answers, step.name) if is_checked else {}
    said = refused or refusal_of_faults(found)
    return visit.page("guided.html", said, **page_values(answers, step, found))


MAX_LIST: Final = 1024 * 1024  # most bytes of a request that lists the parts of a folder
_SENT: Final = (
    "upload", "begin-folder", "finish-folder", "proposed", "add", "job", "connections",
    "proposed-table", "grants", "card",
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
