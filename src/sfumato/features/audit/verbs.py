"""The API verbs of history and audit: read a request, call the service."""

from __future__ import annotations

from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.audit.service import Audit
from sfumato.features.queries.service import Queries
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, count_of, text_of

NEWEST: Final = 10**17


def history(queries: Queries, caller: Caller, body: Body) -> Json:
    """Return a page of the caller's own queries."""
    return queries.history(caller, _before(body), count_of(body, "limit", 50, 1000))


def answer(queries: Queries, caller: Caller, body: Body) -> Json:
    """Return a stored answer of the caller's again."""
    release = queries.answer(caller, text_of(body, "op"))
    return {**release.answer, "receipt": release.receipt}


def entries(audit: Audit, body: Body) -> Json:
    """Return a page of ledger entries."""
    return audit.entries(_place(body, "after", 0), count_of(body, "limit", 200, 1000))


def present(audit: Audit, body: Body) -> Json:
    """Say whether the ledger has a receipt's entry."""
    receipt = body.get("receipt")
    if not isinstance(receipt, dict):
        raise bad_request("receipt is an object")
    return audit.present(receipt)


def releases(audit: Audit, body: Body) -> Json:
    """Return a page of releases."""
    name = None if body.get("data_set") is None else text_of(body, "data_set")
    return audit.releases(_before(body), count_of(body, "limit", 50, 1000), name)


def sheet(audit: Audit, body: Body) -> Json:
    """Return the answer sheet of one release."""
    entry = text_of(body, "entry")
    if not (entry.isascii() and entry.isdecimal() and len(entry) <= 17):
        raise Refused("answer-unknown", "An entry is a number.", "Take one from the releases.")
    return audit.sheet(int(entry))


def _before(body: Body) -> int:
    return _place(body, "before", NEWEST)


def _place(body: Body, key: str, otherwise: int) -> int:
    """Read an entry number from a request, limited to the range of database integers."""
    place = body.get(key)
    return min(max(place, 0), NEWEST) if isinstance(place, int) else otherwise
