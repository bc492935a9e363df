"""HTTP routes of a site: agreements, the stages of a secure sum, training progress, and tensors."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import (
    ANSWER,
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    Schema,
    listed,
    opened,
    pairs,
    shape,
    text,
)
from sfumato.wire.route import Route

_KEY: Final = text(64)
_SITES: Final = pairs(_KEY)
_AGREEMENT: Final = opened({"name": text(63), "sites": _SITES, "floor": COUNT, "colluders": COUNT})
_NEIGHBOURS: Final[dict[str, Schema]] = {
    "neighbours": {**COUNT, "description": "With how many others a site shares its masks; with "
                   "every other, if left out."},
}  # fmt: skip
_MESSAGE: Final = text(1_000_000, description="The bytes of the message, in base64.")
_PLAIN: Final[Schema] = {"type": "number"}
_ASKED: Final[dict[str, Schema]] = {"federation": text(63)}
_TERMS: Final[dict[str, Schema]] = {
    "epsilon": {**NUMBER, "description": "The price; needed but for a sum without noise."},
    "guarantee": text(40, description="secure-average (not DP): a sum without noise, for cards "
                      "that allow it."),
    "sql": text(16_384), "question": OBJECT, "delta": NUMBER, "max_groups": COUNT,
    "max_rows": COUNT,
    "lesson": {**OBJECT, "description": "Instead of a question: what is to be learnt."},
}  # fmt: skip
_ROUND_TERMS: Final[dict[str, Schema]] = {
    **_TERMS,
    "number": {**COUNT, "description": "Which round of the lesson it is."},
    "told": shape({}, {"loss": _PLAIN, "accuracy": _PLAIN, "paid": pairs(_PLAIN)}),
    "weights": text(400_000, description="The model that the round begins with, in base64."),
}
_SUM: Final = (
    "anchor-missing", "average-not-allowed", "bad-budget", "bad-federation", "bad-sql",
    "data-set-frozen", "engine-unavailable", "federation-unknown", "keys-needed", "ledger-frozen",
    "no-aggregate", "no-bounds", "noise-out-of-range", "not-in-language", "numbers-too-large",
    "question-too-large", "type-mismatch", "unknown-column", "unknown-data-set", "update-refused",
)  # fmt: skip
_ROUND: Final = (
    *_SUM, "budget-exceeded", "op-reused", "question-failed", "question-frozen",
    "sum-message-refused", "sum-not-trusted", "sum-too-few",
)  # fmt: skip
_TENSORS: Final = ("remote-private", "remote-refused", "remote-unknown")
_SAID: Final = {"session": text(64), "number": COUNT}
_OF: Final = "/v1/data-sets/{data_set}"

SITE_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "site-key", "GET", "/v1/site", "The public key by which other sites know this one.", "any",
        opened({"key": _KEY}),
    ),
    Route(
        "federations", "GET", f"{_OF}/federations",
        "The federations whose sums the data set takes part in.", "read",
        opened({"federations": listed(_AGREEMENT)}), refusals=("unknown-data-set",),
    ),
    Route(
        "lessons", "GET", f"{_OF}/lessons",
        "How far lessons over sites have come, by this site's ledger: all of them to the owner, to "
        "others their own.", "read",
        opened({"lessons": listed(OBJECT), "state": text()}), refusals=("unknown-data-set",),
    ),
    Route(
        "join-federation", "POST", f"{_OF}/federations",
        "Let a data set take part in the sums of a federation, on what its sites have agreed.",
        "own", _AGREEMENT,
        shape({"name": text(63), "convener": _KEY, "sites": _SITES, "floor": COUNT,
               "colluders": COUNT}, _NEIGHBOURS),
        refusals=("anchor-missing", "bad-federation", "ledger-frozen", "sum-not-trusted",
                  "unknown-data-set"),
    ),
    Route(
        "leave-federation", "POST", f"{_OF}/federations/{{federation}}/leave",
        "Take no further part in a federation's sums.", "own", _AGREEMENT, shape({}),
        refusals=("anchor-missing", "federation-unknown", "ledger-frozen", "unknown-data-set"),
    ),
    Route(
        "price-sum", "POST", f"{_OF}/sums/price",
        "What a sum over the sites costs here, and its noise; nothing is spent.", "ask",
        opened({"about": text(), "size": COUNT, "bits": COUNT}),
        shape(_ASKED, _TERMS), refusals=(*_SUM, "sum-not-trusted"),
    ),
    Route(
        "join-sum", "POST", f"{_OF}/sums",
        "Take part in a round of a sum: this site's keys for it. Nothing is charged yet.", "ask",
        opened({"round": text(64), "message": _MESSAGE}),
        shape({**_ASKED, "message": _MESSAGE}, _ROUND_TERMS), refusals=_ROUND,
    ),
    Route(
        "go-on-with-sum", "POST", f"{_OF}/sums/{{round}}/{{stage}}",
        "This site's message of a stage: share, mask, agree or reveal; mask charges, then reads.",
        "ask", opened({"message": _MESSAGE}), shape({"message": _MESSAGE}), is_long=True,
        refusals=_ROUND,
    ),
    Route(
        "show-sum", "POST", f"{_OF}/sums/answer",
        "A finished sum as a table: arithmetic on released numbers, free.", "ask", ANSWER,
        shape({**_ASKED, "total": listed({"type": "integer"}), "sites": COUNT}, _TERMS),
        refusals=(*_SUM, "sum-not-trusted"),
    ),
    Route(
        "tensor-call", "POST", "/v1/tensors",
        "Have this token's own process do something with the tensors that it was sent.", "ask",
        opened({"message": _MESSAGE}), shape({**_SAID, "message": _MESSAGE}, {"more": FLAG}),
        refusals=_TENSORS,
    ),
    Route(
        "tensor-table", "POST", f"{_OF}/tensors",
        "Let this token's own process know a table by its declared shape; no row is read.", "ask",
        opened({"message": _MESSAGE}), shape(_SAID), refusals=(*_TENSORS, "unknown-data-set"),
    ),
)  # fmt: skip
