"""What a charge and a receipt say alike, whatever was paid for: on whose rows, how much, where."""

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
    """What one operation costs, and which accounts have paid it just now: none, if it was free."""

    op: str
    epsilon: Fraction
    delta: Fraction
    by: tuple[str, ...]


def relation(card: Card) -> str:
    """Return which data sets count as neighbours."""
    return "add or remove one " + ("person" if card.by_person else "row")


def unit_of(card: Card) -> str:
    """Return whose part the guarantee is about, in words."""
    return f"person ({card.unit})" if card.by_person else "row"


def on_card(card: Card) -> Json:
    """Return on whose rows a charge is, as the chain has it of every one."""
    return {
        "data_set": card.name,
        "version": card.version,
        "people": card.people,
        "unit": card.unit,
        "relation": relation(card),
    }


def stands_at(ledger: str, place: LedgerHead | Entry) -> Json:
    """Return where in the chain of that ledger something stands."""
    return {"ledger": ledger, "epoch": place.epoch, "seq": place.seq, "head": place.hash}


def signed_payment(paid: Payment, head: LedgerHead, entry: int) -> Json:
    """Return what of a receipt is signed: who was charged how much, and where the chain stands."""
    return {
        **stands_at(head.ledger, head),
        "op": paid.op,
        "entry": entry,
        "charged": sorted(paid.by),
        "epsilon": str(paid.epsilon),
        "delta": str(paid.delta),
    }


def payment_json(paid: Payment, seq: int, data_set: str, accounts: Mapping[str, Account]) -> Json:
    """Return how a receipt begins: what was paid and by whom, what is left, and where it stands.

    `accounts` are those of all who pay for questions to that data set.
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
