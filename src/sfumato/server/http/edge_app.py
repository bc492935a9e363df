"""The ASGI app of the HTTP process: API, health checks and console; it has no rows or secrets."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from sfumato.dp.refusal import Refused
from sfumato.server.console.console_routes import Console
from sfumato.server.console.templates_renderer import make_renderer
from sfumato.server.http.api_endpoints import api_routes
from sfumato.server.http.body_memory import BodyMemory
from sfumato.server.http.json_replies import json_reply, not_there, refusal_reply
from sfumato.server.http.openapi import openapi
from sfumato.server.http.prometheus import PROMETHEUS, prometheus
from sfumato.server.http.request_origin import bearer, place_of
from sfumato.server.http.security_headers import SecurityHeaders
from sfumato.server.ipc.edge_client import DoorConnection
from sfumato.wire.query_json import Json
from sfumato.wire.version import VERSION


def edge_app(
    line: DoorConnection, hosts: Sequence[str], draw: Callable[[int], bytes], *, is_secure: bool
) -> SecurityHeaders:
    """Return the ASGI app of an HTTP process; `draw` makes random operation ids only."""
    console = Console(line, make_renderer(), draw)
    document = json.dumps(openapi(VERSION)).encode()

    async def healthz(_request: Request) -> Response:
        await line.call("hello", params={})
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        said = json.loads((await line.call("ready", params={})).body)
        if said.get("ready") is True:
            return PlainTextResponse("ready\n")
        return refusal_reply(not_ready(said))

    async def metrics(request: Request) -> Response:
        found = await line.call(
            "metrics", token=bearer(request), place=place_of(request), params={}
        )
        if found.code is not None:
            return json_reply(found.code, found.body)
        return PlainTextResponse(prometheus(json.loads(found.body)), media_type=PROMETHEUS)

    async def described(_request: Request) -> Response:
        return Response(document, media_type="application/json")

    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/openapi.json", described, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        *api_routes(line),
        *console.routes(),
    ]
    app = Starlette(
        routes=routes,
        lifespan=_closing(line),
        exception_handlers={
            HTTPException: _not_there(console),
            Refused: _refused,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False
    return SecurityHeaders(BodyMemory(app), hosts, is_secure=is_secure)


def not_ready(said: Json) -> Refused:
    """Return the refusal of a service that is not ready, naming what is missing."""
    found = said.get("missing")
    missing = [str(one) for one in found] if isinstance(found, list) else []
    return Refused(
        "service-down",
        f"The service is not ready: {', '.join(missing) or 'the vault process does not say why'}.",
        "See docs/how-to/serving.md for what each word means.",
        missing=missing,
    )


def lab_app(hosts: Sequence[str]) -> SecurityHeaders:
    """Return an app with only the lab's pages: no vault, no users, only synthetic data."""
    console = Console(
        DoorConnection(Path(os.devnull)), make_renderer(), bytes
    )  # nothing is ever called or drawn
    app = Starlette(
        routes=[Route("/", _to_the_lab, methods=["GET"]), *console.lab_routes()],
        exception_handlers={
            HTTPException: _not_there(console), Refused: _refused, Exception: _fault,
        },
    )  # fmt: skip
    app.router.redirect_slashes = False
    return SecurityHeaders(app, hosts, is_secure=False)


async def _to_the_lab(_request: Request) -> Response:
    return RedirectResponse("/lab", 303)


def _closing(line: DoorConnection):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        line.close()

    return lifespan


def _not_there(console: Console):  # type: ignore[no-untyped-def]
    async def answered(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        is_page = not request.url.path.startswith("/v1/")
        if is_page and "text/html" in request.headers.get("accept", ""):
            return console.refused(not_there(), status)
        return refusal_reply(not_there(), status)

    return answered


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return refusal_reply(error)
    return await _fault(_request, error)


async def _fault(_request: Request, _error: Exception) -> Response:
    return refusal_reply(
        Refused(
            "fault",
            "sfumato failed because of a bug. This message contains nothing about the data.",
            "Try again. If it fails again, tell the operator.",
        )
    )
