"""An order to learn from a prepared table: columns, scales and a network; of no row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sfumato.core.ports import IntegerArray
from sfumato.core.sealed import Sealed


@dataclass(frozen=True)
class Field:
    """A column as it is learnt from: where it is stored, and its least and largest value there."""

    column: str  # physical: v3, or k3 for the code of a declared key
    lower: int
    upper: int


@dataclass(frozen=True)
class LearnOrder:
    """One round's work at one site. Of every person the first `max_rows` rows count."""

    table: str  # the prepared table
    features: tuple[Field, ...]
    target: Field
    loss: str
    hidden: tuple[int, ...]
    activation: str
    weights: bytes  # of the model, as they travel
    max_rows: int | None  # None where a row is all there is of a person
    most_rows: int  # that the table may have by the card; what it may take follows from it
    clip: float = 0.0  # of a row's gradient; 0 where a whole update is clipped instead
    local: int = 0
    rate: float = 0.0
    proximal: float = 0.0


class LearnEngine(Protocol):
    """Where the rows live that models are trained on."""

    def learn(self, order: LearnOrder) -> Sealed[IntegerArray]:
        """Return the clipped sum of gradients, or the update, in units of 2**-30.

        Whatever goes wrong raises `EngineStopped`, and says nothing of the rows.
        """
        ...
