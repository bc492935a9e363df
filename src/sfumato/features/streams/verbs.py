"""The API verbs of streams: read a request, call the service."""

from __future__ import annotations

from sfumato.features.streams.service import Opening, Streams
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, count_of, text_of


def show(streams: Streams, caller: Caller, body: Body) -> Json:
    """Return the running counts of a stream's closed periods."""
    return streams.show(caller, text_of(body, "data_set"), text_of(body, "stream"))


def open_(streams: Streams, caller: Caller, body: Body) -> Json:
    """Open a stream: fix its terms, and charge its whole price."""
    opening = Opening(
        data_set=text_of(body, "data_set"),
        name=text_of(body, "stream"),
        start=text_of(body, "start"),
        periods=count_of(body, "periods", 0, 10**6),
        rows=count_of(body, "rows", 0, 10**6),
        epsilon=body.get("epsilon"),
        sql=None if body.get("sql") is None else text_of(body, "sql"),
        question=body.get("question"),
    )
    return streams.open(caller, opening)


def close(streams: Streams, caller: Caller, body: Body) -> Json:
    """Close every open period of a stream up to a day."""
    names = text_of(body, "data_set"), text_of(body, "stream")
    return streams.close(caller, *names, text_of(body, "until"))
