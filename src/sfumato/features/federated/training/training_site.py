"""A training site in this process: the owner's limits, the price of each round, the masked update.

Only this site's masked update leaves, with its share of the noise. The price is charged before a
row is read. Charges are kept in memory here. A site over HTTP keeps them in its vault's ledger
(features/federated/training_release.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.accounting.renyi import ORDERS, epsilon_with_failures
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import Trust
from sfumato.dp.secure_aggregation.stochastic_rounding import PeopleGrid
from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.training.clipped_gradients import clipped_steps
from sfumato.features.federated.training.layers import made_of

LOSSES: Final = ("cross_entropy", "mse")
MAX_LAYERS: Final = 100
MAX_DIGITS: Final = 700


@dataclass(frozen=True)
class SiteLimits:
    """A training site's name, key, trusted partners, and its owner's cap on epsilon and delta.

    The privacy unit is a row. `people` is a public upper bound on the rows of a table.
    """

    name: str
    identity: Ed25519PrivateKey
    trust: Trust
    epsilon: Fraction
    delta: Fraction
    people: int
    dice: RandomSource


@dataclass(frozen=True)
class SiteTask:
    """A training task: the layers, the names of the input and target tables, and the loss."""

    layers: tuple[tuple[Any, ...], ...]  # Any: a layer's name and sizes
    data: str
    target: str
    loss: str

    def words(self) -> dict[str, Any]:
        """Return the task's fields as a dictionary, for a message."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class TrainingSite:
    """One training site in this process: its tables, its charges and its current round."""

    def __init__(self, tables: Mapping[str, torch.Tensor], offer: SiteLimits) -> None:
        if any(held.dim() == 0 or len(held) > offer.people for held in tables.values()):
            raise malformed("a table has more rows than its owner declared")
        if len({len(held) for held in tables.values()}) > 1:
            raise malformed("the tables of a site have different numbers of rows")
        self._tables = {name: held.detach().clone() for name, held in tables.items()}
        self._offer = offer
        self._used: set[bytes] = set()
        self._charged: list[NoisySum] = []
        self._player = self._player_for()

    def _player_for(self) -> Participant:
        offer = self._offer
        return Participant(offer.name, offer.identity, offer.trust, offer.dice, self._used)

    def do(self, stage: str, said: dict[str, Any]) -> Any:
        """Return this site's public key, spent epsilon, or message for a stage of a round."""
        match stage, said:
            case "identity", {}:
                return self._offer.identity.public_key().public_bytes_raw()
            case "spent", {}:
                return str(self._cost(self._charged))
            case "join", {"message": bytes(message)}:
                self._player = self._player_for()
                return self._player.join(message)
            case (("share" | "agree" | "reveal"), {"message": bytes(message)}):
                return getattr(self._player, stage)(message)
            case "mask", {"message": bytes(message), "sum": dict(words), "lesson": dict(lesson),
                          "weights": list(weights)}:  # fmt: skip
                return self._mask(message, _sum_of(words), _lesson_of(lesson), weights)
        raise malformed("a round has no such stage")

    def _mask(self, message: bytes, plan: NoisySum, lesson: SiteTask, weights: list[Any]) -> bytes:
        model = _model(lesson, weights)
        self._check(plan, lesson, model)
        self._charge(plan)
        update = self._sum(model, plan, lesson)
        return self._player.mask(message, plan.noisy(update, self._offer.dice))

    def _check(self, plan: NoisySum, lesson: SiteTask, model: torch.nn.Module) -> None:
        """Refuse a round whose sites, floor or size are not those that its price assumes.

        Also refuse a round over tables that this site does not have.
        """
        terms = self._player.terms
        same = (
            plan.sites == len(terms.members)
            and plan.floor == terms.floor
            and plan.colluders == terms.colluders
            and plan.grid.size == terms.size == sum(p.numel() for p in model.parameters())
            and plan.bits <= terms.bits
            and isinstance(plan.grid, PeopleGrid)
            and plan.grid.people == self._offer.people
            and plan.moves == 1
        )
        if not same:
            raise malformed("the noise does not belong to the round that was joined")
        if {lesson.data, lesson.target} - self._tables.keys():
            raise malformed("it has no such tables")

    def _charge(self, plan: NoisySum) -> None:
        """Charge a round, or refuse it if the total would exceed the owner's cap on epsilon.

        The cap covers all rounds together, also if each is chosen after the last one.
        """
        cost = self._cost([*self._charged, plan])
        if cost is None or cost > self._offer.epsilon:
            said = "an unbounded epsilon, because its delta is used up"
            said = said if cost is None else f"epsilon {float(cost):.4g}"
            raise Refused(
                "budget-exceeded",
                f"With this round, the site would spend {said} in all. Its owner allows "
                f"{float(self._offer.epsilon):.4g}.",
                "Stop the training here, or ask the site's owner to allow a larger epsilon.",
            )
        self._charged.append(plan)

    def _cost(self, plans: list[NoisySum]) -> Fraction | None:
        """Return the epsilon of these rounds together, or None if delta can't cover their failures.

        A failure is an overflow of a round's noise. Each Rényi order gets its own share of delta. A
        privacy filter at a fixed order holds for adaptively chosen rounds, and the order is chosen
        afterwards (soundness rule 3).
        """
        if not plans:
            return Fraction(0)
        failure = sum((plan.failure for plan in plans), Fraction(0))
        rounds = Counter(plans)
        return epsilon_with_failures(
            lambda order: sum((n * p.renyi(order) for p, n in rounds.items()), Fraction(0)),
            self._offer.delta,
            failure,
            len(ORDERS),
        )

    def _sum(self, model: torch.nn.Module, plan: NoisySum, lesson: SiteTask) -> np.ndarray:
        """Return the model's update: minus the sum of the rows' clipped gradients.

        The sum is exact, in whole grid steps. So one person changes it by at most the sensitivity
        that the price assumes, for any weights.
        """
        data, target, grid = self._tables[lesson.data], self._tables[lesson.target], plan.grid
        if not isinstance(grid, PeopleGrid):
            raise Bug("a site can only train on a sum over people")
        try:
            return -grid.numbers(clipped_steps(model, data, target, lesson.loss, grid))
        # only shapes can raise these, not values
        except (RuntimeError, IndexError, ValueError) as wrong:
            said = type(wrong).__name__
        raise malformed(f"the rows and the layers do not match ({said})")


