"""LRU caches of parsed questions, priced plans and their texts.

All of them depend on text, card and price, never on rows. The caches compare a card by identity,
not by name, so an amended card never finds plans of the card before it. The asker isn't part of any
key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.query.lru_cache import LruCache
from sfumato.query.model import Query
from sfumato.query.price import Priced
from sfumato.query.request import Request, priced_request
from sfumato.query.sql.select import read_sql
from sfumato.release.plan_description import (
    PlanDescription,
    PlanPaper,
    copy_description,
    describe_plan,
)
from sfumato.vault.card.data_card import Card

TEXTS: Final = 16 * 1024 * 1024  # bytes of parsed questions, by the estimates below
OFFERS: Final = 64 * 1024 * 1024  # bytes of priced plans
TOLD: Final = 16 * 1024 * 1024  # bytes of each cache of texts
# estimated bytes of a tree or plan per letter of its text; measured: 10 to 24
_OF_A_LETTER: Final = 40
_OF_A_CELL: Final = 500  # estimated bytes of a plan per cell; measured: 140


@dataclass(frozen=True)
class _Offer:
    """Cache entry: a priced plan and its data card.

    The cache key is the card's `id`. The entry keeps the card alive, so that no other card gets the
    same `id`.
    """

    card: Card
    priced: Priced


@dataclass(frozen=True)
class _Told:
    """Cache entry: a plan's description and the plan, kept alive so that its `id` stays unique."""

    priced: Priced
    said: PlanDescription


@dataclass(frozen=True)
class _Filed:
    """Cache entry: the body of a question's ledger entry, and its plan.

    The entry keeps the plan alive, so that the plan's `id`, which is the cache key, stays unique.
    """

    priced: Priced
    paper: PlanPaper


@dataclass(frozen=True)
class _Shown:
    """Cache entry: a stored answer as the asker sees it, and the plan, whose `id` stays unique."""

    priced: Priced
    answer: Json


@dataclass(frozen=True)
class PlanCache:
    """LRU caches of a process that answers queries: parsed questions, priced plans and answers."""

    texts: LruCache[Query] = field(default_factory=lambda: LruCache(TEXTS))
    offers: LruCache[_Offer] = field(default_factory=lambda: LruCache(OFFERS))
    told: LruCache[_Told] = field(default_factory=lambda: LruCache(TOLD))
    filed: LruCache[_Filed] = field(default_factory=lambda: LruCache(TOLD))
    answers: LruCache[_Shown] = field(default_factory=lambda: LruCache(TOLD))
    versions: LruCache[str] = field(default_factory=lambda: LruCache(TOLD))

    def question(
        self, text: str, data_set: str, max_groups: int | None, max_rows: int | None
    ) -> Query:
        """Return the parsed question of an SQL text, from the cache if it was parsed before."""
        return self.texts.made(
            (text, data_set, max_groups, max_rows),
            lambda: read_sql(text, data_set, max_groups=max_groups, max_rows=max_rows),
            lambda _: _OF_A_LETTER * (len(text) + len(data_set)),
        )

    def priced(self, card: Card, request: Request) -> Priced:
        """Return the priced plan of a request, from the cache if possible; or refuse the request.

        The request must not be a top-up.
        """
        made = self.offers.made(
            (id(card), *_key(request)), lambda: _Offer(card, priced_request(card, request)), _size
        )
        return made.priced if made.card is card else priced_request(card, request)

    def said(self, priced: Priced) -> PlanDescription:
        """Return the description of a priced plan, for the ledger and receipts, from the cache."""
        made = self.told.made(
            id(priced),
            lambda: _Told(priced, describe_plan(priced)),
            lambda told: _size_of(told.priced),
        )
        return made.said if made.priced is priced else describe_plan(priced)

    def paper(self, priced: Priced, write: Callable[[], PlanPaper]) -> PlanPaper:
        """Return the body of the ledger entry of the request for which `priced` made this plan.

        Each plan has one request: another price, question or card makes another plan.
        """
        made = self.filed.made(
            id(priced), lambda: _Filed(priced, write()), lambda filed: _size_of(filed.priced)
        )
        return made.paper if made.priced is priced else write()

    def shown(self, priced: Priced, text: str, show: Callable[[Priced, str], Json]) -> Json:
        """Return a copy of a stored answer with the asker's columns and order, from the cache."""
        made = self.answers.made(
            (id(priced), text),
            lambda: _Shown(priced, show(priced, text)),
            lambda shown: _size_of(shown.priced) + _OF_A_LETTER * len(text),
        )
        answer: Json = (
            copy_description(made.answer) if made.priced is priced else show(priced, text)
        )
        return answer

    def version(self, text: str, read: Callable[[str], str]) -> str:
        """Return the data set version that a stored answer is about, from the cache."""
        return self.versions.made(text, lambda: read(text), lambda _: 4 * len(text))


def _key(request: Request) -> tuple[object, ...]:
    return (
        request.question,
        request.epsilon,
        tuple(sorted((request.margins or {}).items())),
        request.delta,
        request.people,
        tuple(sorted((request.split or {}).items())),
        request.rho,
    )


def _size(offer: _Offer) -> int:
    return _size_of(offer.priced)


def _size_of(priced: Priced) -> int:
    plan = priced.plan
    return _OF_A_LETTER * plan.canonical_length() + _OF_A_CELL * plan.measure.cells
