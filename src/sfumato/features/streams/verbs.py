"""The API verbs of streams (continual counting): open, close and show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.streams.schema import (
    ClosedStream,
    CloseStream,
    OneStream,
    OpenedStream,
    OpenStream,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Answer
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.streams.service import Streams
    from sfumato.vault.users import Caller

STREAM_VERBS: Final = Verbs()
_STREAMS: Final = "/v1/data-sets/{data_set}/streams"
_REFUSALS: Final = (
    "anchor-missing", "ledger-frozen", "stream-failed", "stream-lost", "stream-not-possible",
    "stream-out-of-order", "stream-unknown", "unknown-data-set",
)  # fmt: skip


class Services(Protocol):
    """The service that the verbs (API operations) of streams use."""

    @property
    def streams(self) -> Streams:
        """Return the stream service."""
        ...


@STREAM_VERBS.verb(
    "stream", "GET", f"{_STREAMS}/{{stream}}", "read", OneStream, Answer, refusals=_REFUSALS
)
def stream(services: Services, caller: Caller, asked: OneStream) -> Json:
    """Return the running counts of a stream's closed periods, for free."""
    return services.streams.show(caller, asked.data_set, asked.stream)


@STREAM_VERBS.verb(
    "open-stream", "POST", _STREAMS, "own", OpenStream, OpenedStream,
    refusals=(
        *_REFUSALS, "bad-budget", "bad-sql", "budget-exceeded", "data-set-frozen",
        "not-in-language", "op-reused", "question-frozen", "question-failed",
        "question-too-large", "stream-exists", "type-mismatch",
        "unknown-column", "noise-out-of-range", "numbers-too-large",
    ),
)  # fmt: skip
def open_stream(services: Services, caller: Caller, asked: OpenStream) -> Json:
    """Fix a stream's query, horizon and price for ever; its whole price is charged now."""
    return services.streams.open(caller, asked)


@STREAM_VERBS.verb(
    "close-stream", "POST", f"{_STREAMS}/{{stream}}/close", "own", CloseStream, ClosedStream,
    refusals=(*_REFUSALS, "data-set-frozen"),
    is_long=True,
)  # fmt: skip
def close_stream(services: Services, caller: Caller, asked: CloseStream) -> Json:
    """Close every open period up to a day, in order and for ever."""
    return services.streams.close(caller, asked.data_set, asked.stream, asked.until)
