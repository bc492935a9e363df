"""Stream a job's state as server-sent events."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sfumato.dp.refusal import Refused
from sfumato.server.http.json_replies import json_reply, refusal_reply
from sfumato.server.http.request_origin import Endpoint, bearer, place_of
from sfumato.server.ipc.edge_client import Answered, DoorConnection
from sfumato.server.ipc.server_sent_events import (
    EVENTS,
    NOT_KEPT,
    check_listeners,
    send_state_events,
)
from sfumato.wire.verb import Verb


def events_endpoint(verb: Verb, line: DoorConnection) -> Endpoint:
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
