"""The OpenAPI document, generated from the table of API verbs: routes, statuses, refusal codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import structs

from sfumato.dp.refusal import CODES
from sfumato.wire.http_status import STATUS
from sfumato.wire.query_json import Json
from sfumato.wire.schema import (
    RefusalReply,
    Reply,
    Request,
    is_needed,
    shape_of_field,
)
from sfumato.wire.verb import Verb
from sfumato.wire.verb_table import COMMON, VERBS

_COMPONENTS: Final = "#/components/schemas/"
_WORDS: Final = {
    400: "malformed", 401: "not signed in", 403: "not allowed", 404: "not there", 409: "conflict",
    413: "too large", 422: "refused", 429: "too many", 500: "a fault of ours", 503: "not now",
}  # fmt: skip


def openapi(version: str) -> Json:
    """Return the OpenAPI document of the HTTP API, for this version of the package."""
    paths: dict[str, Json] = {}
    described = _Schemas()
    for verb in VERBS:
        paths.setdefault(verb.path, {})[verb.method.lower()] = _operation(verb, described)
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
            "schemas": described.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _text(name: str, summary: str, action: str | None) -> Json:
    """Return the OpenAPI entry of a plain-text endpoint for monitoring, which is no API verb."""
    codes = ("bad-request", "fault", "service-down") if action is None else COMMON
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "The text."}, **_refused(codes)},
        "security": [] if action is None else [{"token": []}],
    }


class _Schemas:
    """The JSON schemas of all requests and replies, made from their msgspec structs."""

    def __init__(self) -> None:
        requests = {verb.request: _documented(verb.request) for verb in VERBS}
        replies = [verb.reply for verb in VERBS]
        _, made = msgspec.json.schema_components(
            [*requests.values(), *replies, RefusalReply], ref_template=f"{_COMPONENTS}{{name}}"
        )
        self._requests = {request: made.pop(request.__name__) for request in requests}
        self.components: Json = dict(made)

    def of_fields(self, verb: Verb, names: Iterable[str]) -> Json:
        """Return the JSON schema of the named fields of a verb's request."""
        whole: Any = self._requests[verb.request]  # Any: a JSON schema
        chosen = {name: _without_null(whole["properties"][name]) for name in names}
        required = [name for name in whole.get("required", []) if name in chosen]
        return {
            "type": "object",
            "properties": chosen,
            "required": required,
            "additionalProperties": False,
        }


def _without_null(schema: Json) -> Json:
    """Return the schema without `"default": null`, because clients just leave the field out."""
    return {key: value for key, value in schema.items() if (key, value) != ("default", None)}


def _documented(request: type[Request]) -> type[msgspec.Struct]:
    """Return a struct whose fields have the types that the OpenAPI document shows for a request."""
    fields = [(one.encode_name, _shape(one.type), _default(one)) for one in structs.fields(request)]
    return msgspec.defstruct(request.__name__, fields, kw_only=True)


def _default(one: structs.FieldInfo) -> Any:
    if is_needed(one.type):
        return msgspec.field()
    if one.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=one.default_factory)
    return msgspec.field(default=None if one.default is msgspec.UNSET else one.default)


def _shape(of: Any) -> Any:
    shape = shape_of_field(of)
    if shape is of:
        return of
    described = of.__metadata__[0].description
    return Annotated[shape, msgspec.Meta(description=described)] if described else shape


def _operation(verb: Verb, described: _Schemas) -> Json:
    made: Json = {
        "operationId": verb.name,
        "summary": verb.summary,
        "parameters": [*_places(verb), *_query(verb, described)],
        "responses": _responses(verb),
        "security": [] if verb.action is None else [{"token": []}],
    }
    if verb.has_body:
        body = described.of_fields(verb, verb.fields)
        made["requestBody"] = {"required": True, "content": _json(body)}
    if verb.carries == "file":
        raw = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": True, "content": {"application/octet-stream": raw}}
    return made


def _places(verb: Verb) -> Iterable[Json]:
    schema: Json = {"type": "string", "minLength": 1, "maxLength": 200}
    return [
        {"name": place, "in": "path", "required": True, "schema": schema} for place in verb.places
    ]


def _query(verb: Verb, described: _Schemas) -> Iterable[Json]:
    whole: Any = described.of_fields(verb, verb.query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in whole["required"],
            "schema": _not_null(schema),
        }
        for name, schema in whole["properties"].items()
    ]


def _not_null(schema: Any) -> Json:
    """Return the schema of a query-string field without null, as a query string can't have null."""
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **kinds[0]} if len(kinds) == 1 else dict(schema)


def _responses(verb: Verb) -> Json:
    codes = {*verb.refusals, *COMMON} - _never(verb)
    kind = "text/event-stream" if verb.carries == "events" else "application/json"
    reply: Json = {"schema": {"$ref": _COMPONENTS + _name(verb.reply)}}
    return {"200": {"description": "The answer.", "content": {kind: reply}}, **_refused(codes)}


def _name(reply: type[Reply]) -> str:
    return reply.__name__


def _refused(codes: Iterable[str]) -> Json:
    """Return the OpenAPI responses for refusals: each status with its codes and their meanings."""
    codes = sorted(codes)
    made: Json = {}
    for status in sorted({STATUS[code] for code in codes}):
        of_status = [code for code in codes if STATUS[code] == status]
        said = "; ".join(f"`{code}`: {CODES[code]}" for code in of_status)
        made[str(status)] = {
            "description": f"{_WORDS[status].capitalize()}. {said}",
            "content": _json({"$ref": _COMPONENTS + "RefusalReply"}),
        }
    return made


def _never(verb: Verb) -> set[str]:
    """Return the common refusal codes that this verb (API operation) never gives.

    A verb without a body never gives `too-large`. A verb without authentication never gives
    `not-allowed`.
    """
    never = set() if verb.action is not None else {"not-allowed"}
    return never if verb.has_body or verb.carries == "file" else never | {"too-large"}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
