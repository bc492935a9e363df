"""The noise of an average over blocks: as wide as it says, and fresh for every output."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from sfumato.dp.accounting.privacy_events import GaussianEvent, PrivacyCost, privacy_cost
from sfumato.features.pipelines.program_plan import Program, Run
from sfumato.release.guarantees.central_dp import medians_of_blocks, noisy_sums_of_blocks
from sfumato.release.noise_pool import NoisePool
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.sealed import Sealed

TRIES, BLOCKS = 20_000, 20


def run(epsilon: Fraction, outputs: int = 2, trim: int = 0) -> Run:
    made = read_outputs(
        [{"name": f"m{n}", "lower": 120, "upper": 220, "step": "0.1"} for n in range(outputs)]
    )
    program = Program("heights", "function", "def f(rows): return 1", "f", ("height",), made)
    return Run(program, BLOCKS, trim, epsilon, SandboxLimits())


@pytest.mark.parametrize("trim", [0, 3])
def test_the_interval_holds_the_average_of_blocks_as_often_as_it_says(trim: int) -> None:
    asked, pool = run(Fraction(1), trim=trim), NoisePool(SystemRandomSource())
    sealed = Sealed(np.full((BLOCKS, 2), 500, dtype=np.int64))
    average = asked.counted * 500
    margins = [asked.margins()[f"m{n}"] * asked.counted * 10 for n in range(2)]
    hits = np.zeros(2)
    for _ in range(TRIES):
        drawn = [pool.take(noise, 1) for noise in asked.noises]
        sums = noisy_sums_of_blocks(sealed, trim, drawn)
        hits += [abs(s - average) <= m + 1e-9 for s, m in zip(sums, margins, strict=True)]
    low, high = binom.ppf([5e-7, 1 - 5e-7], TRIES, 0.95)  # 0.9427 and 0.9573 of them
    assert np.all(hits >= low)  # 1.1 of the noise would hold 0.934
    assert np.all(hits <= high)  # 0.9 of it 0.964


def test_the_whole_price_is_what_one_block_moves_all_sums() -> None:
    asked = run(Fraction(3), outputs=4)
    spent = sum(
        o.steps / noise.parameter
        for o, noise in zip(asked.program.outputs, asked.noises, strict=True)
    )
    assert spent == 3


def test_a_vector_of_blocks_costs_the_rho_of_all_its_numbers() -> None:
    made = read_outputs([
        {"name": "i", "lower": 0, "upper": 1, "step": "0.01", "path": "i.npy", "shape": [10, 10]},
        {"name": "m", "lower": 120, "upper": 220, "step": "0.1", "path": "m.txt"},
    ])  # fmt: skip
    program = Program("heights", "program", "pass", "group", ("height",), made)
    asked = replace(run(Fraction(1)), program=program, delta=Fraction(1, 10**6))
    assert asked.numbers == 101
    pairs = zip(made, asked.noises, strict=True)
    spent = sum((o.count * o.steps**2 / (2 * noise.parameter) for o, noise in pairs), Fraction(0))
    assert asked.event == GaussianEvent(spent, Fraction(1), Fraction(1, 10**6))
    drawn = [count for _, count in asked.draws()]
    assert drawn == [100, 1]
    few = replace(run(Fraction(1), outputs=1), delta=Fraction(1, 10**9))
    assert not few.rho
    assert not few.spent_delta
    assert few.mechanism == "laplace"


@pytest.mark.parametrize("outputs", [1, 3])
def test_medians_cost_epsilon_and_an_eighth_of_its_square_each(outputs: int) -> None:
    asked = replace(run(Fraction(2), outputs=outputs), take="median")
    each = Fraction(2, outputs)
    assert privacy_cost(asked.event) == PrivacyCost(
        epsilon=2 * 10**9, rho=math.ceil(outputs * each**2 / 8 * 10**12)
    )
    assert (asked.noises, asked.mechanism) == ((), "exponential mechanism")


@given(
    st.lists(st.integers(0, 1000), min_size=7, max_size=7),
    st.integers(0, 6), st.integers(0, 1000), st.integers(0, 3),
)  # fmt: skip
def test_one_block_moves_a_sum_by_the_range_at_most(
    blocks: list[int], place: int, other: int, trim: int
) -> None:
    nothing = [np.zeros(1, dtype=np.int64)]
    changed = [other if i == place else block for i, block in enumerate(blocks)]
    sums = [
        noisy_sums_of_blocks(Sealed(np.array(one, dtype=np.int64).reshape(-1, 1)), trim, nothing)[0]
        for one in (blocks, changed)
    ]
    assert abs(sums[0] - sums[1]) <= abs(other - blocks[place]) <= 1000


def test_each_median_is_chosen_at_its_own_epsilon() -> None:
    sealed = Sealed(np.tile(np.array([40, 41, 42, 43, 44]), (2, 1)).T.astype(np.int64))
    epsilons = Fraction(900), Fraction(1, 10**6)
    dice = SystemRandomSource()
    found = [medians_of_blocks(sealed, [10**6] * 2, epsilons, dice) for _ in range(200)]
    assert {first for first, _ in found} == {42}
    assert sum(40 <= second <= 44 for _, second in found) < 20
