"""Stream changes of a state to a page's script as server-sent events."""

from __future__ import annotations

import json

from starlette.responses import Response, StreamingResponse

from sfumato.server.console.visit import Visit
from sfumato.server.ipc.edge_client import Answered
from sfumato.server.ipc.server_sent_events import (
    EVENTS,
    NOT_KEPT,
    check_listeners,
    send_state_events,
)
from sfumato.wire.query_json import read_refusal


async def follow_state(visit: Visit, verb: str, params: dict[str, object]) -> Response:
    """Call an API verb again and again, and stream its results as server-sent events.

    Refuse if the first call is refused.
    """

    async def look() -> Answered:
        return await visit.line.call(verb, token=visit.token, place=visit.place, params=params)

    first = await look()
    refused = read_refusal(json.loads(first.body))
    if refused is not None:
        raise refused
    check_listeners(first.user)
    stream = send_state_events(first, look)
    return StreamingResponse(stream, media_type=EVENTS, headers=NOT_KEPT)
