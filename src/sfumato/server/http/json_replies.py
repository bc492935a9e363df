"""HTTP replies: JSON, and refusals with their status codes."""

from __future__ import annotations

import json

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.wire.http_status import RETRY_AFTER_S, STATUS
from sfumato.wire.query_json import refusal_shape


def json_reply(code: str | None, body: bytes) -> Response:
    """Return a JSON reply with the HTTP status of the refusal code, or 200 without a code."""
    status = 200 if code is None else STATUS.get(code, 500)
    return Response(body, status, _headers(status), "application/json")


def refusal_reply(refused: Refused, status: int | None = None) -> Response:
    """Return a refusal as a JSON reply, with its HTTP status."""
    status = STATUS[refused.code] if status is None else status
    body = json.dumps(refusal_shape(refused)).encode()
    return Response(body, status, _headers(status), "application/json")


def not_there() -> Refused:
    """Return the refusal of a URL that the server does not have."""
    return Refused(
        "unknown-page",
        "There is no page at this address.",
        "Check the address. /openapi.json lists the service's addresses, and / is its first page.",
    )


def _headers(status: int) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if status in RETRY_AFTER_S:
        headers["Retry-After"] = str(RETRY_AFTER_S[status])
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
