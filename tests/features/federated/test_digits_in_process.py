"""Four sites read digits as well as one that had all of them; noise costs what it has to.

Sites' numbers are those of the engine and of the door's lock, without vaults, masks or ledgers,
which have tests of their own (features/federated/training/test_training_rounds.py,
test_sum_release.py).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from sfumato.dp.learning.integer_network import SUM_BITS, Numbers
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.mechanisms import skellam
from sfumato.dp.secure_aggregation.dithered_rounding import DitheredGrid
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training.training_rounds import first_weights
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.vault.card.data_card import read_card
from support.drawn_digits import FEATURES, TARGET, digits, digits_card
from support.seeded_dice import SeededDice

SITES, TRAINED, TESTED = 4, 1800, 600
MEMBERS = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
DELTA = Fraction(1, 10**5)
RATE, MOMENTUM = 1.0, 0.9
CLIP, WIDE = Fraction(1, 2), Fraction(4)  # wide: longer than any gradient here


@cache
def pictures(count: int, seed: str) -> tuple[Numbers, Numbers]:
    rows = list(digits(count, seed))
    inks = np.array([[row[name] for name in FEATURES] for row in rows], dtype=np.float64) / 16
    return inks, np.array([row[TARGET] for row in rows], dtype=np.float64)


def plan_for(
    epsilon: int, rounds: int, name: str, clip: Fraction = CLIP, floor: int = 4
) -> TrainPlan:
    shape: dict[str, Any] = digits_card("people", TRAINED)
    shape["budget"] = {"epsilon": Fraction(1000), "delta": Fraction(1, 1000)}
    lesson = read_training_task({"name": name, "features": list(FEATURES), "target": TARGET, "hidden": [],  # noqa: E501
                          "rounds": rounds, "clip": clip})  # fmt: skip
    agreement = Agreement("digits", bytes(32), MEMBERS, floor, 1)
    return plan_training(read_card("digits", shape), lesson, agreement, Fraction(epsilon), DELTA)


def learnt(plan: TrainPlan, parts: int, seed: int, *, shares: bool) -> float:
    """The accuracy after a lesson of so many sites, each with a part of the rows and the noise.

    One site alone draws all of the noise that is priced: the central way, at the same price.
    """
    rows, target = pictures(TRAINED, f"train {seed}")
    dice, network, grid = SeededDice(seed), plan.network, plan.sum.grid
    assert isinstance(grid, DitheredGrid)
    share = plan.sum.variance if parts == 1 else plan.sum.share
    flat, moving = first_weights(network, plan.lesson.name), np.zeros(network.size)
    for _ in range(plan.lesson.rounds):
        total = np.zeros(network.size, dtype=np.int64)
        for place in range(parts):
            own = slice(place, None, parts)
            found = network.clipped_sum(
                network.weights(flat), rows[own], target[own], plan.row_clip
            )
            total += grid.rounded(-found, dice)
            if shares:
                total += skellam.sample(share, network.size, dice)
        moving = MOMENTUM * moving + grid.numbers(total) * (RATE / TRAINED)
        flat = np.clip(flat + moving, -32, 32)
    return accuracy(plan, flat, seed)


def pooled(plan: TrainPlan, seed: int) -> float:
    """The accuracy of plain descent on all rows at once: floats, no clip, no grid, no noise."""
    rows, target = pictures(TRAINED, f"train {seed}")
    wanted = np.arange(10)[None, :] == target[:, None]
    flat = first_weights(plan.network, plan.lesson.name)
    matrix, bias = flat[:640].reshape(10, 64).copy(), flat[640:].copy()
    moving: Any = (np.zeros((10, 64)), np.zeros(10))
    for _ in range(plan.lesson.rounds):
        said = rows @ matrix.T + bias
        grown = np.exp(said - said.max(axis=1, keepdims=True))
        off = (grown / grown.sum(axis=1, keepdims=True) - wanted) * (RATE / TRAINED)
        moving = (MOMENTUM * moving[0] - off.T @ rows, MOMENTUM * moving[1] - off.sum(axis=0))
        matrix, bias = matrix + moving[0], bias + moving[1]
    return accuracy(plan, np.concatenate([matrix.ravel(), bias]), seed)


def accuracy(plan: TrainPlan, flat: Numbers, seed: int) -> float:
    rows, target = pictures(TESTED, f"test {seed}")
    said = plan.network.says(plan.network.weights(flat), rows)
    return float((said.argmax(axis=1) == target).mean())


def test_the_sum_over_sites_is_the_pooled_sum_to_the_last_bit() -> None:
    plan = plan_for(3, 2, "ab" * 32)
    rows, target = pictures(TRAINED, "train 0")
    weights = plan.network.weights(first_weights(plan.network, "ab" * 32))
    whole = plan.network.clipped_sum(weights, rows, target, 1.0)
    parts = [
        plan.network.clipped_sum(weights, rows[place::SITES], target[place::SITES], 1.0)
        for place in range(SITES)
    ]
    assert (np.sum(parts, axis=0) == whole).all()
    assert np.abs(whole * 2.0**-SUM_BITS).max() > 1


def means(seeds: int, rounds: int, epsilon: int, floor: int = 4) -> tuple[float, ...]:
    """Mean accuracies: pooled, four sites without noise, four sites with it, central with it."""
    found = []
    for seed in range(seeds):
        name = f"{seed:064x}"
        wide, plan = (plan_for(epsilon, rounds, name, clip, floor) for clip in (WIDE, CLIP))
        found.append(
            (
                pooled(plan, seed),
                learnt(wide, SITES, seed, shares=False),
                learnt(plan, SITES, seed, shares=True),
                learnt(plan, 1, seed, shares=True),
            )
        )
    return tuple(float(one) for one in np.mean(found, axis=0))


def test_four_sites_read_digits_as_one_that_has_them_all_does() -> None:
    alone, federated, private, central = means(seeds=1, rounds=40, epsilon=3)
    assert alone > 0.8
    assert abs(federated - alone) < 0.02  # one seed; the slow test has ten, and one point
    assert min(private, central) > 0.6


@pytest.mark.slow
def test_within_a_point_of_pooled_and_two_of_central_at_epsilon_three() -> None:
    """Where nobody may drop out; the allowance for one that does costs two points more."""
    alone, federated, private, central = means(seeds=10, rounds=60, epsilon=3)
    assert federated > alone - 0.01, (alone, federated)
    assert private > central - 0.02, (private, central)
    assert means(seeds=10, rounds=60, epsilon=3, floor=3)[2] > central - 0.05


@pytest.mark.slow
def test_more_epsilon_reads_better() -> None:
    table = {epsilon: means(seeds=3, rounds=60, epsilon=epsilon)[2] for epsilon in (1, 3, 8)}
    assert table[1] < table[3] < table[8], table
