"""Requests and replies of the verbs (API operations) of twins (synthetic data)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sfumato.wire.schema import (
    Name,
    NeededNumber,
    Number,
    OfDataSet,
    QueryShape,
    Reply,
    Sql,
    letters,
)

Seed = Annotated[Name | None, Meta(description="The same seed gives the same twin.")]
Rows = Annotated[int, Meta(ge=1, le=10**6)]


class SchemaTwinRequest(OfDataSet, frozen=True, kw_only=True):
    """A request for a schema twin (synthetic data): size, seed, and a query that its rows suit."""

    sql: Sql | None = None
    question: QueryShape = None
    rows: Rows | None = None
    seed: Seed = None


class DpTwinTerms(OfDataSet, frozen=True, kw_only=True):
    """The terms of a DP twin (synthetic data): its price, and how it is made."""

    epsilon: NeededNumber = None
    delta: Number = None
    method: Annotated[str, Meta(extra_json_schema={"enum": ["independent", "mst", "aim"]})] = "mst"
    private_bins: Annotated[
        tuple[Annotated[str, letters(300)], ...],
        Meta(description="Numeric columns whose bins are measured, too."),
    ] = ()
    error_epsilon: Annotated[
        Number, Meta(description="An extra price: to measure how far the twin is from the rows.")
    ] = None
    rows: Rows | None = None
    seed: Seed = None


class DpTwinOrder(DpTwinTerms, frozen=True, kw_only=True):
    """A request to make a DP twin (synthetic data), which is paid once per operation id."""

    op: Annotated[
        Annotated[str, letters(60)] | None,
        Meta(description="Your id of this request: a retry with it pays once."),
    ] = None


class DpTwinPrice(Reply):
    """The price of a DP twin (synthetic data), and whether the budget left covers it."""

    epsilon: float
    fits: bool


class Twin(Reply):
    """A twin (synthetic data): its files, and the stamp that says how they were made."""

    name: Name
    stamp: dict[str, Any]
    files: dict[str, Any]
