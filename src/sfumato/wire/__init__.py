"""JSON shapes and codes that server and client share."""

from sfumato.core.refusal import CODES, Bug, Refused
from sfumato.wire.connection import read_connection
from sfumato.wire.json_text import bad_request, cannot_be_kept, json_text, read_json
from sfumato.wire.route import Route
from sfumato.wire.routes import BY_VERB, COMMON, ROUTES, VERSION, WIRE
from sfumato.wire.schemas import REFUSAL, Schema
from sfumato.wire.shapes import (
    AskShape,
    Json,
    read_ask_shape,
    read_card_shape,
    read_number,
    read_refusal,
    refusal_shape,
)
from sfumato.wire.status import RETRY_AFTER_S, STATUS

__all__ = [
    "BY_VERB",
    "CODES",
    "COMMON",
    "REFUSAL",
    "RETRY_AFTER_S",
    "ROUTES",
    "STATUS",
    "VERSION",
    "WIRE",
    "AskShape",
    "Bug",
    "Json",
    "Refused",
    "Route",
    "Schema",
    "bad_request",
    "cannot_be_kept",
    "json_text",
    "read_ask_shape",
    "read_card_shape",
    "read_connection",
    "read_json",
    "read_number",
    "read_refusal",
    "refusal_shape",
]
