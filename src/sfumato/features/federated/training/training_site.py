"""A site that trains: what its owner offers, what each round costs, and what leaves it.

Nothing leaves but this site's part of a secure sum, with its share of the noise, masked. The price
is charged before a row is looked at. The charges are kept in memory; of a site over HTTP they are
kept in its vault's ledger (features/federated/training_release.py).
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

from sfumato.dp.accounting.renyi import ORDERS, epsilon_beside
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import Trust
from sfumato.dp.secure_aggregation.stochastic_rounding import PeopleGrid
from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.training.clipped_gradients import clipped_steps
from sfumato.features.federated.training.layers import made_of

LOSSES: Final = ("cross_entropy", "mse")
MOST_LAYERS: Final = 100
MOST_DIGITS: Final = 700


@dataclass(frozen=True)
class Offer:
    """What the owner of a site allows: who may convene, with whom, and up to which cap.

    A row is a person; `people` is the most that a table may have, and public.
    """

    name: str
    identity: Ed25519PrivateKey
    trust: Trust
    epsilon: Fraction
    delta: Fraction
    people: int
    dice: Dice


@dataclass(frozen=True)
class Lesson:
    """What a site is to train: layers, the names of the rows and of what they should give."""

    layers: tuple[tuple[Any, ...], ...]  # Any: a name and sizes
    data: str
    target: str
    loss: str

    def words(self) -> dict[str, Any]:
        """Return the lesson as it travels."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Trainee:
    """One site over all rounds; has state: what was charged, and the round it is in."""

    def __init__(self, tables: Mapping[str, torch.Tensor], offer: Offer) -> None:
        if any(held.dim() == 0 or len(held) > offer.people for held in tables.values()):
            raise malformed("a table has more rows than its owner has said")
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
        """Return this site's message of that stage of a round."""
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
        raise malformed("it knows no such stage of a round")

    def _mask(self, message: bytes, plan: NoisySum, lesson: Lesson, weights: list[Any]) -> bytes:
        model = _model(lesson, weights)
        self._check(plan, lesson, model)
        self._charge(plan)
        update = self._sum(model, plan, lesson)
        return self._player.mask(message, plan.noisy(update, self._offer.dice))

    def _check(self, plan: NoisySum, lesson: Lesson, model: torch.nn.Module) -> None:
        """Refuse a round whose terms are not those that the price is of."""
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
            raise malformed("the noise is not for the round that was joined")
        if {lesson.data, lesson.target} - self._tables.keys():
            raise malformed("it has no such tables")

    def _charge(self, plan: NoisySum) -> None:
        """Charge a round, or refuse it; the cap is held over all rounds, chosen one by one."""
        cost = self._cost([*self._charged, plan])
        if cost is None or cost > self._offer.epsilon:
            said = "an epsilon that its delta has no room for"
            said = said if cost is None else f"epsilon {float(cost):.4g}"
            raise Refused(
                "budget-exceeded",
                f"The round would bring the site to {said}, and its owner allows"
                f" {float(self._offer.epsilon):.4g}.",
                "Stop here, or ask the owner for more.",
            )
        self._charged.append(plan)

    def _cost(self, plans: list[NoisySum]) -> Fraction | None:
        """Return the epsilon of rounds whose terms may depend on earlier ones; None if too large.

        So it is where they fail more often than delta allows at that epsilon. Every order has its
        own part of delta: a filter at a fixed order holds for adaptive rounds, and one of several
        orders is chosen afterwards (soundness rule 3).
        """
        if not plans:
            return Fraction(0)
        failure = sum((plan.failure for plan in plans), Fraction(0))
        rounds = Counter(plans)
        return epsilon_beside(
            lambda order: sum((n * p.renyi(order) for p, n in rounds.items()), Fraction(0)),
            self._offer.delta,
            failure,
            len(ORDERS),
        )

    def _sum(self, model: torch.nn.Module, plan: NoisySum, lesson: Lesson) -> np.ndarray:
        """Return minus the sum of the rows' clipped gradients: how they would change the model.

        The sum is of whole steps, exactly, so a person moves it by what the price is of, whatever
        the weights are.
        """
        data, target, grid = self._tables[lesson.data], self._tables[lesson.target], plan.grid
        if not isinstance(grid, PeopleGrid):
            raise Bug("a site trains on a sum over people")
        try:
            return -grid.numbers(clipped_steps(model, data, target, lesson.loss, grid))
        except (RuntimeError, IndexError, ValueError) as wrong:  # of shapes alone
            said = type(wrong).__name__
        raise malformed(f"the rows and the layers do not fit ({said})")


def _lesson_of(words: dict[str, Any]) -> Lesson:
    match words:
        case {"layers": tuple(layers), "data": str(data), "target": str(target),
              "loss": str(loss)}:  # fmt: skip
            if loss in LOSSES:
                return Lesson(layers, data, target, loss)
    raise malformed("a lesson is not one that it knows")


def _model(lesson: Lesson, weights: list[Any]) -> torch.nn.Module:
    """Return the model of the lesson with these weights."""
    if len(lesson.layers) > MOST_LAYERS:
        raise malformed("a model has too many layers")
    with torch.device("meta"):  # no room is taken for layers of which the weights were not sent
        sizes = [tuple(p.shape) for p in made_of(lesson.layers).parameters()]
    if sizes != [tuple(getattr(w, "shape", ())) for w in weights]:
        raise malformed("the weights do not fit the layers")
    model = made_of(lesson.layers)
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.copy_(weight)
    return model


def sum_words(plan: NoisySum) -> dict[str, Any]:
    """Return how the sum is made, as it travels."""
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
            except Bug as wrong:  # of whoever sent it, not ours
                raise malformed("a sum is not made so") from wrong
    raise malformed("a sum is not made so")


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    digits = (above, below or "1")
    # no exponents: "1e9999999" is a short word for a number that takes minutes to work with
    if not all(part.isascii() and part.isdigit() and len(part) <= MOST_DIGITS for part in digits):
        raise malformed("a number is not one fraction of whole numbers")
    if int(digits[1]) == 0:
        raise malformed("a number is not one fraction of whole numbers")
    return Fraction(int(above), int(digits[1]))
