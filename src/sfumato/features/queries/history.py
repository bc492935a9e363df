"""A user's query history: list past queries, and find the ledger entry of a past answer."""

from __future__ import annotations

import json
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ledger_entries import PastOperation
from sfumato.vault.users import Caller

PAGE: Final = 50


def history(ledger: Ledger, user: str, before: int, limit: int) -> Json:
    """Return up to `limit` of the user's own queries before a ledger entry, newest first."""
    found = ledger.store.past(user, before, limit)
    return {
        "questions": [question_json(one) for one in found],
        "next": found[-1].entry.seq if len(found) == limit else None,
    }


def asked_before(ledger: Ledger, caller: Caller, op: str) -> dict[str, Any]:  # Any: JSON of it
    """Return the ledger entry's body for an answered query of the caller.

    Any other operation id is refused.
    """
    past = ledger.store.past_of(caller.user, op)
    body = {} if past is None else json.loads(past.entry.body).get("body", {})
    is_question = past is not None and past.state == "answered" and "request" in body
    if not is_question or not caller.reaches(str(body["data_set"])):
        raise Refused(
            "answer-unknown",
            "You have no earlier answer with this operation id.",
            "Take the operation id from your history: `sfumato history`, the page History, or "
            "GET /v1/questions.",
        )
    return dict(body)


def question_json(past: PastOperation) -> Json:
    """Return a past query as JSON for the history list: its text, state, epsilon and charges."""
    said = json.loads(past.entry.body)
    body = said.get("body", {})
    ended = {} if past.ended is None else json.loads(past.ended.body)
    return {
        "op": past.op,
        "entry": past.entry.seq,
        # cut to seconds, because finer times show when another user's query ended
        "at": past.entry.at[:19],
        "state": past.state,
        "code": ended.get("code"),
        "charged": sorted(said["debits"]),
        "free": not said["debits"],
        "pipeline": body.get("pipeline", {}).get("digest"),  # of a run of a program
        **{key: body.get(key) for key in ("data_set", "version", "says", "epsilon", "delta")},
    }
