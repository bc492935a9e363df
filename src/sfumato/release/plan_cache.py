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
    """A priced plan and its card.

    Keeping the card alive reserves its `id`, which is the cache key.
    """

    card: Card
    priced: Priced


@dataclass(frozen=True)
class _Told:
    """A plan's description and the plan; keeping the plan alive reserves its `id`."""

    priced: Priced
    said: PlanDescription


@dataclass(frozen=True)
class _Filed:
    """The ledger body of a plan's request, and the plan.

    Keeping the plan alive reserves its `id`.
    """

    priced: Priced
    paper: PlanPaper


@dataclass(frozen=True)
class _Shown:
    """A stored answer as shown to the asker, and its plan; the plan's `id` stays reserved."""

    priced: Priced
    answer: Json


@dataclass(frozen=True)
class PlanCache:
    """The LRU caches of one process that writes the ledger (a door)."""

    texts: LruCache[Query] = field(default_factory=lambda: LruCache(TEXTS))
    offers: LruCache[_Offer] = field(default_factory=lambda: LruCache(OFFERS))
    told: LruCache[_Told] = field(default_factory=lambda: LruCache(TOLD))
    filed: LruCache[_Filed] = field(default_factory=lambda: LruCache(TOLD))
    answers: LruCache[_Shown] = field(default_factory=lambda: LruCache(TOLD))
    versions: LruCache[str] = field(default_factory=lambda: LruCache(TOLD))

    def question(
        self, text: str, data_set: str, max_groups: int | None, max_rows: int | None
    ) -> Query:
        """Parse a question's SQL text, or return it from the cache."""
        return self.texts.made(
            (text, data_set, max_groups, max_rows),
            lambda: read_sql(text, data_set, max_groups=max_groups, max_rows=max_rows),
            lambda _: _OF_A_LETTER * (len(text) + len(data_set)),
        )

    def priced(self, card: Card, request: Request) -> Priced:
        """Plan and price a request that isn't a top-up, or return it from the cache; or refuse."""
        made = self.offers.made(
            (id(card), *_key(request)), lambda: _Offer(card, priced_request(card, request)), _size
        )
        return made.priced if made.card is card else priced_request(card, request)

    def said(self, priced: Priced) -> PlanDescription:
        """Return the description of the priced plan."""
        made = self.told.made(
            id(priced),
            lambda: _Told(priced, describe_plan(priced)),
            lambda told: _size_of(told.priced),
        )
        return made.said if made.priced is priced else describe_plan(priced)

    def paper(self, priced: Priced, write: Callable[[], PlanPaper]) -> PlanPaper:
        """Return the ledger body of the request for which `PlanCache.priced` made this plan.

        Each plan has one request: another price, question or card makes another plan.
        """
        made = self.filed.made(
            id(priced), lambda: _Filed(priced, write()), lambda filed: _size_of(filed.priced)
        )
        return made.paper if made.priced is priced else write()

    def shown(self, priced: Priced, text: str, show: Callable[[Priced, str], Json]) -> Json:
        """Return a copy of the stored answer in the form in which this plan shows it."""
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
        """Return the data set version of a stored answer."""
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
