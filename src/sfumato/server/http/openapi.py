"""The OpenAPI document, generated from the verb table: routes, statuses and refusal codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sfumato.dp.refusal import CODES
from sfumato.wire.http_status import STATUS
from sfumato.wire.json_schemas import REFUSAL, Schema
from sfumato.wire.query_json import Json
from sfumato.wire.route import Route
from sfumato.wire.verb_table import COMMON, ROUTES

_WORDS: Final = {
    400: "malformed", 401: "not signed in", 403: "not allowed", 404: "not there", 409: "conflict",
    413: "too large", 422: "refused", 429: "too many", 500: "a fault of ours", 503: "not now",
}  # fmt: skip


def openapi(version: str) -> Json:
    """Return the OpenAPI document."""
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths |= {
        "/healthz": {"get": _text("healthz", "Whether the processes are alive.", None)},
        "/readyz": {"get": _text("readyz", "Whether it can charge and read.", None)},
        "/metrics": {"get": _text("prometheus", "The counts, for Prometheus.", "watch")},
        "/openapi.json": {"get": _text("openapi", "This document.", None)},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sfumato",
            "version": version,
            "description": "Private answers from a guarded budget. A refusal has a code, a cause "
            "and a next step; the codes are those of docs/reference/codes. Where no route is, 404 "
            "or 405 has the code `unknown-page`. Before it is known which route is meant, a "
            "connection may end with a line of plain text: 400 (no HTTP), 408 (the request came "
            "too slowly), 431 (its head is too large), 503 (too many connections).",
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": REFUSAL},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _text(name: str, summary: str, action: str | None) -> Json:
    """Return the description of a plain-text endpoint for monitoring, which is not a verb."""
    codes = ("bad-request", "fault", "service-down") if action is None else COMMON
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "The text."}, **_refused(codes)},
        "security": [] if action is None else [{"token": []}],
    }


def _operation(route: Route) -> Json:
    made: Json = {
        "operationId": route.verb,
        "summary": route.summary,
        "parameters": [*_places(route), *_query(route)],
        "responses": _responses(route),
        "security": [] if route.action is None else [{"token": []}],
    }
    if route.body is not None:
        made["requestBody"] = {"required": True, "content": _json(route.body)}
    if route.carries == "file":
        raw = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": True, "content": {"application/octet-stream": raw}}
    return made


def _places(route: Route) -> Iterable[Json]:
    schema: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
    return [
        {"name": place, "in": "path", "required": True, "schema": schema} for place in route.places
    ]


def _query(route: Route) -> Iterable[Json]:
    known = (route.query or {}).items()
    return [{"name": key, "in": "query", "required": False, "schema": s} for key, s in known]


def _responses(route: Route) -> Json:
    codes = {*route.refusals, *COMMON} - _never(route)
    answered = {"description": "The answer.", "content": _carried(route)}
    return {"200": answered, **_refused(codes)}


def _refused(codes: Iterable[str]) -> Json:
    """Return each status with its refusal codes and their meanings."""
    codes = sorted(codes)
    made: Json = {}
    for status in sorted({STATUS[code] for code in codes}):
        of_status = [code for code in codes if STATUS[code] == status]
        said = "; ".join(f"`{code}`: {CODES[code]}" for code in of_status)
        made[str(status)] = {
            "description": f"{_WORDS[status].capitalize()}. {said}",
            "content": _json({"$ref": "#/components/schemas/Refusal"}),
        }
    return made


def _carried(route: Route) -> Json:
    kind = "text/event-stream" if route.carries == "events" else "application/json"
    return {kind: {"schema": route.answer}}


def _never(route: Route) -> set[str]:
    """Return the common refusal codes that this route never gives.

    A route without a body never gives `too-large`; one without authentication never `not-allowed`.
    """
    never = set() if route.action is not None else {"not-allowed"}
    return never if route.body is not None or route.carries == "file" else never | {"too-large"}


def _json(schema: Schema) -> Json:
    return {"application/json": {"schema": schema}}
