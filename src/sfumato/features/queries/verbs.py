"""The verbs of queries: cards, budgets, prices, answers and the caller's own history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.queries.schema import (
    QUERY_REFUSALS,
    Ask,
    Cards,
    OneAnswer,
    PageOfQueries,
    PriceQuery,
    QueriesPage,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Answer, Budget, Card, Empty, OfDataSet, Price
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.queries.service import Queries
    from sfumato.vault.users import Caller

QUERY_VERBS: Final = Verbs()


class Services(Protocol):
    """The service that the query verbs need."""

    @property
    def queries(self) -> Queries:
        """Return the query service."""
        ...


@QUERY_VERBS.verb("data-sets", "GET", "/v1/data-sets", "read", Empty, Cards)
def data_sets(services: Services, caller: Caller, _asked: Empty) -> Json:
    """Return the data cards of the data sets that you may query."""
    return {"data_sets": services.queries.data_sets(caller)}


@QUERY_VERBS.verb(
    "card", "GET", "/v1/data-sets/{data_set}", "read", OfDataSet, Card,
    refusals=("unknown-data-set",),
)  # fmt: skip
def card(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Return the data card of a data set."""
    return services.queries.card(caller, asked.data_set)


@QUERY_VERBS.verb(
    "budget", "GET", "/v1/data-sets/{data_set}/budget", "read", OfDataSet, Budget,
    refusals=("unknown-data-set",),
)  # fmt: skip
def budget(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Return the privacy budgets of a data set, its people and yourself: cap, spent and left."""
    return services.queries.budget(caller, asked.data_set)


@QUERY_VERBS.verb(
    "price", "POST", "/v1/data-sets/{data_set}/price", "read", PriceQuery, Price,
    refusals=QUERY_REFUSALS,
)  # fmt: skip
def price(services: Services, caller: Caller, asked: PriceQuery) -> Json:
    """Return the price of a query and its expected error; nothing is spent."""
    return services.queries.price(caller, asked)


@QUERY_VERBS.verb(
    "ask", "POST", "/v1/data-sets/{data_set}/ask", "ask", Ask, Answer,
    refusals=(
        *QUERY_REFUSALS, "anchor-missing", "budget-exceeded", "ledger-frozen", "op-reused",
        "question-failed", "question-frozen", "data-set-frozen",
    ),
    is_long=True,
)  # fmt: skip
def ask(services: Services, caller: Caller, asked: Ask) -> Json:
    """Return a private answer; it is charged before a row is read. The same query again is free."""
    return services.queries.ask(caller, asked).as_json()


@QUERY_VERBS.verb("history", "GET", "/v1/questions", "read", PageOfQueries, QueriesPage)
def history(services: Services, caller: Caller, asked: PageOfQueries) -> Json:
    """Return a page of your own queries, newest first."""
    return services.queries.history(caller, asked.before, asked.limit)


@QUERY_VERBS.verb(
    "answer", "GET", "/v1/questions/{op}", "read", OneAnswer, Answer,
    refusals=(
        "answer-unknown", "unknown-data-set", "unknown-user", "ledger-frozen", "anchor-missing",
    ),
)  # fmt: skip
def answer(services: Services, caller: Caller, asked: OneAnswer) -> Json:
    """Return a stored answer of yours again, for free."""
    return services.queries.answer(caller, asked.op).as_json()
