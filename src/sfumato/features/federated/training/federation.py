"""Train one model over several sites in this process; only noisy sums leave the sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.accounting.renyi import ORDERS
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum, noisy_sum_for
from sfumato.dp.secure_aggregation.round_terms import Member, Trust, terms_for
from sfumato.dp.secure_aggregation.stochastic_rounding import CLIPS, MAX_STEPS, PeopleGrid
from sfumato.features.federated.number_checks import count, number
from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.tensors.virtual_worker import VirtualWorker
from sfumato.features.federated.training.layers import words_of
from sfumato.features.federated.training.training_site import SiteLimits, SiteTask, sum_words
from sfumato.system.randomness import SystemRandomSource

STAGES: Final = ("join", "share", "mask", "agree", "reveal")
# grid steps per clip: with them, rounding adds an eighth to the sensitivity
STEPS_OF_ROOT: Final = 16
KEY_BYTES: Final = 32
MAX_SITES: Final = 1000
MAX_ROUNDS: Final = 10**6
MAX_RATE: Final = 1e6
MAX_EPSILON: Final = 1000
MAX_DELTA: Final = 0.01


@dataclass(frozen=True)
class Round:
    """The result of one training round: its number, and the sites whose updates are in its sum."""

    number: int
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Federation:
    """Training sites in this process, which know each other's keys, and their convener.

    `federate` makes a federation.
    """

    workers: Mapping[str, VirtualWorker]
    convener: Ed25519PrivateKey
    floor: int
    colluders: int
    neighbours: int
    epsilon: Fraction
    delta: Fraction
    people: int
    dice: RandomSource

    def train(  # noqa: PLR0913  # a training task and its privacy
        self,
        model: Any,
        *,
        data: str,
        target: str,
        rounds: int = 1,
        rate: float = 0.1,
        clip: float = 1.0,
        loss: str = "mse",
        heard: Callable[[Round], None] | None = None,
    ) -> Any:
        """Train the model in place by DP-SGD over the sites, and return it.

        The privacy unit is a row, with gradient norm clipped to `clip`. Each step divides the sum
        by the greatest number of people that its sites may have.

        The noise is the least with which the epsilon and delta of all rounds fit the sites'
        budgets.
        """
        lesson = SiteTask(words_of(model), data, target, loss)
        step = float(number("rate", rate, 0, MAX_RATE))
        plan = self.plan(sum(p.numel() for p in model.parameters()), rounds, clip)
        for turn in range(1, rounds + 1):
            total, sites = self._sum(model, lesson, plan, turn)
            _add(model, plan.grid.numbers(total) * (step / (len(sites) * self.people)))
            if heard is not None:
                heard(Round(turn, sites))
        return model

    def plan(self, size: int, rounds: int, clip: float) -> NoisySum:
        """Return grid and noise of the sum in each round; all rounds together use up the budget."""
        if size == 0:
            raise malformed("the model has no parameters to train")
        steps = STEPS_OF_ROOT * (math.isqrt(size - 1) + 1)
        most = count("people", self.people, 1, MAX_STEPS // steps)
        grid = PeopleGrid(number("clip", clip, *map(float, CLIPS)), steps, size, most)
        return noisy_sum_for(
            grid,
            sites=len(self.workers),
            floor=self.floor,
            colluders=self.colluders,
            epsilon=self.epsilon,
            delta=self.delta * Fraction(99, 100) / len(ORDERS),  # as in TrainingSite._cost
            rounds=count("rounds", rounds, 1, MAX_ROUNDS),
            moves=1,
        )

    def spent(self) -> dict[str, float]:
        """Return the epsilon that each site has charged, at its own delta."""
        said = {n: w.ask(do="train", stage="spent", said={}) for n, w in self.workers.items()}
        return {name: float(Fraction(spent)) for name, spent in said.items()}

    def _sum(
        self, model: Any, lesson: SiteTask, plan: NoisySum, turn: int
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Run secure-aggregation round `turn`; return the noisy sum and the sites in it."""
        collector = self._collector(plan, turn)
        weights = [parameter.detach() for parameter in model.parameters()]
        task = {"sum": sum_words(plan), "lesson": lesson.words(), "weights": weights}
        box: Mapping[str, bytes] = dict.fromkeys(self.workers, collector.invitation())
        for stage in STAGES:
            refusals = self._stage(collector, stage, box, task if stage == "mask" else {})
            if len(refusals) > len(self.workers) - self.floor:
                raise refusals[0]  # raise the cause, not "too few sites"
            box = collector.close()
        return collector.total(), collector.survivors

    def _stage(
        self, collector: Collector, stage: str, box: Mapping[str, bytes], task: dict[str, Any]
    ) -> list[Refused]:
        """Send every site its message of a stage; return the refusals of sites that drop out.

        The collector takes the replies of the other sites.
        """
        refusals = []
        for name, message in box.items():
            try:
                said = {"message": message, **task}
                collector.take(self.workers[name].ask(do="train", stage=stage, said=said))
            except Refused as refusal:
                refusals.append(refusal)
        return refusals

    def _collector(self, plan: NoisySum, turn: int) -> Collector:
        keys = {n: w.ask(do="train", stage="identity", said={}) for n, w in self.workers.items()}
        terms = terms_for(
            [Member(name, key) for name, key in keys.items()],
            nonce=self.dice.draw(KEY_BYTES),
            size=plan.grid.size,
            bits=plan.bits,
            floor=self.floor,
            colluders=self.colluders,
            neighbours=self.neighbours,
            about=f"round {turn}",
        )
        return Collector(terms, self.convener)


