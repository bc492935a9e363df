"""The release step of `k-anonymous (not DP)`: tables without noise, for the owner of the rows.

The tables are labelled owner-only. Before the owner gives such a table to others, the ledger
records it for all people whose rows are in it.
"""

from __future__ import annotations

from typing import Final

from sfumato.dp.anonymity.coded_table import Table
from sfumato.dp.json_values import Json
from sfumato.release.ledger_guard import NOT_DP, Ledger
from sfumato.release.unseal import unseal
from sfumato.vault.add_report import TableReport
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import FolderDraft, Prepared
from sfumato.vault.sealed import Sealed
from sfumato.vault.table_reader_port import ReadOrder, TableReader

GUARANTEE: Final = "k-anonymous (not DP)"
OWNER_ONLY: Final = "owner-only: computed from your rows without noise; show it to nobody"


def owners_view(reader: TableReader, order: ReadOrder) -> Table:
    """Return the owner's table without noise; the caller must show it to the owner only."""
    return unseal(reader.read(order))


def owners_report(prepared: Prepared) -> tuple[TableReport, ...]:
    """Return the report of how the owner's cells were parsed, with counts rounded to bands.

    The caller must show the report to the owner only.
    """
    return unseal(prepared.report)


def owners_draft(draft: Sealed[FolderDraft]) -> FolderDraft:
    """Return the draft of what the owner's card can publish of a folder, with what it leaves out.

    The caller must show the draft to the owner only, who decides what to publish.
    """
    return unseal(draft)


def hand_out(ledger: Ledger, card: Card, *, by: str, says: str) -> Json:
    """Record in the ledger that the owner gives a table without DP to others; return the entry.

    This costs no epsilon, because the table has no DP guarantee. Every later receipt about these
    people states the number of such releases.
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
    return {"seq": head.seq, **body, "note": warning_beside_dp(ledger.not_dp(card.people))}


def warning_beside_dp(count: int) -> str | None:
    """Return the note that this many releases without DP exist; None if there are none.

    Receipts and data cards show the note (soundness rule 9).
    """
    return f"DP releases only; {count} non-DP releases exist" if count else None
