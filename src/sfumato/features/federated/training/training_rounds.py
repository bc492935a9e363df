"""Training over sites by DP-SGD, or by DP-FedAvg if each site takes local steps.

Each round returns a noisy sum of clipped gradients or updates, and the model is updated by it. The
convener learns only that sum. Learning rate, momentum and averaging are post-processing. Needs no
PyTorch.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256, shake_256
from typing import Any, Final

import numpy as np

from sfumato.dp.learning.input_layers import read_input_layers_spec
from sfumato.dp.learning.integer_network import Network, Numbers
from sfumato.dp.learning.training_task import CLASSES, MIN_SAMPLE, SITE
from sfumato.dp.refusal import Refused
from sfumato.features.federated.convener import Convener, Round
from sfumato.features.federated.number_checks import count, number
from sfumato.features.federated.site_replies import Json, is_number, majority_reply
from sfumato.features.federated.training.trained_model import (
    Scale,
    TrainedModel,
    scale_json,
    scale_of,
)

NAME_BYTES: Final = 32
PATIENCE: Final = 3  # training stops after so many failed rounds in a row
MOST: Final = 32.0
MAX_RATE: Final = 10**6
MAX_PEOPLE: Final = 10**12
MAX_PAID: Final = 10**10  # largest epsilon that a site records for another site
WORDS: Final = (
    "against",
    "says",
    "bounding",
    "mechanism",
)  # the keys of a site's price that the model's card copies


@dataclass(frozen=True)
class TrainingSettings:
    """The convener's settings of a training run: data, network, budget, clipping and optimiser."""

    data_set: str
    features: Sequence[str]
    target: str
    epsilon: Any  # a number, or its text
    delta: Any
    rounds: int
    people: int  # public estimate over all sites; only a divisor
    hidden: Sequence[int] = ()
    activation: str = "relu"
    loss: str = CLASSES
    clip: Any = 1
    rate: float = 1.0
    momentum: float = 0.9
    max_rows: int = 1
    local: int = 0
    local_rate: Any = 0
    proximal: Any = 0
    weights: Mapping[str, Any] = field(default_factory=dict)
    each: str = SITE  # or "person": whose local update is clipped
    sample: Any = 1  # the sampling rate; below 1, sites draw Poisson samples
    public: Sequence[Mapping[str, Any]] = ()  # public rows for metrics, which the sites receive
    image: Sequence[int] = ()  # channels, height, width; the first features are its pixels
    conv: Sequence[Mapping[str, int]] = ()  # convolutions over the image, in order
    embed: Mapping[str, int] = field(default_factory=dict)  # embedded columns and their widths

    def lesson(self, name: str) -> Json:
        """Return the settings that every site signs, as the training task named `name`."""
        return {
            "name": name,
            "features": list(self.features),
            "target": self.target,
            "hidden": list(self.hidden),
            "activation": self.activation,
            "loss": self.loss,
            "rounds": self.rounds,
            "clip": self.clip,
            "local": self.local,
            "rate": self.local_rate,
            "proximal": self.proximal,
            "max_rows": self.max_rows,
            "weights": dict(self.weights),
            **({} if self.each == SITE else {"each": self.each}),
            **({} if self.sample == 1 else {"sample": self.sample}),
            **self.opening(),
        }

    def opening(self) -> Json:
        """Return the settings of the network's first layers: convolutions and embeddings.

        The result is empty if there are none.
        """
        said: Json = {}
        if self.image or self.conv:
            said |= {"image": _listed(self.image), "conv": _listed(self.conv)}
        if self.embed:
            said["embed"] = dict(self.embed)
        return said


def _listed(found: Any) -> Any:  # Any: user input; a site refuses anything but a list
    return list(found) if isinstance(found, tuple) else found


@dataclass(frozen=True)
class Step:
    """The result of one round: sites in the sum, sites left out, the model, and any failure.

    A caller of `train` hears one after every round.
    """

    number: int
    sites: tuple[str, ...]
    left_out: Mapping[str, str]
    model: TrainedModel
    failed: Refused | None = None


def train(
    convener: Convener, course: TrainingSettings, heard: Callable[[Step], None] = lambda _: None
) -> TrainedModel:
    """Train a model over the sites; return it after the last round that had a sum.

    Each site is charged for the whole training run in the first round that it joins. If no round
    has had a sum, the failure is raised.
    """
    _check_numbers(course)
    name = convener.dice.draw(NAME_BYTES).hex()
    body = {
        "data_set": course.data_set,
        "federation": convener.agreement.name,
        "lesson": course.lesson(name),
        "epsilon": course.epsilon,
        "delta": course.delta,
    }
    priced, gone = convener.priced(body, _is_of_lesson)
    unit = _unit(priced)
    network, scales = _network(convener, course)
    pupil = _Pupil(convener, course, network, scales, first_weights(network, name), priced)
    _check_public(pupil.model(None), course.public)
    failed: Refused | None = None
    for place in range(1, course.rounds + 1):
        failed = pupil.learn(body, priced, gone, unit, place)
        heard(pupil.step(place, failed))
        if failed is not None and (pupil.done == 0 or pupil.failures >= PATIENCE):
            break
    if pupil.done == 0 and failed is not None:
        raise failed
    return pupil.model(failed)


