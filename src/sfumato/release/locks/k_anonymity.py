"""The lock of `k-anonymous (not DP)`: what an owner may see of their own rows, and nobody else.

No noise goes on it, so it is no answer: it is labelled owner-only, and a table that is handed out
is written into the ledger first, for the record of everybody whose rows are in it.
"""

from __future__ import annotations

from typing import Final

from sfumato.dp.anonymity.coded_table import Table
from sfumato.dp.json_values import Json
from sfumato.release.ledger_guard import NOT_DP, Ledger
from sfumato.release.unseal import unseal
from sfumato.vault.add_report import TableReport
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Prepared
from sfumato.vault.table_reader_port import ReadOrder, TableReader

GUARANTEE: Final = "k-anonymous (not DP)"
OWNER_ONLY: Final = "owner-only: computed from your rows without noise; show it to nobody"


def owners_view(reader: TableReader, order: ReadOrder) -> Table:
    """Return the owner's own table, for a service that shows it to the owner alone."""
    return unseal(reader.read(order))


def owners_report(prepared: Prepared) -> tuple[TableReport, ...]:
    """Return how an owner's rows were read, in bands, for a service that tells the owner alone."""
    return unseal(prepared.report)


def hand_out(ledger: Ledger, card: Card, *, by: str, says: str) -> Json:
    """Write down that a table without DP is handed out; return where it stands, durable.

    It costs no epsilon, since no epsilon would be true of it. Every later receipt about these
    people says how many such releases there are.
    """
    ledger.check_history()
    body: Json = {
        "guarantee": GUARANTEE,
        "people": card.people,
        "data_set": card.name,
        "version": card.version,
        "by": by,
        "says": says,
    }
    head = ledger.note(NOT_DP, body)
    return {"seq": head.seq, **body, "note": beside_dp(ledger.not_dp(card.people))}


def beside_dp(count: int) -> str | None:
    """Return what receipts and cards say beside a guarantee of DP, or None (soundness rule 9)."""
    return f"DP releases only; {count} non-DP releases exist" if count else None
