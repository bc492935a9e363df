"""Requests and replies of streams (continual counting)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sfumato.wire.schema import Name, NeededNumber, OfDataSet, QueryShape, Reply, Sql, letters

# The stream's own reader checks these, with refusal codes of its own.
Day = Annotated[str, letters(10, "A day, such as 2026-01-31.")]
StreamName = Annotated[str, letters(100)]
_Most = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 10**6})]


class OneStream(OfDataSet, frozen=True, kw_only=True):
    """A request that names one stream (continual count) of a data set."""

    stream: Name


class OpenStream(OfDataSet, frozen=True, kw_only=True):
    """An owner's request to open a stream: its query, its horizon and its price."""

    stream: StreamName
    start: Day
    periods: _Most
    rows: Annotated[_Most, Meta(description="Contribution bound: rows of a person in all periods.")]
    epsilon: NeededNumber = None
    sql: Sql | None = None
    question: QueryShape = None


class CloseStream(OneStream, frozen=True, kw_only=True):
    """A request to close a stream's periods up to a last day."""

    until: Day


class OpenedStream(Reply):
    """The reply to an opened stream: its fixed terms and its expected error."""

    stream: Name
    data_set: Name
    says: str
    epsilon: float
    periods: int
    unit: str
    bounding: str
    error: dict[str, float]
    last: str


class ClosedStream(Reply):
    """The reply to closing periods: how many periods of the stream are closed."""

    stream: Name
    data_set: Name
    closed_now: int
    closed: int
    of: int
    last: str
    version: str
