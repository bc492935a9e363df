"""Request and reply schemas of queries: price, ask, stored answers, history and data cards."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from sfumato.dp.refusal import Refused
from sfumato.wire.query_json import malformed_query
from sfumato.wire.schema import (
    Card,
    Count,
    Label,
    Name,
    Number,
    Numbers,
    OfDataSet,
    Position,
    QueryShape,
    Reply,
    Request,
    Sql,
)

QUERY_REFUSALS: Final = (
    "answer-unknown", "bad-budget", "bad-sql", "error-needs-size", "error-out-of-reach",
    "keys-needed", "no-aggregate", "no-bounds", "noise-out-of-range", "not-in-language",
    "numbers-too-large", "question-too-large", "top-up-impossible", "top-up-unknown",
    "type-mismatch", "unknown-column", "unknown-data-set", "unknown-user",
)  # fmt: skip


class PriceQuery(OfDataSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query to price, as SQL or built by the client, with its epsilon or wanted error."""

    sql: Sql | None = None
    question: QueryShape = None
    epsilon: Number = None
    error: Annotated[
        Numbers, Meta(description="Instead of epsilon: column -> wanted half-width at 95 %.")
    ] = None
    delta: Number = None
    people: Count | None = None
    max_groups: Count | None = None
    max_rows: Count | None = None
    top_up: Annotated[
        str | None, Meta(description="The operation id of the answer to make more accurate.")
    ] = None
    split: Annotated[Numbers, Meta(description="Column -> its share of the price.")] = None
    fresh: Annotated[bool, Meta(description="Pay for new noise, not the stored answer.")] = False

    def __post_init__(self) -> None:
        """Convert numbers to exact ones; refuse a request unless it has exactly one query."""
        super().__post_init__()
        if (self.sql is None) == (self.question is None):
            raise self.malformed("it needs either sql or question")

    @staticmethod
    def malformed(what: str) -> Refused:
        """Return the refusal of a malformed query."""
        return malformed_query(what)


class Ask(PriceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query to answer, with an optional operation id, so that a retry is charged once."""

    op: Annotated[
        Label | None, Meta(description="Your id of this request: a retry with it pays once.")
    ] = None


class Cards(Reply):
    """The reply with the data cards of the data sets that the caller may query."""

    data_sets: list[Card]


class PageOfQueries(Request, frozen=True, kw_only=True):
    """A request for one page of the caller's past queries, newest first."""

    before: Position = 10**17
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class OneAnswer(Request, frozen=True, kw_only=True):
    """A request for a stored answer of the caller, by the operation id of its query."""

    op: Name


class AskedQuery(Reply):
    """A past query of the caller, as the history shows it: its text, state, epsilon and charges."""

    op: str
    entry: int
    at: str
    state: str
    code: str | None
    charged: list[str]
    free: bool
    data_set: str | None
    version: str | None
    says: str | None
    epsilon: str | None
    delta: str | None


class QueriesPage(Reply):
    """One page of the caller's past queries, and the position at which the next page begins."""

    questions: list[AskedQuery]
    next: int | None
