"""Query the ledger's history: one user's operations, or all charges."""

from __future__ import annotations

import json

from sfumato.storage import ledger_rows
from sfumato.storage.database import DatabaseLink, Fault
from sfumato.storage.ledger_rows import ENTRY
from sfumato.vault.ledger_entries import Entry, PastOperation

_PAST = "SELECT op, state, seq, ended FROM ledger_operations WHERE asker = ?"


def past(link: DatabaseLink, user: str, before: int, limit: int) -> tuple[PastOperation, ...]:
    """Return a user's operations that were charged before a ledger entry, newest first."""
    sql = f"{_PAST} AND seq < ? ORDER BY seq DESC LIMIT ?"
    return tuple(_past(link, *found) for found in link.rows(sql, (user, before, limit)))


def past_of(link: DatabaseLink, user: str, op: str) -> PastOperation | None:
    """Return one past operation of a user, or None if the ledger has none of that id."""
    found = link.rows(f"{_PAST} AND op = ?", (user, op))
    return _past(link, *found[0]) if found else None


_BALLOT = (
    '{"answer!_key":"ballot/%'  # LIKE pattern of a ballot's entry; see features/surveys/release.py
)


def charges(
    link: DatabaseLink, before: int, limit: int, people: str | None, data_set: str | None
) -> tuple[Entry, ...]:
    """Return the charges and repeats before a ledger entry, of people or a data set, newest first.

    The search is a LIKE over entry bodies. They are canonical JSON, in whose strings every quote is
    escaped. So a pattern such as "people":"x" matches only the real field. Ballots are left out:
    they aren't answers to queries, and each respondent has one entry.
    """
    wanted = [
        f"{json.dumps(key)}:{json.dumps(value)}"
        for key, value in (("people", people), ("data_set", data_set))
        if value is not None
    ]
    sql = f"SELECT {ENTRY} FROM ledger_entries WHERE kind IN ('charged', 'repeated')"
    sql += " AND seq < ? AND body NOT LIKE ? ESCAPE '!'"
    sql += "".join(" AND body LIKE ? ESCAPE '!'" for _ in wanted) + " ORDER BY seq DESC LIMIT ?"
    found = link.rows(sql, (before, _BALLOT, *map(_like, wanted), limit))
    entries = (Entry(*row) for row in found)
    return tuple(entry for entry in entries if all(text in entry.body for text in wanted))


def _like(text: str) -> str:
    """Return the SQL LIKE pattern that finds this text inside other texts."""
    for special in "!%_":
        text = text.replace(special, "!" + special)
    return f"%{text}%"


def _past(link: DatabaseLink, op: str, state: str, seq: int, ended: int | None) -> PastOperation:
    entry = ledger_rows.entry(link, seq)
    if entry is None:
        raise Fault("unsound")
    return PastOperation(
        op, state, entry, None if ended is None else ledger_rows.entry(link, ended)
    )
