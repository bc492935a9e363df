"""Report what was spent on a data set: per account with its cap, and the last charges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.release.accounts import (
    cap_json,
    data_set_account,
    group_account,
    left_json,
    people_account,
    spent_json,
    user_account,
    window_json,
)
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account, Entry
from sfumato.vault.ports import LedgerStore

QUESTIONS: Final = 50  # the most queries in the report
_PAGE: Final = 500  # ledger entries per page
_PAGES: Final = 20  # the most pages that are searched, from the ledger's end


def spending(ledger: Ledger, card: Card) -> Json:
    """Return all budget accounts of the data set, and the last queries charged to it."""
    ledger.check_history()
    accounts = ledger.every_account()
    wanted = (people_account(card.people), data_set_account(card.name))
    return {
        "data_set": card.name,
        "accounts": [
            *(_account_json(a, *kind_of(card, a.name)) for a in _of(accounts, wanted)),
            *_several(accounts, card, group_account(card.name, "")),
            *_several(accounts, card, user_account(card.name, "")),
        ],
        "questions": list(islice(_questions(ledger.store, card.name), QUESTIONS)),
    }


def kind_of(card: Card, account: str) -> tuple[str, str]:
    """Return an account's kind (people, data-set, group or user), and the name of its holder."""
    for kind, stem in (
        ("group", group_account(card.name, "")),
        ("user", user_account(card.name, "")),
    ):
        if account.startswith(stem):
            return kind, account.removeprefix(stem)
    if account == people_account(card.people):
        return "people", card.people
    return "data-set", card.name


def _of(accounts: tuple[Account, ...], names: tuple[str, ...]) -> list[Account]:
    by_name = {account.name: account for account in accounts}
    return [by_name[name] for name in names if name in by_name]


def _several(accounts: tuple[Account, ...], card: Card, stem: str) -> list[Json]:
    found = sorted((a for a in accounts if a.name.startswith(stem)), key=lambda a: a.name)
    return [_account_json(account, *kind_of(card, account.name)) for account in found]


def _account_json(account: Account, kind: str, name: str) -> Json:
    return {
        "of": kind,
        "name": name,
        "cap": cap_json(account),
        "spent": spent_json(account),
        "left": left_json(account),
        **window_json(account),
    }


def _questions(store: LedgerStore, data_set: str) -> Iterator[Json]:
    """Yield the charges to the data set, the newest first: user, query and cost."""
    for entry in _backwards(store):
        if entry.kind == "charged":
            said = json.loads(entry.body)
            about = said["body"]
            if about.get("data_set") == data_set:
                yield {
                    "entry": entry.seq,
                    "at": entry.at,
                    "user": said["user"],
                    "version": about["version"],
                    "says": about["says"],
                    "epsilon": about["epsilon"],
                    "delta": about["delta"],
                }


def _backwards(store: LedgerStore) -> Iterator[Entry]:
    """Yield the last ledger entries, newest first: at most 10,000 of them.

    They are read in 20 pages (_PAGES) of 500 entries (_PAGE).
    """
    above = store.head().seq
    for _ in range(_PAGES):
        if above <= 0:
            return
        after = max(0, above - _PAGE)
        page = list(islice(store.entries(after), above - after))
        yield from reversed(page)
        above = after
