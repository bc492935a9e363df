"""The query service: ask, price, budget, history and cards, for an authenticated caller."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from sfumato.dp.accounting.privacy_events import PrivacyCost, privacy_cost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, read_delta, read_epsilon, read_positive
from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.queries.history import asked_before, history
from sfumato.features.queries.schema import Ask, PriceQuery
from sfumato.query.contribution_bounds import bounds_advice, bounds_json
from sfumato.query.expression import columns_of
from sfumato.query.model import Aggregate, Formula, Query
from sfumato.query.plan import make_plan
from sfumato.query.plan_text import odds_text, plan_text, split_text
from sfumato.query.price import Priced, prices_on_ladder
from sfumato.query.request import Request, read_request
from sfumato.query.top_up import one_draw_at
from sfumato.release.accounts import (
    cap_json,
    left_json,
    left_to_pay,
    smallest_next,
    spent_json,
    window_json,
)
from sfumato.release.guarded_release import (
    accounts_paying,
    answer_all,
    begin_all,
    end_all,
    is_free,
    release,
)
from sfumato.release.noisy_answers import read_rows
from sfumato.release.permissions import (
    card_of_version,
    data_set_frozen,
    groups_that_ask,
    no_data_set,
    question_of,
)
from sfumato.release.plan_cache import PlanCache
from sfumato.release.receipts import not_dp_json
from sfumato.release.release_order import Asker, Order, PaidOrder, Release, ReleaseContext
from sfumato.release.top_up_source import priced_for, top_up_json
from sfumato.vault.budget_windows import spent_in_all
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account
from sfumato.vault.ports import Catalogue, Listing, Opened
from sfumato.vault.users import Caller

SIZES = (10, 100, 1_000, 10_000, 100_000)  # group sizes for which a price shows the error


@dataclass(frozen=True)
class Queries:
    """The query service of one vault: it prices and answers queries, and shows budgets."""

    door: ReleaseContext
    catalogue: Catalogue
    dice: RandomSource

    def ask(self, caller: Caller, asked: Ask) -> Release:
        """Answer a query: charge it, read the rows, and release the noisy answer; or refuse it."""
        return release(self.door, self._order_now(caller, asked))

    def begin(
        self, several: Sequence[tuple[Caller, Ask]]
    ) -> list[PaidOrder | Release | Exception | None]:
        """Charge several queries in one ledger transaction, before any row is read.

        For each query, it returns the paid order, the stored answer, or the error. It returns None
        if nothing was charged; the caller then uses `ask`.
        """
        orders = [self._order_of(caller, asked) for caller, asked in several]
        begun = iter(begin_all(self.door, [order for order in orders if order is not None]))
        return [None if order is None else next(begun) for order in orders]

    def read(self, begun: PaidOrder) -> str:
        """Read the rows for one paid query. Return its noisy answer as text, or refuse."""
        return read_rows(self.door, begun)

    def end(self, read: Sequence[tuple[PaidOrder, str]]) -> list[Release | Exception]:
        """Store several answers in one ledger transaction.

        Return each release, or the error of its query.
        """
        return end_all(self.door, read)

    def answer_all(self, several: Sequence[PaidOrder]) -> list[Release | Exception]:
        """Answer several paid counts with one scan of the rows and one ledger transaction."""
        return answer_all(self.door, several)

    def _order_of(self, caller: Caller, asked: Ask) -> Order | None:
        with contextlib.suppress(Refused):
            return self._order_now(caller, asked)
        return None

    def _order_now(self, caller: Caller, asked: Ask) -> Order:
        """Return the order for a query (what to release, and who pays), or refuse the caller.

        Access and a frozen data set are checked now, and again when the query is charged.
        """

        def may_still() -> None:
            self._thawed(caller, asked.data_set)

        order = self._order(*self._thawed(caller, asked.data_set), asked)
        return replace(order, check_access=may_still)

    def _order(self, asker: Asker, listing: Listing, asked: Ask) -> Order:
        return Order(
            card=listing.card,
            table=listing.table,
            request=self._request(listing.card, asked),
            asker=asker,
            op=self._operation(asked.op),
            card_of_version=partial(card_of_version, self.catalogue, listing.card.name),
            fresh=asked.fresh,
        )

    def answered(self, caller: Caller, asked: Ask) -> Release | None:
        """Return the stored answer of the caller's own operation, or None; no row is read."""
        asker, listing = self._listing(caller, asked.data_set)
        if self.door.ledger.answer_of(caller.user, self._operation(asked.op)) is None:
            return None
        return release(self.door, self._order(asker, listing, asked))

    def price(self, caller: Caller, asked: PriceQuery) -> Json:
        """Price a query: its cost and its expected error; nothing is spent."""
        asker, listing = self._listing(caller, asked.data_set)
        self.door.ledger.check_history()
        request = self._request(listing.card, asked)
        door = self.door
        priced = priced_for(door.ledger, door.plans, asker.user, listing.card, request)
        free = not asked.fresh and is_free(door, priced, listing.card, asker)
        return {
            **self._price_json(listing.card, priced, request, asker),
            **(self._of_paid(listing.card, asker) if free else {}),
        }

    def budget(self, caller: Caller, data_set: str) -> Json:
        """Return the privacy budgets of data set, people and caller: cap, spent and left."""
        asker, listing = self._listing(caller, data_set)
        self.door.ledger.check_history()  # the sums of a rolled-back ledger are too low
        accounts = accounts_paying(self.door.ledger, listing.card, asker)
        people, data, *others = accounts
        return {
            **_account_json(data),
            "next_epsilon": smallest_next(accounts),
            **window_json(people),
            "people": {"domain": listing.card.people, **_account_json(people)},
            "yours": {account.name: _account_json(account) for account in others},
        }

    def history(self, caller: Caller, before: int, limit: int) -> Json:
        """Return a page of the caller's own queries, newest first."""
        page = history(self.door.ledger, caller.user, before, limit)
        questions = page["questions"] if isinstance(page["questions"], list) else []
        return {**page, "questions": [q for q in questions if caller.reaches(str(q["data_set"]))]}

    def answer(self, caller: Caller, op: str) -> Release:
        """Return a stored answer of the caller again; nothing is charged, and no row is read."""
        body = asked_before(self.door.ledger, caller, op)
        asker, listing = self._listing(caller, str(body["data_set"]))
        order = Order(
            card=listing.card,
            table=listing.table,
            request=read_request(body["request"]),
            asker=asker,
            op=op,
            card_of_version=partial(card_of_version, self.catalogue, listing.card.name),
            fresh=bool(body["request"]["fresh"]),
        )
        return release(self.door, order)

    def card(self, caller: Caller, data_set: str) -> Json:
        """Return the data card of a data set that the caller may query, with its frozen state."""
        card = self._listing(caller, data_set)[1].card
        beside = not_dp_json(self.door.ledger, card.people)
        return {**card_json(card), "frozen": self.catalogue.is_frozen(card.name), **beside}

    def data_sets(self, caller: Caller) -> list[Json]:
        """Return the data cards of all data sets that the caller may query."""
        _check_name(caller.user)
        names = [name for name in self.catalogue.names() if caller.reaches(name)]
        found = [self.catalogue.opened(name, caller.user) for name in names]
        return [
            card_json(one.listing.card)
            for one in found
            if one is not None and _groups(caller, one) is not None
        ]

    def _request(self, card: Card, asked: PriceQuery) -> Request:
        error, split = asked.error or {}, asked.split or {}
        return Request(
            question=_question(self.door.plans, card, asked),
            epsilon=None if asked.epsilon is None else read_epsilon(asked.epsilon),
            margins={name: read_positive(x, f"error of {name}") for name, x in error.items()},
            delta=None if asked.delta is None else read_delta(asked.delta),
            people=asked.people,
            top_up=asked.top_up,
            split={name: read_positive(x, f"share of {name}") for name, x in split.items()},
        )

    def _listing(self, caller: Caller, data_set: str) -> tuple[Asker, Listing]:
        """Return the caller with the groups that allow the query, and the data set.

        Callers who may not query the data set are refused.
        """
        asker, opened = self._opened(caller, data_set)
        return asker, opened.listing

    def _thawed(self, caller: Caller, data_set: str) -> tuple[Asker, Listing]:
        """Return the caller and the data set, as `_listing` does; refuse a frozen data set, too."""
        asker, opened = self._opened(caller, data_set)
        if opened.is_frozen:
            raise data_set_frozen(opened.listing, caller.user)
        return asker, opened.listing

    def _opened(self, caller: Caller, data_set: str) -> tuple[Asker, Opened]:
        _check_name(caller.user)
        opened = self.catalogue.opened(data_set, caller.user) if caller.reaches(data_set) else None
        groups = None if opened is None else _groups(caller, opened)
        if opened is None or groups is None:
            raise no_data_set(data_set, caller.user)
        return Asker(caller.user, groups), opened

    def _operation(self, op: str | None) -> str:
        if op is None:
            return self.dice.draw(16).hex()
        if not 1 <= len(op) <= 100 or not op.isprintable():
            raise Refused(
                "not-in-language",
                "An operation id must be 1 to 100 printable characters.",
                "Choose another operation id.",
            )
        return op

    def _of_paid(self, card: Card, asker: Asker) -> Json:
        """Return the price's fields for an answer that the asker has paid already: it is free."""
        people = accounts_paying(self.door.ledger, card, asker)[0]
        return {"free": True, "fits": True, "odds": _odds(card, people.spent)}

    def _price_json(self, card: Card, priced: Priced, request: Request, asker: Asker) -> Json:
        plan, people = priced.plan, request.people
        by_epsilon = make_plan(card, request.question, request.split)
        accounts = accounts_paying(self.door.ledger, card, asker)
        debt = privacy_cost(priced.event)
        after = spent_in_all(accounts[0]) + debt
        named = numbers_of(plan.question)
        return {
            "epsilon": float(priced.epsilon),
            "delta": float(priced.delta),
            "error": {name: _margin(priced, of, people) for name, of in named.items()},
            "error_by_people": {
                name: sizes
                for name, of in named.items()
                if _margin(priced, of, people) is None and (sizes := _by_size(priced, of))
            },
            "rank_error": {
                name: error
                for name, of in named.items()
                if (error := priced.rank_error(of)) is not None
            },
            "at": [
                {
                    "epsilon": float(offer.epsilon),
                    "error": {name: _margin(offer, of, people) for name, of in named.items()},
                    "sure": sure_at(spent_in_all(accounts[0]).epsilon, offer.epsilon),
                }
                for offer in prices_on_ladder(by_epsilon, priced)
            ],
            "assumed_people": (people or card.size)
            if any(priced.assumes_size(of, people) for of in named.values())
            else None,
            "spent": False,
            "fits": _fits(accounts, debt),
            "left": left_to_pay(accounts[1], accounts),
            "says": plan_text(plan),
            **bounds_json(plan),
            "advice": bounds_advice(priced),
            "cells": plan.measure.cells,
            "mechanism": priced.mechanism,
            "split": split_text(priced),
            **_raising(priced, named, people),
            "free": False,
            "odds": _odds(card, after),
        }


