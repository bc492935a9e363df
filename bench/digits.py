"""Measure how well four sites together recognise digits, by the epsilon that each site pays.

The pictures are the 1,797 digits of scikit-learn. Three quarters are for training and one quarter
for testing, split anew for each seed. The bench computes in one process what the engines and doors
of the sites compute. It leaves out vaults, masks and ledgers, because they change no number.
"central" is one site that has all rows and adds exactly the noise that the same accountant prices.

scikit-learn is installed in a separate environment, and only its file of pictures is read. If it
cannot be installed, the bench uses the synthetic pictures of the tests, and the table says so.
"""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.peers.environments import python_of
from sfumato.dp.learning.integer_network import Numbers
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.mechanisms import skellam
from sfumato.dp.secure_aggregation.dithered_rounding import DitheredGrid
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training.training_rounds import first_weights
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.vault.card.data_card import read_card

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.drawn_digits import FEATURES, TARGET, digits, digits_card
from support.seeded_dice import SeededDice

SITES: Final = 4
SEEDS: Final = 10
EPSILONS: Final = (1, 2, 3, 5, 8)
DELTA: Final = Fraction(1, 10**5)
# Chosen by trying some on splits of other seeds; the pictures are public.
ROUNDS, RATE, CLIP = 80, 8.0, Fraction(1, 2)
WIDE = Fraction(4)  # without noise: a clip longer than any gradient
_INSIDE: Final = "lib/python*/site-packages/sklearn/datasets/data/digits.csv.gz"
_MEMBERS: Final = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))


@dataclass(frozen=True)
class Pictures:
    """Pictures to learn from, and others to look at: inks from 0 to 1, and digits."""

    rows: Numbers
    target: Numbers
    test_rows: Numbers
    test_target: Numbers


def run(seeds: int = SEEDS) -> list[dict[str, object]]:
    """Return a line for each price: mean accuracies over the seeds, in percent."""
    inks, shown, where = read_pictures()
    parts = [split(inks, shown, seed) for seed in range(seeds)]
    calm = [(pooled(one, seed), learnt(one, plan_for(one, 3, WIDE, 4), SITES, seed, noisy=False))
            for seed, one in enumerate(parts)]  # fmt: skip
    alone, together = np.mean(calm, axis=0)
    lines = []
    for epsilon in EPSILONS:
        found = [_at(one, epsilon, seed) for seed, one in enumerate(parts)]
        means = np.mean(found, axis=0)
        spread = np.std(np.subtract(*np.transpose(found)[[0, 2]]), ddof=1) / np.sqrt(seeds)
        lines.append({
            "pictures": where, "seeds": seeds, "epsilon": epsilon,
            "pooled, no DP": percent(alone), "4 sites, no noise": percent(together),
            "central": percent(means[0]), "4 sites, all must stay": percent(means[1]),
            "4 sites, one may drop out": percent(means[2]),
            "points below central": percent(means[0] - means[2]),
            "give or take": percent(float(spread)),
        })  # fmt: skip
    return lines


def _at(pictures: Pictures, epsilon: int, seed: int) -> tuple[float, float, float]:
    whole, floor = (plan_for(pictures, epsilon, CLIP, least) for least in (4, 3))
    return (
        learnt(pictures, whole, 1, seed),
        learnt(pictures, whole, SITES, seed),
        learnt(pictures, floor, SITES, seed),
    )


def learnt(
    pictures: Pictures, plan: TrainPlan, sites: int, seed: int, *, noisy: bool = True
) -> float:
    """Return the accuracy after a lesson of so many sites, each with its rows and its noise."""
    dice, network, grid = SeededDice(seed), plan.network, plan.sum.grid
    assert isinstance(grid, DitheredGrid)
    share = plan.sum.variance if sites == 1 else plan.sum.share
    flat, people = first_weights(network, plan.lesson.name), len(pictures.rows)
    for _ in range(plan.lesson.rounds):
        total = np.zeros(network.size, dtype=np.int64)
        for place in range(sites):
            own = slice(place, None, sites)
            rows, target = pictures.rows[own], pictures.target[own]
            part = network.clipped_sum(network.weights(flat), rows, target, plan.row_clip)
            total += grid.rounded(-part, dice)
            if noisy:
                total += skellam.sample(share, network.size, dice)
        flat = flat + grid.numbers(total) * (RATE / people)
    said = network.says(network.weights(flat), pictures.test_rows)
    return float((said.argmax(axis=1) == pictures.test_target).mean())


def pooled(pictures: Pictures, seed: int) -> float:
    """Return the accuracy of plain descent on all rows at once: floats, no clip, no grid."""
    plan = plan_for(pictures, 3, WIDE, 4)
    rows, target = pictures.rows, pictures.target
    wanted = np.arange(10) == target[:, None]
    flat = first_weights(plan.network, plan.lesson.name)
    matrix, bias = flat[:640].reshape(10, 64).copy(), flat[640:].copy()
    for _ in range(ROUNDS):
        said = rows @ matrix.T + bias
        grown = np.exp(said - said.max(axis=1, keepdims=True))
        off = (grown / grown.sum(axis=1, keepdims=True) - wanted) * (RATE / len(rows))
        matrix, bias = matrix - off.T @ rows, bias - off.sum(axis=0)
    said = pictures.test_rows @ matrix.T + bias
    return float((said.argmax(axis=1) == pictures.test_target).mean())


def plan_for(pictures: Pictures, epsilon: int, clip: Fraction, floor: int) -> TrainPlan:
    """Return the lesson at that price, of so many sites at least, as each site plans it."""
    shape: dict[str, Any] = digits_card("people", len(pictures.rows))
    shape["budget"] = {"epsilon": Fraction(1000), "delta": Fraction(1, 1000)}
    lesson = read_training_task({"name": "ab" * 32, "features": list(FEATURES), "target": TARGET,
                          "rounds": ROUNDS, "clip": clip})  # fmt: skip
    agreement = Agreement("digits", bytes(32), _MEMBERS, floor, 1)
    return plan_training(read_card("digits", shape), lesson, agreement, Fraction(epsilon), DELTA)


def read_pictures() -> tuple[Numbers, Numbers, str]:
    """Return inks from 0 to 1, the digits that they show, and whose pictures they are."""
    python = python_of("digits")
    found = [] if python is None else sorted(python.parents[1].glob(_INSIDE))
    if found:
        with gzip.open(found[0], "rt") as file:
            table = np.loadtxt(file, delimiter=",")
        return table[:, :-1] / 16, table[:, -1], "scikit-learn's digits"
    rows = list(digits(1797, "bench"))
    inks = np.array([[row[name] for name in FEATURES] for row in rows], dtype=np.float64) / 16
    return inks, np.array([row[TARGET] for row in rows], dtype=np.float64), "made up"


def split(inks: Numbers, shown: Numbers, seed: int) -> Pictures:
    """Return three quarters of the pictures to learn from, and the others."""
    order = np.random.default_rng(seed).permutation(len(inks))
    learn, look = np.split(order, [len(inks) * 3 // 4])
    return Pictures(inks[learn], shown[learn], inks[look], shown[look])


def percent(share: float) -> str:
    """Return a share in percent, to a tenth."""
    return f"{round(100 * share, 1) + 0.0:.1f}"  # no minus before a zero
