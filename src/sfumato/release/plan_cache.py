"""Questions that were read and priced before: functions of text, card and price, and of no row.

A card is told from another by being it, not by its name: an amended card is another card, so what
was planned on the one before is not found. Whose question it was is no part of it either.
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

TEXTS: Final = 16 * 1024 * 1024  # bytes of questions that are kept, as reckoned here
OFFERS: Final = 64 * 1024 * 1024
TOLD: Final = 16 * 1024 * 1024
_OF_A_LETTER: Final = 40  # bytes of a tree or a plan for a letter of its text; measured: 10 to 24
_OF_A_CELL: Final = 500  # measured: 140


@dataclass(frozen=True)
class _Offer:
    """A priced plan, and the card that it was made on: held, so that no other takes its place."""

    card: Card
    priced: Priced


@dataclass(frozen=True)
class _Told:
    """What is written of a priced plan, and that plan: held, so that no other takes its place."""

    priced: Priced
    said: PlanDescription


@dataclass(frozen=True)
class _Filed:
    """What the chain says of the request of a priced plan, and that plan: held, as above."""

    priced: Priced
    paper: PlanPaper


@dataclass(frozen=True)
class _Shown:
    """A stored answer as its asker sees it, and the plan that it is of: held, as above."""

    priced: Priced
    answer: Json


@dataclass(frozen=True)
class PlanCache:
    """What one door has read and priced of late."""

    texts: LruCache[Query] = field(default_factory=lambda: LruCache(TEXTS))
    offers: LruCache[_Offer] = field(default_factory=lambda: LruCache(OFFERS))
    told: LruCache[_Told] = field(default_factory=lambda: LruCache(TOLD))
    filed: LruCache[_Filed] = field(default_factory=lambda: LruCache(TOLD))
    answers: LruCache[_Shown] = field(default_factory=lambda: LruCache(TOLD))
    versions: LruCache[str] = field(default_factory=lambda: LruCache(TOLD))

    def question(
        self, text: str, data_set: str, max_groups: int | None, max_rows: int | None
    ) -> Query:
        """Return the question that the text asks of the data set, or refuse."""
        return self.texts.made(
            (text, data_set, max_groups, max_rows),
            lambda: read_sql(text, data_set, max_groups=max_groups, max_rows=max_rows),
            lambda _: _OF_A_LETTER * (len(text) + len(data_set)),
        )

    def priced(self, card: Card, request: Request) -> Priced:
        """Return the priced plan of a request that raises no earlier answer, or refuse."""
        made = self.offers.made(
            (id(card), *_key(request)), lambda: _Offer(card, priced_request(card, request)), _size
        )
        return made.priced if made.card is card else priced_request(card, request)

    def said(self, priced: Priced) -> PlanDescription:
        """Return what is written of the priced plan."""
        made = self.told.made(
            id(priced),
            lambda: _Told(priced, describe_plan(priced)),
            lambda told: _size_of(told.priced),
        )
        return made.said if made.priced is priced else describe_plan(priced)

    def paper(self, priced: Priced, write: Callable[[], PlanPaper]) -> PlanPaper:
        """Return what the chain says of the request that `priced` gave this very plan for.

        That plan has one request: another price, question or card is another plan.
        """
        made = self.filed.made(
            id(priced), lambda: _Filed(priced, write()), lambda filed: _size_of(filed.priced)
        )
        return made.paper if made.priced is priced else write()

    def shown(self, priced: Priced, text: str, show: Callable[[Priced, str], Json]) -> Json:
        """Return the stored answer as the plan's asker sees it, as a value of its own."""
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
        """Return the version of the data set that the stored answer is about."""
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
    return _OF_A_LETTER * plan.letters() + _OF_A_CELL * plan.measure.cells