def numbers_of(question: Query) -> dict[str, Aggregate | Formula]:
    """Return a query's aggregates and formulas by output name.

    Hidden aggregates that only formulas use are left out.
    """
    formulas = [o.of.expr for o in question.outputs if isinstance(o.of, Formula)]
    within = {name for expr in formulas for name in columns_of(expr)}
    return {
        o.name: o.of
        for o in question.outputs
        if isinstance(o.of, Aggregate | Formula) and (o.is_shown or o.name not in within)
    }


def _margin(priced: Priced, of: Aggregate | Formula, people: int | None) -> float | None:
    """Return the 95 % margin of error of one output.

    The result is None if the margin is unknown, or infinite, which JSON cannot express.
    """
    margin = priced.margin(of, people)
    return None if margin is None or math.isinf(margin) else margin


def _by_size(priced: Priced, of: Aggregate | Formula) -> list[list[float]]:
    sizes = ((size, _margin(priced, of, size)) for size in SIZES)
    return [[size, margin] for size, margin in sizes if margin is not None]


def _raising(priced: Priced, named: Mapping[str, Aggregate | Formula], people: int | None) -> Json:
    """Return the price fields of a top-up, which makes a stored answer more accurate.

    The price of one new answer at the total price is added, for comparison. For a query that is no
    top-up, the result is {}.
    """
    raised = top_up_json(priced)
    if raised is None:
        return {}
    one = one_draw_at(priced.plan, priced)
    instead = {
        "epsilon": float(one.epsilon),
        "delta": float(one.delta),
        "mechanism": one.mechanism,
        "error": {name: _margin(one, of, people) for name, of in named.items()},
    }
    return {"top_up": {**raised, "one_draw": instead}}


