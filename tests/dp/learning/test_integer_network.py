"""Gradients in whole numbers: right, clipped, and of one row what that row alone makes of them."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sfumato.dp.learning import integer_network as network_module
from sfumato.dp.learning.integer_network import (
    SUM_BITS,
    Network,
    Numbers,
    People,
    Walk,
    Weights,
    _shortened,
    inputs_of,
    unpacked,
)
from sfumato.dp.refusal import Refused

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
    layers = [(matrix * 2.0**-16, bias * 2.0**-16) for matrix, bias in weights]
    whole = gradient(network, layers, row, target)
    return np.asarray(whole * min(1.0, clip / float(np.linalg.norm(whole))))


def gradient(network: Network, weights: Weights, row: Numbers, target: float) -> Numbers:
    value, ins = row, []
    for place, (matrix, bias) in enumerate(weights):
        ins.append(value)
        value = matrix @ value + bias
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
        back = (back @ weights[place][0]) * slope
    return np.concatenate(parts)


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
def test_a_sum_is_the_same_to_the_bit_however_many_rows_are_looked_at_once(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, rows, target = rows_for(network, 700)
    found = []
    for cached in (1, 17 * max(network.widths), 1 << 40):
        monkeypatch.setattr(network_module, "_CACHED", cached)
        found.append(network.clipped_sum(weights, rows, target, CLIP))
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


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


def people_for(network: Network, count: int, seed: int = 4) -> tuple[Numbers, People]:
    """A model, and people of one to four rows; what fills their places up is nobody's."""
    drawn = np.random.default_rng(seed)
    flat = drawn.normal(size=network.size) * 0.25
    rows = drawn.random((count, 4, network.widths[0]))
    outs = network.widths[-1]
    shape = (count, 4)
    target = drawn.integers(0, outs, shape) if outs > 1 else drawn.random(shape)
    counts = (1 + np.arange(count) % 4).astype(np.float64)
    return flat, People(inputs_of(rows), target.astype(np.float64), counts)


def some(people: People, which: Any) -> People:
    return People(people.rows[which], people.target[which], people.counts[which])


def steps_in_floats(network: Network, begin: Numbers, one: People, walk: Walk) -> Numbers:
    """How far one person's steps go down, clipped at the end: plain floats, a row at a time."""
    rows, target, now = one.rows[0] * 2.0**-12, one.target[0], begin
    for _ in range(walk.steps):
        layers = [(m * 2.0**-16, b * 2.0**-16) for m, b in network.weights(now)]
        each = range(int(one.counts[0]))
        whole = sum((gradient(network, layers, rows[n], target[n]) for n in each), np.zeros(1))
        now = now - walk.rate * (whole / one.counts[0] + walk.proximal * (now - begin))
    return np.asarray((begin - now) * min(1.0, walk.clip / float(np.linalg.norm(begin - now))))


@WHICH
@pytest.mark.parametrize("walk", [Walk(1, 1.0, 0.0, 0.3), Walk(5, 0.1, 0.2, 8.0)], ids=["1", "5"])
def test_a_persons_own_steps_are_what_plain_floats_give(network: Network, walk: Walk) -> None:
    begin, people = people_for(network, 12)
    found = network.people_sum(begin, people, walk) * 2.0**-SUM_BITS
    alone = [some(people, slice(n, n + 1)) for n in range(12)]
    wanted = sum(steps_in_floats(network, begin, one, walk) for one in alone)
    assert np.abs(found - wanted).max() < 12 * walk.steps * 4e-4


@WHICH
def test_no_person_moves_what_others_steps_come_to_not_by_one_bit(network: Network) -> None:
    begin, people = people_for(network, 300)
    walk = Walk(3, 1.0, 0.1, 0.5)
    whole = network.people_sum(begin, people, walk)
    shuffled = np.random.default_rng(2).permutation(300)
    assert (network.people_sum(begin, some(people, shuffled), walk) == whole).all()
    for gone in (0, 1, 150, 299):
        rest = np.delete(np.arange(300), gone)
        own = network.people_sum(begin, some(people, [gone]), walk)
        assert (network.people_sum(begin, some(people, rest), walk) + own == whole).all()


@WHICH
def test_neither_who_is_beside_them_nor_how_many_rows_are_taken_moves_a_persons_steps(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, people = people_for(network, 60)
    walk = Walk(3, 1.0, 0.1, 0.5)
    whole = network.people_sum(begin, people, walk)
    monkeypatch.setattr(network_module, "_THROUGH", 1)  # one row after the other
    assert (network.people_sum(begin, people, walk) == whole).all()
    alike = [some(people, people.counts == count) for count in np.unique(people.counts)]
    alone = [some(people, [n]) for n in range(60)]
    for groups in (alike, alone):
        cut = [
            People(one.rows[:, :most], one.target[:, :most], one.counts)
            for one in groups
            for most in [int(one.counts.max())]
        ]
        parts = [network.people_sum(begin, one, walk) for one in cut]
        assert (np.sum(parts, axis=0) == whole).all()


def test_many_rows_of_one_person_pass_through_a_few_at_a_time() -> None:
    """What one person takes hangs on the model, and not on how many their rows are."""
    network = Network((1, 1024, 2), "relu", "classes")
    begin = np.random.default_rng(1).normal(size=network.size)
    rows = np.ones((1, 4096, 1))
    people = People(rows, np.zeros((1, 4096)), np.array([4096.0]))
    tracemalloc.start()
    try:
        network.people_sum(begin, people, Walk(1, 1.0, 0.0, 1.0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 8 * network_module._THROUGH


@WHICH
@pytest.mark.parametrize("clip", [2.0**-8, 0.1, 4.0])
@pytest.mark.parametrize("rate", [1.0, 100.0])
def test_nobodys_steps_come_farther_than_the_clip(
    network: Network, clip: float, rate: float
) -> None:
    begin, people = people_for(network, 30)
    walk = Walk(40, rate, 100.0, clip)  # so far drawn back that numbers grow without end
    longest = 0
    for n in range(30):
        own = network.people_sum(begin, some(people, [n]), walk)
        longest = max(longest, sum(int(number) ** 2 for number in own))
    assert longest <= int(clip * 2**SUM_BITS) ** 2
    assert longest > (0.9 * clip * 2**SUM_BITS) ** 2


def test_a_norm_is_never_taken_for_too_small() -> None:
    """Numbers of very different sizes, many of them tiny; and none at all."""
    drawn = np.random.default_rng(6)
    far = drawn.normal(size=(20, 5000)) * 10.0 ** drawn.integers(-12, 6, (20, 5000))
    even = np.full((1, 60_000), 1e-3)
    for moved, most in ((far, 0.25), (even, 0.25), (even, 4.0), (np.zeros((1, 9)), 1.0)):
        for clipped, was in zip(_shortened(moved, most), moved, strict=True):
            length = math.sqrt(sum(int(number) ** 2 for number in clipped)) / 2**SUM_BITS
            wanted = min(most, float(np.linalg.norm(was)))
            assert wanted * 0.997 <= length <= most


def test_weights_that_are_far_out_are_cut_to_what_sums_can_hold() -> None:
    network = Network((1024, 1024), "relu", "classes")
    weights = network.weights(np.full(network.size, 1e30))
    rows, target = np.ones((3, 1024)), np.zeros(3)
    whole = network.clipped_sum(weights, rows, target, 1.0)
    assert (whole == 3 * network.clipped_sum(weights, rows[:1], target[:1], 1.0)).all()


def test_no_partial_sum_can_pass_what_a_double_counts() -> None:
    """The widest layers at their largest numbers, as exact_arithmetic.proof.md adds them up."""
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
