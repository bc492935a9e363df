"""Fields that all charges and receipts share: data set, price, payers, and place in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.release.accounts import data_set_account, left_to_pay, people_account, window_json
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account, Entry, LedgerHead


@dataclass(frozen=True)
class Payment:
    """The price of one operation, and the accounts that it debited: none if it was free."""

    op: str
    epsilon: Fraction
    delta: Fraction
    by: tuple[str, ...]


def relation(card: Card) -> str:
    """Return the neighbouring relation in words: add or remove one person, or one row.

    The card's privacy unit decides which.
    """
    return "add or remove one " + ("person" if card.by_person else "row")


def unit_of(card: Card) -> str:
    """Return the privacy unit in words."""
    return f"person ({card.unit})" if card.by_person else "row"


def on_card(card: Card) -> Json:
    """Return the card's fields in every ledger charge: data set, version, people, privacy unit."""
    return {
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "unit": card.unit,
        "relation": relation(card),
    }


def stands_at(ledger: str, place: LedgerHead | Entry) -> Json:
    """Return a place in a ledger as JSON: ledger, epoch, sequence number and hash."""
    return {"ledger": ledger, "epoch": place.epoch, "seq": place.seq, "head": place.hash}


def signed_payment(paid: Payment, head: LedgerHead, entry: int) -> Json:
    """Return the signed part of a receipt: charged accounts, price and ledger head."""
    return {
        **stands_at(head.ledger, head),
        "op": paid.op,
        "entry": entry,
        "charged": sorted(paid.by),
        "epsilon": str(paid.epsilon),
        "delta": str(paid.delta),
    }


def payment_json(paid: Payment, seq: int, data_set: str, accounts: Mapping[str, Account]) -> Json:
    """Return the first fields of a receipt: price, payers, budget left, and ledger entry.

    `accounts` holds every account that pays for questions to that data set.
    """
    people = next(one for one in accounts.values() if one.name.startswith(people_account("")))
    return {
        "epsilon": float(paid.epsilon),
        "delta": float(paid.delta),
        "left": left_to_pay(accounts[data_set_account(data_set)], accounts.values()),
        **window_json(people),
        "op": paid.op,
        "seq": seq,
        "free": not paid.by,
        "charged": {name: float(paid.epsilon) for name in paid.by},
    }
