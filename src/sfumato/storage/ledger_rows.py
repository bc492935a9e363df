"""SQL statements that read and insert the ledger's rows, on any open connection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Bug
from sfumato.storage.database import DatabaseLink, Fault
from sfumato.storage.ledger_tables import SUMS
from sfumato.vault.hash_chain import Body, cap_list
from sfumato.vault.ledger_entries import Account, Cap, Charge, Entry, LedgerHead

ENTRY: Final = "seq, epoch, at, kind, body, prev, hash"
ACCOUNT: Final = ", ".join(["name", *(f"cap_{n}" for n in SUMS), *(f"spent_{n}" for n in SUMS)])


@dataclass(frozen=True)
class Standing:
    """State of a ledger: its head (last entry), why it is frozen, and the id of its database."""

    head: LedgerHead
    frozen: str | None
    origin: str


@dataclass(frozen=True)
class Operation:
    """One row of `ledger_operations`: a user's operation, its state and its ledger entries."""

    user: str
    op: str
    request: str
    answer_key: str
    state: str
    seq: int
    ended: int | None


def standing(link: DatabaseLink, lock: str = "") -> Standing:
    """Read the state of the ledger: its head, why it is frozen, and the id of its database.

    If `lock` is the SQL suffix of a row lock (`Dialect`), other writers have to wait.
    """
    sql = "SELECT ledger, epoch, seq, hash, frozen, origin FROM ledger_head"
    found = link.rows(sql + lock)
    if len(found) != 1:
        raise Fault("broken")
    ledger, epoch, seq, made, frozen, origin = found[0]
    return Standing(LedgerHead(ledger, epoch, seq, made), frozen, origin)


def standing_with(link: DatabaseLink, seq: int) -> tuple[LedgerHead, str | None, Entry | None]:
    """Return the ledger's head, why it is frozen, and the entry of a sequence number, if any.

    One SQL statement reads all three.
    """
    named = ", ".join(f"e.{column}" for column in ENTRY.split(", "))
    found = link.rows(
        f"SELECT h.ledger, h.epoch, h.seq, h.hash, h.frozen, {named}"
        " FROM ledger_head h LEFT JOIN ledger_entries e ON e.seq = ?",
        (seq,),
    )
    if len(found) != 1:
        raise Fault("broken")
    ledger, epoch, last, made, frozen, *of_entry = found[0]
    entry = None if of_entry[0] is None else Entry(*of_entry)
    return LedgerHead(ledger, epoch, last, made), frozen, entry


def add_entry(link: DatabaseLink, entry: Entry) -> None:
    """Insert one entry of the ledger's hash chain."""
    values = (entry.seq, entry.epoch, entry.at, entry.kind, entry.body, entry.prev, entry.hash)
    link.change(f"INSERT INTO ledger_entries ({ENTRY}) VALUES ({marks(7)})", values)


def entry(link: DatabaseLink, seq: int) -> Entry | None:
    """Return the ledger entry with a sequence number, or None."""
    found = link.rows(f"SELECT {ENTRY} FROM ledger_entries WHERE seq = ?", (seq,))
    return Entry(*found[0]) if found else None


def entry_body(link: DatabaseLink, seq: int) -> Body:
    """Return the body of a ledger entry, as parsed JSON."""
    found = link.rows("SELECT body FROM ledger_entries WHERE seq = ?", (seq,))
    body: Body = json.loads(found[0][0])
    return body


def entry_page(link: DatabaseLink, after: int, size: int) -> list[Entry]:
    """Return the next ledger entries above a sequence number, in order."""
    sql = f"SELECT {ENTRY} FROM ledger_entries WHERE seq > ? ORDER BY seq LIMIT ?"
    return [Entry(*row) for row in link.rows(sql, (after, size))]


def entries_of(link: DatabaseLink, kind: str, after: int) -> tuple[Entry, ...]:
    """Return the ledger entries of one kind above a sequence number, in order."""
    sql = f"SELECT {ENTRY} FROM ledger_entries WHERE seq > ? AND kind = ? ORDER BY seq"
    return tuple(Entry(*row) for row in link.rows(sql, (after, kind)))


def account(link: DatabaseLink, name: str) -> Account | None:
    """Return the budget account of that name, or None."""
    found = link.rows(f"SELECT {ACCOUNT} FROM ledger_accounts WHERE name = ?", (name,))
    return account_in(found[0]) if found else None