def _check_numbers(course: TrainingSettings) -> None:
    """Refuse a learning rate, momentum, number of people or sampling rate out of range.

    Such settings would waste the sites' budget on a useless model.
    """
    number("rate", course.rate, 0, MAX_RATE)
    number("momentum", course.momentum, 0, 1)
    count("people", course.people, 1, MAX_PEOPLE)
    number("sample", course.sample, float(MIN_SAMPLE), 1)


def _check_public(model: TrainedModel, public: Sequence[Mapping[str, Any]]) -> None:
    """Refuse public rows that the model cannot be evaluated on, before any site is charged."""
    if not public:
        return
    try:
        told_of(model, public)
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        fault = f"{type(wrong).__name__}: {wrong}"[:200]
    else:
        return
    raise Refused(
        "bad-request",
        f"The model cannot be evaluated on the public rows ({fault}).",
        "Give every feature of every row as a number, and the target as on the data card.",
    )


@dataclass
class _Pupil:
    """The state of a training run: the model's weights, the momentum, and the sites' receipts.

    Each round changes it, so that the next round begins with the updated weights.
    """

    convener: Convener
    course: TrainingSettings
    network: Network
    scales: tuple[Scale, ...]
    flat: Numbers
    priced: Mapping[str, Json]
    moving: Any = 0.0  # the momentum: an array after the first round
    done: int = 0
    failures: int = 0
    last: Round | None = None
    receipts: dict[str, Json] = field(default_factory=dict)
    informed: set[str] = field(default_factory=set)  # sites that have received all these receipts

    def learn(
        self,
        body: Json,
        priced: Mapping[str, Json],
        gone: Mapping[str, Refused],
        unit: float,
        number: int,
    ) -> Refused | None:
        """Run one round, and update the model.

        Return the refusal if the round has no sum, else None.
        """
        sent = self.flat.astype("<f4").tobytes()
        about = f"{next(iter(priced.values()))['about']} {number} {sha256(sent).hexdigest()}"
        asked = {**body, "number": number, "weights": base64.b64encode(sent).decode("ascii")}
        told = self._told()
        if told:
            asked["told"] = told
        try:
            self.last = self.convener.run_round(asked, priced, gone, about)
        except Refused as refused:
            self.failures += 1
            return refused
        self.failures, self.done = 0, self.done + 1
        if "paid" in told:
            self.informed |= set(self.last.collector.survivors)
        if self.last.receipts.keys() - self.receipts.keys():
            self.informed = set()
        self.receipts = {**self.last.receipts, **self.receipts}
        self._move(
            np.asarray(self.last.collector.total() * unit, dtype=np.float64),
            self.last.collector.survivors,
        )
        return None

    def _told(self) -> Json:
        """Return the convener's report for the sites' owners: metrics on public rows, and payments.

        Payments are included only if a site of the last round lacks them, because every report
        stays in the ledgers permanently.
        """
        told = told_of(self.model(None), self.course.public) if self.course.public else {}
        last = () if self.last is None else self.last.collector.survivors
        paid = {} if self.informed >= set(last) else paid_by(self.receipts)
        return {**told, "paid": paid} if paid else told

    def _move(self, total: Numbers, survivors: tuple[str, ...]) -> None:
        course = self.course
        if course.local and course.each == SITE:
            whole = sum(float(course.weights.get(site, 1)) for site in survivors)
            step = total / whole
        else:
            step = total * (course.rate / (course.people * float(course.sample)))
        self.moving = course.momentum * self.moving + step
        moved = np.clip(self.flat + self.moving, -MOST, MOST)
        self.flat = moved.astype("<f4").astype(np.float64)

    def step(self, number: int, failed: Refused | None) -> Step:
        """Return the result of a round: its number, sites, model and any failure."""
        sites = self.last.collector.survivors if self.last and failed is None else ()
        out = (
            {}
            if self.last is None or failed is not None
            else {n: one.code for n, one in self.last.gone.items()}
        )
        return Step(number, sites, out, self.model(failed), failed)

    def model(self, stopped: Refused | None) -> TrainedModel:
        """Return the trained model with its card: guarantee, price, settings and payments."""
        said = majority_reply(self.priced, min(self.priced))
        card: Json = {
            "guarantee": "central-dp",
            "epsilon": float(
                self.course.epsilon
            ),  # the requested epsilon, because it is part of the terms that the sites sign
            "delta": float(said["delta"]),
            **{word: said[word] for word in WORDS},
            "federation": self.convener.agreement.name,
            "lesson": _plain(self.course),
            "rounds": self.done,
            "paid": {site: one["epsilon"] for site, one in sorted(self.receipts.items())},
        }
        if stopped is not None:
            card["stopped"] = f"{stopped.code}: {stopped.cause}"
        return TrainedModel(self.network, self.flat, self.scales[:-1], self.scales[-1], card)


