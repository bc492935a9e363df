"""Ask, price and budget: everything a researcher does, for whoever is asking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from sfumato.core.account import Account
from sfumato.core.budget import DELTA_UNITS, EPSILON_UNITS, read_delta, read_epsilon, read_positive
from sfumato.core.card import Card
from sfumato.core.card_shown import card_json
from sfumato.core.expression import Json
from sfumato.core.filters import accepts
from sfumato.core.loss import Debt, debt_of
from sfumato.core.ports import Catalogue, Dice, Listing
from sfumato.core.question import Aggregate, Question, read_question
from sfumato.core.refusal import Refused
from sfumato.door import (
    Asker,
    Door,
    Order,
    Release,
    cap_json,
    debtors,
    left_json,
    priced_for,
    release,
    smallest_next,
    spent_json,
    top_up_json,
)
from sfumato.plan.explain import bounding_in_words, in_words, odds_in_words, split_in_words
from sfumato.plan.price import Priced, offers
from sfumato.plan.read_sql import read_sql
from sfumato.plan.request import Request
from sfumato.plan.top_up import one_draw_at

OWNER = "owner"  # whoever holds the vault's folder; see docs/sharp-edges.md
SIZES = (10, 100, 1_000, 10_000, 100_000)  # group sizes that a price is shown for


@dataclass(frozen=True)
class Asked:
    """A question as it came over the wire: SQL or a shape, a price, and how to file it."""

    data_set: str
    sql: str | None = None
    question: object = None
    epsilon: object = None
    error: Mapping[str, object] | None = None
    delta: object = None
    people: int | None = None
    max_groups: int | None = None
    max_rows: int | None = None
    op: str | None = None
    fresh: bool = False
    top_up: str | None = None
    split: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Queries:
    """The query service of one vault."""

    door: Door
    catalogue: Catalogue
    dice: Dice

    def asker(self, user: str) -> Asker:
        """Return the user with the groups they are enrolled in."""
        if not 1 <= len(user) <= 100 or not user.isprintable():
            raise Refused(
                "unknown-user",
                "A user is 1 to 100 printable letters.",
                "Name yourself with --user NAME, or SFUMATO_USER.",
            )
        return Asker(user, self.catalogue.groups_of(user))

    def ask(self, user: str, asked: Asked) -> Release:
        """Return the released answer, charged; or refuse."""
        asker = self.asker(user)
        listing = self._listing(asker, asked.data_set)
        groups = tuple(g for g in asker.groups if g in listing.card.who)
        order = Order(
            card=listing.card,
            table=listing.table,
            request=_request(listing.card, asked),
            asker=Asker(user, groups),
            op=self._operation(asked.op),
            earlier=partial(self._card_of, listing.card.name),
            fresh=asked.fresh,
        )
        return release(self.door, order)

    def price(self, user: str, asked: Asked) -> Json:
        """Return what the question would cost and how far off it would be; nothing is spent."""
        listing = self._listing(self.asker(user), asked.data_set)
        request = _request(listing.card, asked)
        priced = priced_for(self.door.ledger, user, listing.card, request)
        return self._price_json(listing.card, priced, asked.people, user)

    def budget(self, user: str, data_set: str) -> Json:
        """Return the caps, what is spent and what is left, of the data set and whom it touches."""
        asker = self.asker(user)
        card = self._listing(asker, data_set).card
        accounts = self._accounts(card, asker)
        people, data, *others = accounts
        return {
            **_account_json(data),
            "next_epsilon": smallest_next(accounts),
            "people": {"domain": card.people, **_account_json(people)},
            "yours": {account.name: _account_json(account) for account in others},
        }

    def card(self, user: str, data_set: str) -> Json:
        """Return the card of a data set that the user may ask."""
        return card_json(self._listing(self.asker(user), data_set).card)

    def data_sets(self, user: str) -> list[Json]:
        """Return the cards of all data sets that the user may ask."""
        asker = self.asker(user)
        found = [self.catalogue.find(name) for name in self.catalogue.names()]
        return [card_json(f.card) for f in found if f is not None and _may_ask(asker, f.card)]

    def _card_of(self, name: str, version: str) -> Card | None:
        """Return the card of an earlier version, under which an answer was given."""
        for card in self.catalogue.cards():
            if (card.name, card.version) == (name, version):
                return card
        return None

    def _listing(self, asker: Asker, data_set: str) -> Listing:
        listing = self.catalogue.find(data_set)
        if listing is None or not _may_ask(asker, listing.card):
            raise Refused(
                "unknown-data-set",
                f"There is no data set {data_set!r} that {asker.user!r} may ask.",
                "See what there is with `sfumato datasets`, or ask the owner to enrol you.",
            )
        return listing

    def _operation(self, op: str | None) -> str:
        if op is None:
            return self.dice.draw(16).hex()
        if not 1 <= len(op) <= 100 or not op.isprintable():
            raise Refused(
                "not-in-language",
                "An operation id is 1 to 100 printable letters.",
                "Choose another id.",
            )
        return op

    def _accounts(self, card: Card, asker: Asker) -> list[Account]:
        groups = tuple(g for g in asker.groups if g in card.who)
        paying = debtors(card, asker.user, groups)
        known = self.door.ledger.accounts(tuple(d.account for d in paying))
        return [known.get(d.account, Account(d.account, d.cap, Debt())) for d in paying]

    def _price_json(self, card: Card, priced: Priced, people: int | None, user: str) -> Json:
        plan = priced.plan
        accounts = self._accounts(card, self.asker(user))
        debt = debt_of(priced.event)
        after = accounts[0].spent + debt
        named = {o.name: o.of for o in plan.question.outputs if isinstance(o.of, Aggregate)}
        return {
            "epsilon": float(priced.epsilon),
            "delta": float(priced.delta),
            "error": {name: priced.margin(of, people) for name, of in named.items()},
            "error_by_people": {
                name: [[size, priced.margin(of, size)] for size in SIZES]
                for name, of in named.items()
                if priced.margin(of, people) is None and priced.margin(of, SIZES[0]) is not None
            },
            "rank_error": {
                name: error
                for name, of in named.items()
                if (error := priced.rank_error(of)) is not None
            },
            "at": [
                {
                    "epsilon": float(offer.epsilon),
                    "error": {name: offer.margin(of, people) for name, of in named.items()},
                    "sure": sure_at(accounts[0].spent.epsilon, offer.epsilon),
                }
                for offer in offers(plan, priced)
            ],
            "assumed_people": people or card.size,
            "spent": False,
            "fits": _fits(accounts, debt),
            "left": {**left_json(accounts[1]), "next_epsilon": smallest_next(accounts)},
            "says": in_words(plan),
            "bounding": bounding_in_words(plan),
            "cells": plan.measure.cells,
            "mechanism": priced.mechanism,
            "split": split_in_words(priced),
            **_raising(priced, named, people),
            "odds": odds_in_words(
                after.epsilon / EPSILON_UNITS,
                after.delta / DELTA_UNITS,
                "person" if card.by_person else "row",
            ),
        }


def _raising(priced: Priced, named: Mapping[str, Aggregate], people: int | None) -> Json:
    """Return what a top-up raises, and what one new draw at the whole price would give."""
    raised = top_up_json(priced)
    if raised is None:
        return {}
    one = one_draw_at(priced.plan, priced)
    instead = {
        "epsilon": float(one.epsilon),
        "delta": float(one.delta),
        "mechanism": one.mechanism,
        "error": {name: one.margin(of, people) for name, of in named.items()},
    }
    return {"top_up": {**raised, "one_draw": instead}}


def sure_at(spent: int, epsilon: Fraction) -> float:
    """Return how sure somebody can become of a fact, in percent, with this and all before."""
    return 100 / (1 + math.exp(-(spent / EPSILON_UNITS + float(epsilon))))


def _fits(accounts: list[Account], debt: Debt) -> bool:
    return all(accepts(account.cap, account.spent, debt) for account in accounts)


def _may_ask(asker: Asker, card: Card) -> bool:
    return asker.user == OWNER or card.lets_ask(asker.groups)


def _account_json(account: Account) -> Json:
    return {
        "cap": cap_json(account),
        "spent": spent_json(account),
        "left": left_json(account),
    }


def _request(card: Card, asked: Asked) -> Request:
    error, split = asked.error or {}, asked.split or {}
    return Request(
        question=_question(card, asked),
        epsilon=None if asked.epsilon is None else read_epsilon(asked.epsilon),
        margins={name: read_positive(x, f"error of {name}") for name, x in error.items()},
        delta=None if asked.delta is None else read_delta(asked.delta),
        people=asked.people,
        top_up=asked.top_up,
        split={name: read_positive(x, f"share of {name}") for name, x in split.items()},
    )


def _bounded(question: Question, asked: Asked) -> Question:
    """Return the question with the bounds that the terms name, if they name any."""
    return replace(
        question,
        max_groups=asked.max_groups or question.max_groups,
        max_rows=asked.max_rows or question.max_rows,
    )


def _question(card: Card, asked: Asked) -> Question:
    if asked.sql is not None:
        return read_sql(asked.sql, card.name, max_groups=asked.max_groups, max_rows=asked.max_rows)
    question = _bounded(read_question(asked.question), asked)
    if question.data_set.casefold() != card.name.casefold():
        raise Refused(
            "not-in-language",
            "The question names another data set.",
            f"Build it from {card.name!r}.",
        )
    return question