def federate(  # noqa: PLR0913  # the facts of a card
    tables: Mapping[str, Mapping[str, torch.Tensor]],
    *,
    epsilon: float | str,
    delta: float | str,
    people: int,
    floor: int | None = None,
    colluders: int = 0,
    neighbours: int | None = None,
) -> Federation:
    """Create a federation of workers in this process, each with its own tables.

    The privacy unit is a row. `people` is a public upper bound on the rows of any site. Each worker
    shares masks with `neighbours` others (an even number); None means all others. This is for
    learning and testing: the workers follow the rules of sites, but share this process's memory.
    """
    dice = SystemRandomSource()
    names = sorted(tables)
    if len(names) == 2:
        raise malformed(
            "two sites cannot hide their sums from each other, because each can subtract its "
            "own; use at least three sites"
        )
    count("the number of sites", len(names), 3, MAX_SITES)
    count("colluders", colluders, 0, len(names) - 2)
    keys = {n: Ed25519PrivateKey.from_private_bytes(dice.draw(KEY_BYTES)) for n in names}
    convener = Ed25519PrivateKey.from_private_bytes(dice.draw(KEY_BYTES))
    known = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    least = max(-(-2 * len(names) // 3), (len(names) + colluders) // 2 + 1, colluders + 2)
    least = least if floor is None else count("floor", floor, colluders + 2, len(names))
    count("people", people, 1, MAX_STEPS)
    everyone = len(names) - 1
    near = everyone if neighbours is None else count("neighbours", neighbours, 2, everyone)
    trust = Trust(convener.public_key().public_bytes_raw(), known, least, colluders, near)
    price = (
        number("epsilon", epsilon, 1e-6, MAX_EPSILON),
        number("delta", delta, 1e-30, MAX_DELTA),
    )
    workers = {
        name: VirtualWorker(
            name,
            tables=tables[name],
            offer=SiteLimits(name, keys[name], trust, *price, people, dice),
        )
        for name in names
    }
    return Federation(workers, convener, least, colluders, near, *price, people, dice)


def _add(model: Any, update: np.ndarray) -> None:
    """Add a flat array of changes to the model's parameters, one parameter after the other."""
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            part = update[start : start + parameter.numel()].reshape(tuple(parameter.shape))
            parameter.add_(torch.tensor(part, dtype=parameter.dtype))
            start += parameter.numel()
