"""Requests and replies of a site: agreements, rounds of secure sums, training, and tensors.

Messages of rounds are bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct

from sfumato.wire.schema import (
    Count,
    Name,
    Number,
    OfDataSet,
    QueryShape,
    Reply,
    Request,
    Sql,
    letters,
    needed,
    shaped,
)

FederationName = Annotated[str, letters(63)]
Key = Annotated[str, letters(64, "A public key.")]
Message = Annotated[
    str,
    letters(1_000_000, "The bytes of the message, in base64."),
]
Session = Annotated[str, Meta(min_length=1, max_length=64)]
_MOST: Final = 10**10
_Told = Annotated[Any, Meta(extra_json_schema={"type": "number"})]


class JoinFederation(OfDataSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agreement of a federation: its sites with their keys, convener, floor and colluders."""

    name: Annotated[Any, needed(FederationName)] = UNSET
    convener: Annotated[Any, needed(Key)] = UNSET
    sites: Annotated[Any, needed(dict[str, Key])] = UNSET
    floor: Annotated[Any, needed(Count)] = UNSET
    colluders: Annotated[Any, needed(Count)] = UNSET
    neighbours: Annotated[
        Any, shaped(Count | None, "With how many sites each shares masks; left out: with all.")
    ] = UNSET


class OneFederation(OfDataSet, frozen=True, kw_only=True):
    """A federation in which a data set takes part."""

    federation: FederationName


class Told(Struct, kw_only=True, forbid_unknown_fields=True):
    """The convener's report on a training run: the model's loss and accuracy, and payments."""

    loss: _Told | None = None
    accuracy: _Told | None = None
    paid: dict[str, _Told] = {}


class PriceSum(OneFederation, frozen=True, kw_only=True):
    """A sum over sites to price: a query or a training task, and the epsilon and delta to spend."""

    epsilon: Number = None
    guarantee: Annotated[
        str | None,
        Meta(description="`secure-average (not DP)`: no noise, if the card allows it."),
    ] = None
    sql: Sql | None = None
    question: QueryShape = None
    delta: Number = None
    max_groups: Count | None = None
    max_rows: Count | None = None
    lesson: Annotated[Any, Meta(description="The training task, instead of a query.")] = None

    def __post_init__(self) -> None:
        """Read the exact numbers; refuse a request without exactly one query or training task."""
        super().__post_init__()
        if [self.sql, self.question, self.lesson].count(None) != 2:
            raise self.malformed("it needs one of sql, question and lesson")


class JoinSum(PriceSum, frozen=True, kw_only=True):
    """A request to join a secure-sum round: the query or task, and the state of a training run."""

    message: Message
    number: Annotated[Count | None, Meta(description="The round of the training.")] = None
    told: Told | None = None
    weights: Annotated[
        str | None,
        letters(400_000, "The model at the start of the round, in base64."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse malformed weights, metrics and payments, even if the sum is no training round."""
        super().__post_init__()
        _ = self.model, self.measures, self.payments

    @property
    def round_number(self) -> int:
        """Return the number of the training round, or 0 if none is given."""
        return self.number or 0

    @property
    def model(self) -> bytes:
        """Return the model's weights at the start of the round; empty if none are given."""
        return b"" if self.weights is None else bytes_of(self.weights, "weights")

    @property
    def measures(self) -> tuple[tuple[str, float], ...]:
        """Return the loss and the accuracy on public rows that the convener reports."""
        if self.told is None:
            return ()
        reported = {"loss": self.told.loss, "accuracy": self.told.accuracy}
        return _numbers({name: one for name, one in reported.items() if one is not None})

    @property
    def payments(self) -> tuple[tuple[str, float], ...]:
        """Return the epsilon that each site has paid, as the convener reports it."""
        return () if self.told is None else _numbers(self.told.paid)


class NextStage(OfDataSet, frozen=True, kw_only=True):
    """The convener's message to a site for one stage of a secure-sum round that the site joined."""

    round: Name
    stage: Literal["share", "mask", "agree", "reveal"]
    message: Message


class ShowSum(PriceSum, frozen=True, kw_only=True):
    """A finished sum over sites, which the site formats as a table of the query's answer."""

    total: list[int]
    sites: Count


class TensorCall(Request, frozen=True, kw_only=True):
    """One message, whole or in part, to the tensors that a site keeps for the caller's token."""

    session: Session
    number: Annotated[int, Meta(ge=1, le=1 << 53)]
    message: Message
    more: Annotated[bool, Meta(description="Whether the message continues.")] = False


class TensorTable(OfDataSet, frozen=True, kw_only=True):
    """A data set whose declared shape the tensors of the caller's sign-in token may use."""

    session: Session
    number: Annotated[int, Meta(ge=1, le=1 << 53)]


class SiteKey(Reply):
    """The public key of this site."""

    key: Key


class Agreement(Reply):
    """An agreement between sites: their keys, the floor and the colluders."""

    name: FederationName
    sites: dict[str, Key]
    floor: int
    colluders: int


class Federations(Reply):
    """The federations in which a data set takes part."""

    federations: list[Agreement]


class Lessons(Reply):
    """The progress of training runs over sites."""

    lessons: list[dict[str, Any]]
    state: Name


class SumPrice(Reply):
    """The price of a sum over sites, and its noise."""

    about: Name
    size: int
    bits: int


class JoinedRound(Reply):
    """A site's reply when it joins a round: its keys for this round."""

    round: Name
    message: Message


class SiteMessage(Reply):
    """A site's message to the convener for a stage of a round, or a reply of its tensor process."""

    message: Message


def _numbers(reported: Mapping[str, object]) -> tuple[tuple[str, float], ...]:
    read = {name: _number(one) for name, one in reported.items()}
    numbers = tuple((name, one) for name, one in read.items() if one is not None)
    if len(numbers) < len(reported):
        raise Request.malformed("what is told has to be numbers from 0 to 10,000,000,000")
    return numbers


def _number(one: object) -> float | None:
    """Convert a message's number to a float; return None unless it is from 0 to 10**10 (_MOST)."""
    if isinstance(one, bool) or not isinstance(one, int | float | Decimal):
        return None
    try:
        number = float(one)
    except (OverflowError, ValueError):
        return None
    return number if 0 <= number <= _MOST else None


def bytes_of(text: str, name: str = "message") -> bytes:
    """Decode base64; refuse malformed text."""
    found = None
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = None
    if found is None:
        raise Request.malformed(f"{name} has to be bytes in base64")
    return found