def told_of(model: TrainedModel, public: Sequence[Mapping[str, Any]]) -> Json:
    """Return a released model's loss on public rows, and its accuracy if it classifies."""
    told: Json = {"loss": float(model.loss(public))}
    if model.network.loss == CLASSES:
        told["accuracy"] = float(model.accuracy(public))
    return told


def paid_by(receipts: Mapping[str, Json]) -> dict[str, float]:
    """Return the epsilon of each site's receipt; leave out values that other sites would refuse."""
    paid = {site: float(one["epsilon"]) for site, one in sorted(receipts.items())}
    return {site: epsilon for site, epsilon in paid.items() if 0 <= epsilon <= MAX_PAID}


def first_weights(network: Network, name: str) -> Numbers:
    """Return the initial weights: uniform numbers derived from the task's name by SHAKE-256."""
    stream = np.frombuffer(shake_256(name.encode()).digest(4 * network.size), dtype="<u4")
    uniform = stream.astype(np.float64) / 2.0**31 - 1.0
    start = 0
    for rows, columns, biases in network.sides:
        end = start + rows * columns
        beside = rows if biases else 1  # an embedding has a fan-in of 1
        uniform[start:end] *= (6.0 / (columns + beside)) ** 0.5
        start = end + biases
        uniform[end:start] = 0.0
    return uniform.astype("<f4").astype(np.float64)


def _network(convener: Convener, course: TrainingSettings) -> tuple[Network, tuple[Scale, ...]]:
    """Return the network for these settings, and its columns' scales as sites' cards show them."""
    scales = _scales(convener, course)
    target = scales[-1]
    outs = target.entries if course.loss == CLASSES else 1
    counts = [one.entries for one in scales[:-1]]
    front = read_input_layers_spec(course.opening()).front(course.features, counts)
    widths = (len(course.features) if front is None else front.outs, *course.hidden, outs)
    return Network(widths, course.activation, course.loss, front), scales


def _scales(convener: Convener, course: TrainingSettings) -> tuple[Scale, ...]:
    """Return the columns' scales that the largest number of sites' cards show.

    More sites must show them than may collude.
    """
    cards = convener.call_all("card", {"data_set": course.data_set})
    read = [one for card in cards.values() if (one := _scales_in(card, course)) is not None]
    told = Counter(json.dumps([scale_json(scale) for scale in one], default=str) for one in read)
    (found, count), (_, next_most) = (*told.most_common(2), ("", 0), ("", 0))[:2]
    if count <= max(convener.agreement.colluders, next_most):
        raise Refused(
            "sum-not-trusted",
            f"Only {count} sites report the same data card. That many dishonest sites could have "
            "agreed on a false one.",
            "Ask again when more sites can be reached.",
        )
    (chosen, *_) = (
        one for one in read if json.dumps([scale_json(s) for s in one], default=str) == found
    )
    return chosen


def _scales_in(card: Json, course: TrainingSettings) -> tuple[Scale, ...] | None:
    """Return the column scales by one site's card; None if a column is missing or malformed."""
    try:
        known = {str(one["name"]).casefold(): one for one in card["columns"]}
        names = (*course.features, course.target)
        return tuple(scale_of(name, known[name.casefold()]) for name in names)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _is_of_lesson(said: Json) -> bool:
    """Check an untrusted site's price: return True if it has every field that training reads."""
    return (
        is_number(said.get("delta"))
        and is_number(_unit_in(said))
        and all(isinstance(said.get(word), str) for word in WORDS)
    )


def _unit_in(said: Json) -> object:
    match said.get("noise"):
        case [{"unit": unit}, *_]:
            return unit
    return None


def _unit(priced: Mapping[str, Json]) -> float:
    """Return the real number that one integer step of the secure sum is worth.

    The sites state it with their prices. Refuse if they disagree.
    """
    said = {str(_unit_in(one)) for one in priced.values()}
    if len(said) > 1:
        raise Refused(
            "sum-not-trusted",
            "The sites disagree about the rounding step of the secure sum.",
            "Ask the sites' owners whether all run the same version of sfumato.",
        )
    return float(said.pop())


def _plain(course: TrainingSettings) -> Json:
    """Return the training settings as JSON, for the model's card."""
    said = course.lesson("")
    del said["name"]
    more = {"local_rate": course.local_rate, "rate": course.rate}
    whole = {**said, **more, "momentum": course.momentum, "people": course.people}
    return {key: _number(value) for key, value in whole.items()}


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _number(one) for key, one in value.items()}
    return float(value) if isinstance(value, Decimal) else value
