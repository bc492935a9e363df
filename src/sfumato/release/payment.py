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
    """The price of one operation, and the accounts that paid it: none if the answer was free."""

    op: str
    epsilon: Fraction
    delta: Fraction
    by: tuple[str, ...]


def relation(card: Card) -> str:
    """Return the neighbouring relation of a data card in words: add or remove one person or row."""
    return "add or remove one " + ("person" if card.by_person else "row")


def unit_of(card: Card) -> str:
    """Return the privacy unit of a data card in words: a person, with the id column, or a row."""
    return f"person ({card.unit})" if card.by_person else "row"


def on_card(card: Card) -> Json:
    """Return the data card's fields that every ledger charge states, such as the privacy unit."""
    return {
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "unit": card.unit,
        "relation": relation(card),
    }


def stands_at(ledger: str, place: LedgerHead | Entry) -> Json:
    """Return a position in a ledger as JSON: ledger id, epoch, sequence number and hash."""
    return {"ledger": ledger, "epoch": place.epoch, "seq": place.seq, "head": place.hash}


def signed_payment(paid: Payment, head: LedgerHead, entry: int) -> Json:
    """Return the part of a receipt that is signed: charged accounts, price and ledger head."""
    return {
        **stands_at(head.ledger, head),
        "op": paid.op,
        "entry": entry,
        "charged": sorted(paid.by),
        "epsilon": str(paid.epsilon),
        "delta": str(paid.delta),
    }


def payment_json(paid: Payment, seq: int, data_set: str, accounts: Mapping[str, Account]) -> Json:
    """Return a receipt's fields about the payment: price, payers, budget left, ledger entry.

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
