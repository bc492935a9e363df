"""A model trained over several sites: prediction, metrics, and a file with its guarantee."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from sfumato.dp.learning.integer_network import Network, Numbers
from sfumato.dp.learning.model_file import front_in, model_bytes, read_model
from sfumato.dp.learning.training_task import CLASSES, SQUARES
from sfumato.dp.refusal import Refused

Row = Mapping[str, Any]  # Any: numbers and booleans
_BOUNDS: Final = (("lower", 0.0), ("upper", 1.0), ("step", 1.0))


@dataclass(frozen=True)
class Scale:
    """The public scale of a column, which maps values to 0..1: by bounds, or by ordered keys."""

    name: str
    lower: float = 0.0
    upper: float = 1.0
    step: float = 1.0
    keys: tuple[Any, ...] = ()  # Any: texts, numbers, booleans

    def place(self, value: Any) -> float:
        """Map a value from the bounds to 0..1. Values outside the bounds are clamped."""
        return min(1.0, max(0.0, (float(value) - self.lower) / (self.upper - self.lower)))

    @property
    def entries(self) -> int:
        """Return how many values a column can have: its keys, or all steps between its bounds."""
        return len(self.keys) or round((self.upper - self.lower) / self.step) + 1

    def entry(self, value: Any) -> float:
        """Return the position of a value among the keys, scaled to 0..1.

        Without keys, the result is the same as that of `place`.
        """
        if not self.keys:
            return self.place(value)
        same = [n for n, key in enumerate(self.keys) if key == value or str(key) == str(value)]
        if not same:
            raise ValueError(f"{value!r} is not a key of {self.name!r}")
        return same[0] / max(1, len(self.keys) - 1)

    def keyed(self, place: int) -> Any:
        """Return the value for a class number, which the model predicts: a key, or a number.

        A number is `place` steps above the lower bound.
        """
        if self.keys:
            return self.keys[place]
        value = self.lower + place * self.step
        return int(value) if value.is_integer() else value


@dataclass(frozen=True)
class TrainedModel:
    """A network, the public scales of its columns, and a card with its guarantee and price."""

    network: Network
    flat: Numbers
    features: tuple[Scale, ...]
    target: Scale
    card: Mapping[str, Any]  # Any: JSON

    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Predict the target of each row: a class, or a number."""
        said = self._says(rows)
        if self.network.loss == CLASSES:
            return [self.target.keyed(int(place)) for place in said.argmax(axis=1)]
        span = self.target.upper - self.target.lower
        return [self.target.lower + float(one) * span for one in said[:, 0]]

    foretell = predict  # the name up to version 0.1

    def accuracy(self, rows: Sequence[Row]) -> float:
        """Return the share of rows with a correct class; use public rows, which cost nothing."""
        told = self.predict(rows)
        is_right = [one == row[self.target.name] for one, row in zip(told, rows, strict=True)]
        return sum(is_right) / len(rows)

    def loss(self, rows: Sequence[Row]) -> float:
        """Return the mean loss over public rows: cross entropy, or scaled squared error."""
        said, wanted = self._says(rows), [row[self.target.name] for row in rows]
        if self.network.loss == SQUARES:
            places = np.array([self.target.place(value) for value in wanted])
            return float(np.square(said[:, 0] - places).mean())
        names = [self.target.keyed(place) for place in range(said.shape[1])]
        chosen = [names.index(value) for value in wanted]
        grown = said - said.max(axis=1, keepdims=True)
        logs = grown - np.log(np.exp(grown).sum(axis=1, keepdims=True))
        return float(-logs[np.arange(len(rows)), chosen].mean())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a safetensors file, with its card in the header."""
        said = {
            "card": json.dumps(self.card, sort_keys=True),
            "guarantee": str(self.card["guarantee"]),
            "scales": json.dumps([scale_json(one) for one in (*self.features, self.target)]),
            "activation": self.network.activation,
            "loss": self.network.loss,
        }
        if self.network.front is not None:
            said["front"] = json.dumps(self.network.front.as_json(), sort_keys=True)
        Path(path).write_bytes(model_bytes(self.network.widths, self.flat, said))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model from a file that `save` wrote, or refuse."""
        widths, flat, said = read_model(Path(path).read_bytes())
        model = None
        try:
            scales = [_scale(one) for one in json.loads(said["scales"])]
            front = front_in(said)
            network = Network(widths, said["activation"], said["loss"], front)
            if len(scales) - 1 != (widths[0] if front is None else front.features):
                raise ValueError
            model = cls(network, flat, tuple(scales[:-1]), scales[-1], json.loads(said["card"]))
        except (KeyError, ValueError, TypeError):
            model = None
        if model is None:
            raise Refused(
                "bad-request",
                "The model file has no model card that sfumato wrote.",
                "Give a file that `sfumato federate train --out` wrote.",
            )
        return model

    def _says(self, rows: Sequence[Row]) -> Numbers:
        front = self.network.front
        tables = () if front is None else {table.place for table in front.tables}
        read = [
            one.entry if place in tables else one.place for place, one in enumerate(self.features)
        ]
        pairs = list(zip(self.features, read, strict=True))
        places = [[read(row[one.name]) for one, read in pairs] for row in rows]
        weights = self.network.weights(self.flat)
        return self.network.says(weights, np.array(places).reshape(-1, len(self.features)))


def scale_of(name: str, column: Mapping[str, Any]) -> Scale:
    """Return the public scale of a column: the bounds, step and keys on its data card."""
    if column.get("type") == "boolean":
        return Scale(name, keys=(False, True))
    low, high, step = (_or(column.get(key), given) for key, given in _BOUNDS)
    return Scale(name, low, high, step, tuple(column.get("keys") or ()))


def _or(value: Any, given: float) -> float:
    return given if value is None else float(value)


def _scale(said: list[Any]) -> Scale:
    name, lower, upper, step, keys = said
    return Scale(str(name), float(lower), float(upper), float(step), tuple(keys))


def scale_json(scale: Scale) -> list[Any]:
    """Return a column's scale as a JSON list, for the model file."""
    return [scale.name, scale.lower, scale.upper, scale.step, list(scale.keys)]
