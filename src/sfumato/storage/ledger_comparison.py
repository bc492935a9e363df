"""Verify the ledger's state tables: compare every row with the row that the hash chain implies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sfumato.storage import ledger_rows
from sfumato.storage.database import DatabaseLink
from sfumato.vault.hash_chain import Body, Verdict, verify
from sfumato.vault.ledger_entries import Entry

_PAGE: Final = 2000
Row = tuple[Any, ...]  # Any: one joined row of the statements below

_OPERATIONS: Final = """SELECT o.asker, o.op, o.request, o.answer_key, o.state, o.seq, o.ended,
    c.kind, c.body, e.kind, e.body, a.answer
    FROM ledger_operations o LEFT JOIN ledger_entries c ON c.seq = o.seq
    LEFT JOIN ledger_entries e ON e.seq = o.ended
    LEFT JOIN ledger_answers a ON a.answer_key = o.answer_key
    WHERE (o.asker, o.op) > (?, ?) ORDER BY o.asker, o.op LIMIT ?"""
_ANSWERS: Final = """SELECT a.answer_key, a.answer, e.kind, e.body
    FROM ledger_answers a LEFT JOIN ledger_entries e ON e.seq = a.seq
    WHERE a.answer_key > ? ORDER BY a.answer_key LIMIT ?"""
_PAYERS: Final = """SELECT p.answer_key, p.account, e.kind, e.body
    FROM ledger_payers p LEFT JOIN ledger_entries e ON e.seq = p.seq
    WHERE (p.answer_key, p.account) > (?, ?) ORDER BY p.answer_key, p.account LIMIT ?"""


class _Joined(NamedTuple):
    """Row of an operation in the database, joined with its charge, end entry and stored answer.

    `compare` checks it against the hash chain.
    """

    user: str
    op: str
    request: str
    key: str
    state: str
    seq: int
    ended: int | None
    kind: str | None
    body: str | None
    end_kind: str | None
    end_body: str | None
    answer: str | None


def compare(link: DatabaseLink) -> Verdict:
    """Verify the hash chain, then compare the ledger's state tables with the chain.

    The returned verdict names the first fault.
    """
    verdict = verify(_entries(link))
    if verdict.fault is not None:
        return verdict
    checks: tuple[Callable[[], str | None], ...] = (
        lambda: _head_fault(link, verdict),
        lambda: _count_fault(link, verdict),
        lambda: _first_fault(link, _OPERATIONS, 2, _operation_fault),
        lambda: _first_fault(link, _ANSWERS, 1, _answer_fault),
        lambda: _first_fault(link, _PAYERS, 2, _payer_fault),
    )
    faults = (check() for check in checks)
    return replace(verdict, fault=next((fault for fault in faults if fault is not None), None))


def _entries(link: DatabaseLink) -> Iterator[Entry]:
    after = -(2**60)  # so that sequence numbers below 1, which no valid ledger has, are included
    while page := ledger_rows.entry_page(link, after, _PAGE):
        yield from page
        after = page[-1].seq


def _head_fault(link: DatabaseLink, verdict: Verdict) -> str | None:
    if ledger_rows.standing(link) != ledger_rows.Standing(
        verdict.head, verdict.frozen, verdict.origin
    ):
        return "the ledger's head does not match its last entry"
    if verdict.accounts != ledger_rows.accounts(link):
        return "an account's stored total differs from the sum of its entries"
    if verdict.frozen_shapes != ledger_rows.frozen_shapes(link):
        return "the stored list of frozen questions differs from the ledger's entries"
    return None


def _count_fault(link: DatabaseLink, verdict: Verdict) -> str | None:
    counts = verdict.counts
    for table, wanted in (
        ("operations", counts.operations),
        ("answers", counts.answers),
        ("payers", counts.payers),
    ):
        if link.rows(f"SELECT count(*) FROM ledger_{table}")[0][0] != wanted:
            return f"the number of stored {table} differs from the ledger's entries"
    return None


def _first_fault(
    link: DatabaseLink, sql: str, keys: int, check: Callable[[Row], str | None]
) -> str | None:
    after: Sequence[object] = ("",) * keys
    page = link.rows(sql, (*after, _PAGE))
    while page:
        for row in page:
            fault = check(row)
            if fault is not None:
                return fault
        after = page[-1][:keys]
        page = link.rows(sql, (*after, _PAGE))
    return None


def _operation_fault(row: Row) -> str | None:
    known = _Joined(*row)
    charged = _body(known.body)
    wanted = {"user": known.user, "op": known.op, "request": known.request, "answer_key": known.key}
    is_charged = known.kind in ("charged", "repeated")
    if not is_charged or any(charged.get(name) != value for name, value in wanted.items()):
        return "a stored operation differs from its ledger entry"
    if known.state == "charged":
        is_open = known.kind == "charged" and known.ended is None
        return None if is_open else "a stored operation lacks the end that its ledger entry records"
    return _end_fault(known, _body(known.end_body))


def _end_fault(known: _Joined, end: Body) -> str | None:
    ends = {("charged", "failed", "failed"), ("charged", "answered", "released")}
    is_ended = (known.kind, known.state, known.end_kind) in ends and end.get("charge") == known.seq
    is_repeat = (known.kind, known.state, known.ended) == ("repeated", "answered", known.seq)
    is_own = (end.get("user"), end.get("op")) == (known.user, known.op)
    if not is_own or not (is_ended or is_repeat):
        return "a stored operation has another end than its ledger entry records"
    if known.state == "answered" and end.get("answer") != _sha256(known.answer):
        return "a stored answer differs from the one that was released"
    return None


def _answer_fault(row: Row) -> str | None:
    key, answer, kind, said = row
    body = _body(said)
    if kind != "released" or not body["first"] or body["answer_key"] != key:
        return "a stored answer was never released"
    if body["answer"] != _sha256(answer):
        return "a stored answer differs from the one that was released"
    return None


def _payer_fault(row: Row) -> str | None:
    key, account, kind, said = row
    body = _body(said)
    paid = body.get("debits", {}) if kind == "repeated" else body.get("payers", ())
    if body.get("answer_key") != key or account not in paid:
        return "an account is stored as a payer but never paid"
    return None


def _body(text: str | None) -> Body:
    body: Body = json.loads(text) if text is not None else {}
    return body


def _sha256(text: str | None) -> str | None:
    return (
        None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    )
