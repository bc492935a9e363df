"""The HTTP API: for each route of the verb table, forward the request to the door process."""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as HttpRoute

from sfumato.dp.refusal import Refused
from sfumato.server.http.json_replies import json_reply, refusal_reply
from sfumato.server.http.request_origin import Endpoint, bearer, place_of
from sfumato.server.ipc.body_drain import drain_body
from sfumato.server.ipc.edge_client import Answered, DoorConnection
from sfumato.server.ipc.file_sender import send_file
from sfumato.server.ipc.server_sent_events import (
    EVENTS,
    NOT_KEPT,
    check_listeners,
    send_state_events,
)
from sfumato.wire.json_text import bad_request, cannot_be_kept
from sfumato.wire.query_json import Json
from sfumato.wire.verb import Verb
from sfumato.wire.verb_table import VERBS

SMALL_BODY: Final = 4 * 1024  # the most bytes of a body before its call is authenticated
MAX_BODY: Final = 1024 * 1024
BUSY: Final = ("survey-report",)  # the busiest route comes first, because routes are tried in order


def api_routes(line: DoorConnection) -> list[HttpRoute]:
    """Return a route for every verb."""
    kinds = {"json": _endpoint, "events": _events_endpoint, "file": _file_endpoint}
    return [
        HttpRoute(v.path, kinds[v.carries](v, line), methods=[v.method], name=v.name)
        for v in sorted(VERBS, key=lambda verb: verb.name not in BUSY)
    ]


def _endpoint(verb: Verb, line: DoorConnection) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            params = _params(verb, request)
            most = SMALL_BODY if verb.action is None else MAX_BODY
            body = await _body(request, most) if verb.has_body else b""
            token, place = bearer(request), place_of(request)
            answer = await line.call(verb.name, token=token, place=place, params=params, body=body)
            return json_reply(answer.code, answer.body)
        except Refused as refused:
            reply = refusal_reply(refused)
        except ClientDisconnect:  # the client is gone
            return Response(status_code=400)
        return reply

    return endpoint


def _file_endpoint(verb: Verb, line: DoorConnection) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        parts = request.stream()
        try:
            params = {**_params(verb, request), "bytes": _declared(request)}
            header: Json = {"token": bearer(request), "place": place_of(request), "params": params}
            answer = await send_file(line.path, header, parts)
            reply = json_reply(answer.code, answer.body)
        except Refused as refused:
            reply = refusal_reply(refused)
        except ClientDisconnect:
            return Response(status_code=400)
        if reply.status_code != 200:
            await drain_body(parts)
            reply.headers["Connection"] = "close"
        return reply

    return endpoint


def _declared(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


async def _body(request: Request, most: int) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parts, size = [], 0
    body = request.stream()
    async for part in body:
        size += len(part)
        if size > most:
            await drain_body(body)
            raise Refused(
                "too-large",
                f"The body of the request is larger than {most:,} bytes.",
                "Send a smaller request. Large data can be uploaded as a file.",
            )
        parts.append(part)
    if size and kind != "application/json":
        raise bad_request("the body is not application/json")
    return b"".join(parts) or b"{}"


def _params(verb: Verb, request: Request) -> Json:
    """Return the parameters of path and query string, with integers parsed."""
    params: Json = dict(request.path_params)
    for key, value in request.query_params.multi_items():
        if key not in verb.query or key in params:
            raise bad_request(
                f"the parameter {key[:40]!r} of the address is not known, or is given twice"
            )
        params[key] = _whole(key, value) if key in verb.whole_numbers else value
    if cannot_be_kept(params):
        raise bad_request("the address holds the letter 0")
    return params


def _whole(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 18):
        raise bad_request(f"{key} has to be a whole number")
    return int(value)


def _events_endpoint(verb: Verb, line: DoorConnection) -> Endpoint:
    """Return the endpoint that streams a job's state.

    Each poll authenticates the token again, so a revoked token receives nothing more.
    """

    async def endpoint(request: Request) -> Response:
        async def look() -> Answered:
            return await line.call(
                verb.name,
                token=bearer(request),
                place=place_of(request),
                params=dict(request.path_params),
            )

        try:
            first = await look()
            if first.code is None:
                check_listeners(first.user)
        except Refused as refused:
            return refusal_reply(refused)
        if first.code is not None:
            return json_reply(first.code, first.body)
        stream = send_state_events(first, look)
        return StreamingResponse(stream, media_type=EVENTS, headers=NOT_KEPT)

    return endpoint
