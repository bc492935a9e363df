"""An order to learn from a prepared table: columns, scales and a network; of no row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.dp.learning.input_layers import Front
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.learning.training_task import CLASSES
from sfumato.dp.ports import IntegerArray
from sfumato.vault.sealed import Sealed

_NUMBER_S: Final = 3e-9  # of a model, there and back
_OWN_NUMBER_S: Final = 60e-9  # of a model of a person's own, in each of their steps
_WIDTH_S: Final = 100e-9  # of what goes through a layer, and of what is fetched


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
    # of a row's gradient, or of what a person's own steps come to; 0 where a site's are clipped
    clip: float = 0.0
    local: int = 0
    rate: float = 0.0
    proximal: float = 0.0
    coins: PoissonSample | None = None  # who is in this round; None where everybody is
    front: Front | None = None  # what stands before the linear layers

    @property
    def is_of_people(self) -> bool:
        """Say whether everybody takes steps of their own."""
        return bool(self.local and self.clip)

    @property
    def row_s(self) -> float:
        """Return how long a row takes at most on one slow core; a function of the order alone."""
        outs = self.target.upper - self.target.lower + 1 if self.loss == CLASSES else 1
        width = len(self.features) + sum(self.hidden) + outs
        number_s = _OWN_NUMBER_S if self.is_of_people else _NUMBER_S
        numbers = len(self.weights) // 4
        if self.front is not None:
            numbers, width = numbers + self.front.again, width + self.front.through
        step = number_s * numbers + _WIDTH_S * width
        return step * max(1, self.local)


class LearnEngine(Protocol):
    """Where the rows live that models are trained on."""

    def learn(self, order: LearnOrder) -> Sealed[IntegerArray]:
        """Return the clipped sum of gradients, or the update, in units of 2**-30.

        Whatever goes wrong raises `EngineStopped`, and says nothing of the rows.
        """
        ...
