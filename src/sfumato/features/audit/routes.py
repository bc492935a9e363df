"""The HTTP routes of the user's own history, and of the auditor."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import ANSWER, FLAG, OBJECT, Schema, listed, opened, shape, text
from sfumato.wire.route import Route

_NEXT: Final[Schema] = {"type": ["integer", "null"]}
_SEQ: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 10**17}
_LIMIT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 1000}

AUDIT_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "history", "GET", "/v1/questions", "Your own questions, the newest first.", "read",
        opened({"questions": listed(OBJECT), "next": _NEXT}),
        query={"before": _SEQ, "limit": _LIMIT},
    ),
    Route(
        "answer", "GET", "/v1/questions/{op}", "An answer of yours again; free.", "read", ANSWER,
        refusals=("answer-unknown", "unknown-data-set", "unknown-user", "ledger-frozen",
                  "anchor-missing"),
    ),
    Route(
        "entries", "GET", "/v1/ledger", "The chain, in order, from after an entry.", "audit",
        opened({"entries": listed(OBJECT), "head": OBJECT, "next": _NEXT}),
        query={"after": _SEQ, "limit": _LIMIT},
    ),
    Route(
        "verify-ledger", "GET", "/v1/ledger/verify",
        "Whether the whole chain, every account's sum and the anchor hold.", "audit",
        opened({"ok": FLAG}),
        is_long=True,
    ),
    Route(
        "present-receipt", "POST", "/v1/receipts",
        "Whether a receipt stands in the ledger; a true one that does not freezes it.", "read",
        opened({"stands": FLAG}), shape({"receipt": OBJECT}), refusals=("answer-unknown",),
    ),
    Route(
        "releases", "GET", "/v1/releases", "What was charged or let out, newest first.", "audit",
        opened({"releases": listed(OBJECT), "next": _NEXT}),
        query={"before": _SEQ, "limit": _LIMIT, "data_set": text()},
    ),
    Route(
        "sheet", "GET", "/v1/releases/{entry}", "The answer sheet of one release, signed.",
        "audit", opened({"format": text(), "entries": listed(OBJECT), "proof": OBJECT}),
        refusals=("answer-unknown",),
    ),
    Route(
        "policies", "GET", "/v1/policies", "Cards, grants, caps, and who has which role.",
        "audit",
        opened({"cards": listed(OBJECT), "grants": listed(OBJECT), "enrolled": listed(OBJECT)}),
    ),
)  # fmt: skip
