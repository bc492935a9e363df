"""The HTTP routes of streams (continual counting)."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import ANSWER, COUNT, NUMBER, OBJECT, opened, shape, text
from sfumato.wire.route import Route

_CLOSED: Final = opened({"stream": text(), "closed": {"type": "integer"}})
_STREAM: Final = (
    "anchor-missing", "ledger-frozen", "stream-failed", "stream-lost", "stream-not-possible",
    "stream-out-of-order", "stream-unknown", "unknown-data-set",
)  # fmt: skip

STREAM_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "stream", "GET", "/v1/data-sets/{data_set}/streams/{stream}",
        "The running counts of what the owner has closed of a stream; free.", "read", ANSWER,
        refusals=_STREAM,
    ),
    Route(
        "open-stream", "POST", "/v1/data-sets/{data_set}/streams",
        "Fix a stream's question, horizon and price for good; all of it is paid now.", "own",
        opened({"stream": text(), "epsilon": {"type": "number"}}),
        shape(
            {"stream": text(100), "start": text(10), "periods": COUNT, "rows": COUNT,
             "epsilon": NUMBER},
            {"sql": text(16_384), "question": OBJECT},
        ),
        refusals=(
            *_STREAM, "bad-budget", "bad-sql", "budget-exceeded", "data-set-frozen",
            "not-in-language", "op-reused", "question-frozen", "question-failed",
            "question-too-large", "stream-exists", "type-mismatch",
            "unknown-column", "noise-out-of-range", "numbers-too-large",
        ),
    ),
    Route(
        "close-stream", "POST", "/v1/data-sets/{data_set}/streams/{stream}/close",
        "Close every open period up to a day, in order, for good.", "own", _CLOSED,
        shape({"until": text(10)}), refusals=(*_STREAM, "data-set-frozen"), is_long=True,
    ),
)  # fmt: skip
