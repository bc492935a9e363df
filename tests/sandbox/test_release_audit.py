"""The auditor at the release of a pipeline: recorded results of blocks, one person more or less."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.features.pipelines.program_plan import MEDIAN, Program, Run
from sfumato.lab.audit import audit
from sfumato.lab.audit.auditor import MAX_RUNS, Random
from sfumato.lab.platform_noise import NumpyRandomSource
from sfumato.release.guarantees.central_dp import medians_of_blocks, noisy_sums_of_blocks
from sfumato.release.unseal import unseal
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.ports import BlockJob, SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.sealed import Sealed
from support.sandbox_blocks import needs_bubbles

pytestmark = needs_bubbles
OUTPUTS = read_outputs([
    {"name": "height", "lower": 150, "upper": 190, "step": 1},
    {"name": "people", "lower": 0, "upper": 3, "step": 1},
])  # fmt: skip
PROGRAM = """
def f(rows):
    return {'height': rows['height'].mean(), 'people': len(rows)}
"""
BLOCKS = ("ann\t150\nbob\t150\n", "cyd\t160\n", "", "dan\t155\n")
MORE = (*BLOCKS[:2], "eve\t190\nfay\t190\n", *BLOCKS[3:])  # a person with two rows
Recorded = NDArray[np.int64]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Recorded]:
    """What the program says of each block, without and with one person."""
    sandbox = SandboxPool(environment, SystemRandomSource(), sleep=lambda _: None)
    found = []
    for place, blocks in enumerate((BLOCKS, MORE)):
        folder = tmp_path_factory.mktemp(f"blocks-{place}")
        paths = [written(folder / str(block), text) for block, text in enumerate(blocks)]
        job = BlockJob(
            run(Fraction(1)).program.inside(), tuple(paths), OUTPUTS, run(Fraction(1)).limits
        )
        found.append(unseal(sandbox.run(job)))
    sandbox.close()
    return found[0], found[1]


def written(place: Path, rows: str) -> str:
    place.write_text("id\theight\n" + rows)
    return str(place)


def run(epsilon: Fraction) -> Run:
    program = Program("town", "function", PROGRAM, "f", ("height",), OUTPUTS)
    return Run(program, len(BLOCKS), 0, epsilon, SandboxLimits(cpu_s=4.0))


def test_one_person_moves_one_block(recorded: tuple[Recorded, Recorded]) -> None:
    without, with_her = recorded
    assert np.flatnonzero((without != with_her).any(axis=1)).tolist() == [2]
    assert without[2].tolist() == [20, 0]  # nobody's mean is the middle
    assert with_her[2].tolist() == [40, 2]


@pytest.mark.parametrize(("sold", "is_found"), [(1, False), (4, True)])
def test_sums_of_recorded_blocks_are_worth_their_price_and_no_more(
    recorded: tuple[Recorded, Recorded], sold: int, is_found: bool
) -> None:
    """With the noise of four times the price the auditor has to find it: so it looks well."""
    noises = run(Fraction(sold)).noises

    def released(data: object, runs: int, dice: Random) -> Recorded:
        held = Sealed(np.asarray(data))
        draws = [noise.sample(runs, NumpyRandomSource(dice)).reshape(runs, 1) for noise in noises]
        made = [noisy_sums_of_blocks(held, 0, [draw[one] for draw in draws]) for one in range(runs)]
        return np.array(made, dtype=np.int64)

    found = audit(released, *recorded, epsilon=1.0, dice=np.random.default_rng(11))
    assert found.samples >= MAX_RUNS or found.is_violated
    assert found.is_violated == is_found


def test_medians_of_recorded_blocks_are_worth_their_price(
    recorded: tuple[Recorded, Recorded],
) -> None:
    asked = replace(run(Fraction(1)), take=MEDIAN)
    steps = [output.steps for output in OUTPUTS]

    def released(data: object, runs: int, dice: Random) -> Recorded:
        held, bits = Sealed(np.asarray(data)), NumpyRandomSource(dice)
        made = [medians_of_blocks(held, steps, asked.losses, bits) for _ in range(runs)]
        return np.array(made, dtype=np.int64)

    found = audit(released, *recorded, epsilon=1.0, most=8192, dice=np.random.default_rng(12))
    assert not found.is_violated