def accounts(link: DatabaseLink) -> tuple[Account, ...]:
    """Return every budget account, sorted by name.

    Python sorts the names, because databases sort by their locale.
    """
    found = (account_in(row) for row in link.rows(f"SELECT {ACCOUNT} FROM ledger_accounts"))
    return tuple(sorted(found, key=lambda one: one.name))


def add_account(link: DatabaseLink, name: str, cap: Cap) -> None:
    """Insert a budget account that has spent nothing."""
    sql = f"INSERT INTO ledger_accounts ({ACCOUNT}, lowered) VALUES ({marks(9)}, 0)"
    link.change(sql, (name, *cap_list(cap), 0, 0, 0, 0))


def accounts_of(link: DatabaseLink, names: Sequence[str]) -> tuple[Account, ...]:
    """Return the named budget accounts that exist, in the order of the names."""
    sql = f"SELECT {ACCOUNT} FROM ledger_accounts WHERE name IN ({marks(len(names))})"
    found = {row[0]: account_in(row) for row in link.rows(sql, tuple(names))}
    return tuple(found[name] for name in names if name in found)


def account_in(row: tuple[Any, ...]) -> Account:  # Any: one row of ledger_accounts
    """Return the budget account in a row of `ledger_accounts`."""
    return Account(row[0], Cap(*row[1:5]), PrivacyCost(*row[5:9]))


def last_account(link: DatabaseLink, prefix: str, bytewise: str) -> str | None:
    """Return the name that is last in byte order among accounts with this prefix, or None."""
    name = f"name{bytewise}"
    sql = f"SELECT max({name}) FROM ledger_accounts WHERE {name} >= ? AND {name} < ?"
    found: str | None = link.rows(sql, (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)))[0][0]
    return found


def frozen_shapes(link: DatabaseLink) -> tuple[str, ...]:
    """Return the frozen question shapes (refused until the owner unfreezes them), sorted."""
    found = link.rows("SELECT shape FROM ledger_frozen_shapes")
    return tuple(sorted(shape for (shape,) in found))


def operation(link: DatabaseLink, user: str, op: str) -> Operation | None:
    """Return the row of a user's operation in `ledger_operations`, or None."""
    sql = "SELECT asker, op, request, answer_key, state, seq, ended FROM ledger_operations"
    found = link.rows(sql + " WHERE asker = ? AND op = ?", (user, op))
    return Operation(*found[0]) if found else None


def open_charges(link: DatabaseLink, answer_key: str) -> list[tuple[int, str, str, str]]:
    """Return the operations that are computing the answer of an answer key, newest first.

    Each is the sequence number of its charge, its time, its user and its id.
    """
    sql = (
        "SELECT e.seq, e.at, o.asker, o.op FROM ledger_operations o"
        " JOIN ledger_entries e ON e.seq = o.seq"
        " WHERE o.answer_key = ? AND o.state = 'charged' ORDER BY e.seq DESC"
    )
    found = link.rows(sql, (answer_key,))
    return [(int(seq), str(at), str(user), str(op)) for seq, at, user, op in found]


def answer_of(link: DatabaseLink, user: str, op: str) -> str | None:
    """Return the stored answer of a user's operation, or None."""
    known = operation(link, user, op)
    if known is None or known.state != "answered":
        return None
    return standing_answer(link, known.answer_key)


def standing_accounts(
    link: DatabaseLink, answer_key: str, names: Sequence[str]
) -> dict[str, tuple[Account, bool]]:
    """Return the named accounts that exist; each with whether it has paid for a key's answer."""
    sql = (
        f"SELECT {ACCOUNT}, (SELECT 1 FROM ledger_payers p"
        " WHERE p.answer_key = ? AND p.account = a.name)"
        f" FROM ledger_accounts a WHERE a.name IN ({marks(len(names))})"
    )
    found = link.rows(sql, (answer_key, *names))
    return {row[0]: (account_in(row), row[9] is not None) for row in found}