def _odds(card: Card, spent: PrivacyCost) -> str:
    unit = "person" if card.by_person else "row"
    return odds_text(spent.epsilon / EPSILON_UNITS, spent.delta / DELTA_UNITS, unit)


def sure_at(spent: int, epsilon: Fraction) -> float:
    """Return how certain an attacker can become of a fact about a person, in per cent.

    The attacker first believes that the fact is as likely true as false. After all releases,
    including this one, the certainty is at most 100 / (1 + e^-ε), with ε the sum of their epsilons.
    """
    return 100 / (1 + math.exp(-(spent / EPSILON_UNITS + float(epsilon))))


def _fits(accounts: list[Account], debt: PrivacyCost) -> bool:
    return all(fits_under_cap(account.cap, account.spent, debt) for account in accounts)


def _groups(caller: Caller, opened: Opened) -> tuple[str, ...] | None:
    return groups_that_ask(opened.listing, caller.user, opened.groups)


def _check_name(user: str) -> None:
    if not 1 <= len(user) <= 100 or not user.isprintable():
        raise Refused(
            "unknown-user",
            "A user's name must be 1 to 100 printable characters.",
            "Name yourself with --user NAME, or SFUMATO_USER.",
        )


def _account_json(account: Account) -> Json:
    return {
        "cap": cap_json(account),
        "spent": spent_json(account),
        "left": left_json(account),
    }


def _bounded(question: Query, asked: PriceQuery) -> Query:
    """Return the query with the contribution bounds that the request sets, if any."""
    return replace(
        question,
        max_groups=asked.max_groups or question.max_groups,
        max_rows=asked.max_rows or question.max_rows,
    )


def _question(plans: PlanCache, card: Card, asked: PriceQuery) -> Query:
    if asked.sql is not None:
        return plans.question(asked.sql, card.name, asked.max_groups, asked.max_rows)
    return _bounded(question_of(card, asked.question), asked)