def _lesson_of(words: dict[str, Any]) -> SiteTask:
    match words:
        case {"layers": tuple(layers), "data": str(data), "target": str(target),
              "loss": str(loss)}:  # fmt: skip
            if loss in LOSSES:
                return SiteTask(layers, data, target, loss)
    raise malformed("a training task is of an unknown kind")


def _model(lesson: SiteTask, weights: list[Any]) -> torch.nn.Module:
    """Build the model of a training task, and fill it with the weights that the round starts from.

    Weights that do not match the layers are refused before memory is allocated.
    """
    if len(lesson.layers) > MAX_LAYERS:
        raise malformed("a model has too many layers")
    with torch.device("meta"):  # compare the shapes before any memory is allocated
        sizes = [tuple(p.shape) for p in made_of(lesson.layers).parameters()]
    if sizes != [tuple(getattr(w, "shape", ())) for w in weights]:
        raise malformed("the weights do not match the layers")
    model = made_of(lesson.layers)
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.copy_(weight)
    return model


def sum_words(plan: NoisySum) -> dict[str, Any]:
    """Return the parameters of a round's noisy sum as a dictionary, for a message."""
    return {
        "clip": str(plan.grid.clip),
        "steps": plan.grid.steps,
        "size": plan.grid.size,
        "sites": plan.sites,
        "floor": plan.floor,
        "colluders": plan.colluders,
        "variance": str(plan.variance),
        "failure": str(plan.failure),
        "moves": plan.moves,
        "people": plan.grid.people if isinstance(plan.grid, PeopleGrid) else 0,
    }


def _sum_of(words: dict[str, Any]) -> NoisySum:
    match words:
        case {"clip": str(clip), "steps": int(steps), "size": int(size), "sites": int(sites),
              "floor": int(floor), "colluders": int(colluders), "variance": str(variance),
              "failure": str(failure), "moves": int(moves), "people": int(people)}:  # fmt: skip
            numbers = _fraction(variance), _fraction(failure)
            try:
                grid = PeopleGrid(_fraction(clip), steps, size, people)
                return NoisySum(grid, sites, floor, colluders, *numbers, moves)
            except Bug as wrong:  # the sender's settings are wrong, so this is no bug of ours
                raise malformed("the settings of a sum are not valid") from wrong
    raise malformed("the settings of a sum are not valid")


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    digits = (above, below or "1")
    # no exponents: "1e9999999" is a short text for a number that takes minutes to compute with
    if not all(part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS for part in digits):
        raise malformed("a number must be one fraction of whole numbers")
    if int(digits[1]) == 0:
        raise malformed("a number must be one fraction of whole numbers")
    return Fraction(int(above), int(digits[1]))
