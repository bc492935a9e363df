"""Read the bearer token and the client address of an HTTP request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

LONGEST_TOKEN: Final = 200
Endpoint = Callable[[Request], Awaitable[Response]]


def bearer(request: Request) -> str:
    """Return the bearer token of the request, or "" if it has no valid one."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    is_one = kind.lower() == "bearer" and len(token) <= LONGEST_TOKEN and token.isascii()
    return token if is_one else ""


def place_of(request: Request) -> str:
    """Return the client's address, or "?" if the server doesn't know it."""
    return request.client.host if request.client is not None else "?"
