"""Gradients in whole numbers: right, clipped, and of one row what that row alone makes of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sfumato.core.learning import unpacked
from sfumato.core.learning.network import SUM_BITS, Network, Numbers, Weights
from sfumato.core.refusal import Refused

NETWORKS = [
    Network((7, 10), "relu", "classes"),
    Network((64, 32, 10), "relu", "classes"),
    Network((30, 16, 8, 5), "tanh", "classes"),
    Network((12, 9, 1), "tanh", "squares"),
    Network((6, 1), "relu", "squares"),
]
WHICH = pytest.mark.parametrize("network", NETWORKS, ids=lambda n: "-".join(map(str, n.widths)))
CLIP = 0.5


def rows_for(network: Network, count: int, seed: int = 1) -> tuple[Weights, Numbers, Numbers]:
    drawn = np.random.default_rng(seed)
    flat = drawn.normal(size=network.size) * 0.25  # so that nothing is clamped
    rows = drawn.random((count, network.widths[0]))
    outs = network.widths[-1]
    target = drawn.integers(0, outs, count) if outs > 1 else drawn.random(count)
    return network.weights(flat), rows, target.astype(np.float64)


def in_floats(
    network: Network, weights: Weights, row: Numbers, target: float, clip: float
) -> Numbers:
    """One row's clipped gradient by the chain rule in plain floats: the reference."""
    value, ins = row, []
    for place, (matrix, bias) in enumerate(weights):
        ins.append(value)
        value = matrix * 2.0**-16 @ value + bias * 2.0**-16
        if place < len(weights) - 1:
            value = np.tanh(value) if network.activation == "tanh" else np.maximum(value, 0)
    if network.loss == "squares":
        back = 2 * (value - target)
    else:
        back = np.exp(value - value.max())
        back = back / back.sum() - (np.arange(len(back)) == target)
    parts: list[Numbers] = []
    for place in range(len(weights) - 1, -1, -1):
        parts = [np.outer(back, ins[place]).ravel(), back, *parts]
        slope = 1 - ins[place] ** 2 if network.activation == "tanh" else ins[place] > 0
        back = (back @ (weights[place][0] * 2.0**-16)) * slope
    whole = np.concatenate(parts)
    return np.asarray(whole * min(1.0, clip / float(np.linalg.norm(whole))))


@WHICH
def test_a_sum_of_gradients_is_what_plain_floats_give(network: Network) -> None:
    weights, rows, target = rows_for(network, 40)
    found = network.clipped_sum(weights, rows, target, CLIP) * 2.0**-SUM_BITS
    pairs = zip(rows, target, strict=True)
    wanted = sum(in_floats(network, weights, row, one, CLIP) for row, one in pairs)
    assert np.abs(found - wanted).max() < 40 * 4e-4


@WHICH
def test_no_row_moves_what_others_add_not_by_one_bit(network: Network) -> None:
    """Rows in another order, fewer of them, and alone: whole numbers that fit exactly."""
    weights, rows, target = rows_for(network, 5000)  # more than one slice
    whole = network.clipped_sum(weights, rows, target, CLIP)
    shuffled = np.random.default_rng(2).permutation(len(rows))
    assert (network.clipped_sum(weights, rows[shuffled], target[shuffled], CLIP) == whole).all()
    for gone in (0, 1, 4095, 4999):
        rest = np.delete(np.arange(len(rows)), gone)
        own = network.clipped_sum(weights, rows[[gone]], target[[gone]], CLIP)
        left = network.clipped_sum(weights, rows[rest], target[rest], CLIP)
        assert (left + own == whole).all()


@WHICH
@pytest.mark.parametrize("clip", [2.0**-8, 0.1, 4.0])
def test_nobody_adds_more_than_the_clip(network: Network, clip: float) -> None:
    weights, rows, target = rows_for(network, 60, seed=3)
    wild = rows.copy()
    wild[::2] = 1e300
    for row, one in zip(wild, target, strict=True):
        found = network.clipped_sum(weights, row[None, :], np.array([one]), clip)
        squared = sum(int(number) ** 2 for number in found)
        assert squared <= int(clip * 2**SUM_BITS) ** 2


def test_weights_that_are_far_out_are_cut_to_what_sums_can_hold() -> None:
    network = Network((1024, 1024), "relu", "classes")
    weights = network.weights(np.full(network.size, 1e30))
    rows, target = np.ones((3, 1024)), np.zeros(3)
    whole = network.clipped_sum(weights, rows, target, 1.0)
    assert (whole == 3 * network.clipped_sum(weights, rows[:1], target[:1], 1.0)).all()


def test_no_partial_sum_can_pass_what_a_double_counts() -> None:
    """The widest layers at their largest numbers, as exact.proof.md adds them up."""
    assert 2**17 * 2**21 * 2**10 + 2**33 < 2**53
    assert 2**20 * 2**21 * 2**10 < 2**53
    assert 2**12 * 2**20 * 2**17 < 2**53
    assert 2**12 * 2**21 * 2**12 < 2**53


def test_the_size_counts_every_weight() -> None:
    for network in NETWORKS:
        assert network.size == sum(i * o + o for i, o in pairwise(network.widths))


def test_a_model_that_travels_is_numbers_and_nothing_else() -> None:
    assert (unpacked(np.array([1.5, -2], dtype="<f4").tobytes(), 2) == [1.5, -2]).all()
    for wrong in (b"", bytes(7), bytes(12), b"\x00\x00\x80\x7f" * 2):
        with pytest.raises(Refused, match="update-refused"):
            unpacked(wrong, 2)
