"""The port of training on a prepared table: columns, scales and network of one round; no rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.dp.learning.input_layers import InputLayers
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.learning.training_task import CLASSES
from sfumato.dp.ports import IntegerArray
from sfumato.vault.sealed import Sealed

# Upper estimates of time, in seconds, for `LearnOrder.row_s`:
_NUMBER_S: Final = 3e-9  # per parameter, forward and backward
_OWN_NUMBER_S: Final = 60e-9  # per parameter of a person's own model, in each local step
_WIDTH_S: Final = 100e-9  # per unit of a layer, and per fetched column


@dataclass(frozen=True)
class Field:
    """A stored column for training, and its smallest and largest stored value."""

    column: str  # stored name of the column: v3, or k3 for the code of a declared key
    lower: int
    upper: int


@dataclass(frozen=True)
class LearnOrder:
    """An order to run one training round at one site.

    The round uses only the first `max_rows` rows of each person.
    """

    table: str  # the prepared table
    features: tuple[Field, ...]
    target: Field
    loss: str
    hidden: tuple[int, ...]
    activation: str
    weights: bytes  # the model's weights, in the wire format
    max_rows: int | None  # None if the privacy unit is a row
    most_rows: int  # most rows of the table by the card; the time limit follows from it
    # norm bound of a row's gradient or a person's update; 0 if the site's update is clipped as a
    # whole
    clip: float = 0.0
    local: int = 0
    rate: float = 0.0
    proximal: float = 0.0
    coins: PoissonSample | None = None  # Poisson subsampling of this round; None: all rows
    front: InputLayers | None = None  # the input layers, before the linear ones

    @property
    def is_of_people(self) -> bool:
        """Say whether each person's rows train a separate model, whose update is clipped."""
        return bool(self.local and self.clip)

    @property
    def row_s(self) -> float:
        """Return an upper estimate, in seconds, of the training time per row on one slow core.

        The estimate depends only on the order, not on the rows.
        """
        outs = self.target.upper - self.target.lower + 1 if self.loss == CLASSES else 1
        width = len(self.features) + sum(self.hidden) + outs
        number_s = _OWN_NUMBER_S if self.is_of_people else _NUMBER_S
        numbers = len(self.weights) // 4
        if self.front is not None:
            numbers, width = numbers + self.front.again, width + self.front.through
        step = number_s * numbers + _WIDTH_S * width
        return step * max(1, self.local)


class LearnEngine(Protocol):
    """An engine that runs training rounds on its rows."""

    def learn(self, order: LearnOrder) -> Sealed[IntegerArray]:
        """Return the sum of clipped gradients, or the site's model update, as whole numbers.

        One unit is 2**-30, so that sums over sites are exact. Every error is raised as
        `EngineStopped`, which reveals nothing about the rows.
        """
        ...