def operation_and_answer(
    link: DatabaseLink, user: str, op: str
) -> tuple[Operation, Body, str | None] | None:
    """Return an operation, its charge's body and its stored answer, by one SQL statement.

    Return None if the user has no operation of that id.
    """
    sql = (
        "SELECT o.asker, o.op, o.request, o.answer_key, o.state, o.seq, o.ended, e.body, a.answer"
        " FROM ledger_operations o JOIN ledger_entries e ON e.seq = o.seq"
        " LEFT JOIN ledger_answers a ON a.answer_key = o.answer_key"
        " WHERE o.asker = ? AND o.op = ?"
    )
    found = link.rows(sql, (user, op))
    if not found:
        return None
    *known, body, answer = found[0]
    return Operation(*known), json.loads(body), answer


def add_operation(link: DatabaseLink, known: Operation) -> None:
    """Insert an operation; the primary key prevents a second one with the same user and id."""
    sql = "INSERT INTO ledger_operations (asker, op, request, answer_key, state, seq, ended)"
    values = (
        known.user,
        known.op,
        known.request,
        known.answer_key,
        known.state,
        known.seq,
        known.ended,
    )
    link.change(f"{sql} VALUES ({marks(7)})", values)


def end_operation(link: DatabaseLink, known: Operation, state: str, ended: int) -> None:
    """Set the end state of a charged operation; raise Bug if it has ended already."""
    sql = "UPDATE ledger_operations SET state = ?, ended = ? WHERE asker = ? AND op = ?"
    if link.change(sql + " AND state = 'charged'", (state, ended, known.user, known.op)) != 1:
        raise Bug("an operation ended twice")


def standing_answer(link: DatabaseLink, answer_key: str) -> str | None:
    """Return the answer that is stored under an answer key, or None."""
    sql = "SELECT answer FROM ledger_answers WHERE answer_key = ?"
    found: list[tuple[str]] = link.rows(sql, (answer_key,))
    return found[0][0] if found else None


def add_answer(link: DatabaseLink, answer_key: str, seq: int, answer: str) -> None:
    """Insert an answer; the primary key prevents a second one under the same key."""
    sql = "INSERT INTO ledger_answers (answer_key, seq, answer) VALUES (?, ?, ?)"
    link.change(sql, (answer_key, seq, answer))


@dataclass(frozen=True)
class StateBeforeCharge:
    """What a charge reads first: its operation, question shape, stored answer and accounts."""

    known: Operation | None
    is_frozen: bool
    answer: str | None
    is_being_computed: bool  # another operation has paid for the answer and is computing it
    are_open: bool  # whether all of the accounts exist


def state_before_charge(
    link: DatabaseLink, asked: Charge, names: Sequence[str]
) -> StateBeforeCharge:
    """Read the ledger's state that decides a charge, by one SQL statement."""
    sql = (
        "SELECT (SELECT 1 FROM ledger_frozen_shapes WHERE shape = ?),"
        " (SELECT answer FROM ledger_answers WHERE answer_key = ?),"
        " (SELECT 1 FROM ledger_operations WHERE answer_key = ? AND state = 'charged' LIMIT 1),"
        f" (SELECT count(*) FROM ledger_accounts WHERE name IN ({marks(len(names))})),"
        " o.asker, o.op, o.request, o.answer_key, o.state, o.seq, o.ended FROM ledger_head"
        " LEFT JOIN ledger_operations o ON o.asker = ? AND o.op = ?"
    )
    key = asked.answer_key
    values = (asked.shape, key, key, *names, asked.user, asked.op)
    frozen, answer, read, there, *known = link.rows(sql, values)[0]
    found = None if known[0] is None else Operation(*known)
    return StateBeforeCharge(
        found, frozen is not None, answer, read is not None, there == len(names)
    )


def without_payers(link: DatabaseLink, answer_key: str, names: Sequence[str]) -> list[str]:
    """Return those of the named accounts that have not paid for the answer of an answer key."""
    sql = "SELECT account FROM ledger_payers WHERE answer_key = ? AND account IN"
    found = link.rows(f"{sql} ({marks(len(names))})", (answer_key, *names))
    paid = {name for (name,) in found}
    return [name for name in names if name not in paid]


def add_payers(link: DatabaseLink, answer_key: str, seq: int, names: Sequence[str]) -> None:
    """Record which accounts have paid for an answer."""
    if names:
        each = ", ".join("(?, ?, ?)" for _ in names)
        values = [value for name in names for value in (answer_key, name, seq)]
        link.change(f"INSERT INTO ledger_payers (answer_key, account, seq) VALUES {each}", values)


def marks(count: int) -> str:
    """Return `count` SQL parameter marks (`?`), separated by commas."""
    return ", ".join("?" * count)
