"""Create a ledger in a database, or open an existing one."""

from __future__ import annotations

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.storage import ledger_rows
from sfumato.storage.database import Database, DatabaseLink, Fault, FaultCode, exception_of
from sfumato.storage.ledger_tables import statements
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault import hash_chain
from sfumato.vault.ledger_entries import LedgerHead
from sfumato.vault.ports import Clock


def create_ledger(database: Database, clock: Clock, dice: RandomSource) -> SqlLedger:
    """Create a ledger in a database; refuse if the database has one already."""
    code: FaultCode | None = None
    link: DatabaseLink | None = None
    try:
        link = database.connect()
        link.begin()
        _make(link, database, clock, dice)
        link.commit()
    except Fault as fault:
        code = fault.code
    finally:
        if link is not None:
            link.close()
    if code is not None:
        raise exception_of(code)
    return open_ledger(database, clock)


def open_ledger(database: Database, clock: Clock) -> SqlLedger:
    """Open the ledger in a database; refuse if the database has none."""
    ledger = SqlLedger(database, clock)
    with ledger.own_connection() as link:
        found = link.rows(database.dialect.exists)
    if not found:
        raise Refused(
            "vault-missing",
            "The vault's ledger database contains no ledger.",
            "Create the vault first, or restore its ledger from a backup.",
        )
    ledger.head()
    return ledger


def _make(link: DatabaseLink, database: Database, clock: Clock, dice: RandomSource) -> None:
    if link.rows(database.dialect.exists):
        raise Refused(
            "vault-exists",
            "The place for the new ledger already contains one.",
            "Open the existing vault, or choose another place for the ledger.",
        )
    for statement in statements(database.dialect):
        link.change(statement)
    name, origin = dice.draw(16).hex(), link.origin()
    first = hash_chain.next_entry(
        LedgerHead(name, 1, 0, hash_chain.GENESIS),
        epoch=1,
        at=clock.now(),
        kind="ledger-created",
        body=hash_chain.canonical({"ledger": name, "origin": origin}),
    )
    ledger_rows.add_entry(link, first)
    sql = "INSERT INTO ledger_head (id, ledger, epoch, seq, hash, origin) VALUES (1, ?, 1, 1, ?, ?)"
    link.change(sql, (name, first.hash, origin))
