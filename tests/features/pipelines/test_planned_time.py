"""How long a run takes is known before it begins, from public numbers alone."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from sfumato.cli.shell import elapsed_line
from sfumato.features.pipelines.program_plan import Program, Run, read_program, read_run
from sfumato.features.pipelines.release import planned_s
from sfumato.sandbox.ports import SandboxLimits
from sfumato.vault.card.data_card import Card, read_card
from support.pipeline_cards import AGES

FILES = AGES + '[bids]\npeople = 9\nperson_mb = 8\nfiles = ["anat/{sub}_T1w.nii.gz"]\n'
OUTPUT = {"name": "n", "lower": 0, "upper": 9, "step": 1, "path": "out.json", "at": ["n"]}


class Lanes:
    """A sandbox of so many processors; whatever else is asked of it fails."""

    def __init__(self, count: int) -> None:
        self._count = count

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        del limits, own
        return self._count


def run_of(text: str, kind: str = "program", **terms: object) -> tuple[Card, Run]:
    made = read_card("cohort", tomllib.loads(text))
    shape = {"source": "pass", "name": "group", "kind": kind, "outputs": [OUTPUT]}
    program: Program = read_program(made, shape, "ours")
    return made, read_run(program, {"epsilon": 1, **terms}, Fraction(0))


def seconds(count: int, made: tuple[Card, Run]) -> float | None:
    sandbox: Any = Lanes(count)
    return planned_s(sandbox, *made)


def test_the_planned_time_is_the_grid_of_blocks_and_what_comes_before_and_after() -> None:
    made = run_of(AGES, blocks=200, cpu_s=0.05, memory_mb=256)
    reads = 32 * 64 / 1024 * 0.06  # that threads finish after they are killed
    each = 1.5 * 0.05 + 0.05 + 0.3 + 0.1 * (256 + 64) / 1024 + reads
    assert seconds(2, made) == pytest.approx(2 + 100 * each + 200 * 0.02)
    assert seconds(1, made) == pytest.approx(2 + 200 * each + 200 * 0.02)
    assert seconds(0, made) is None
    one, run = made
    batch = one, replace(run, limits=replace(run.limits, timing="batch", job_s=30.0))
    assert seconds(2, batch) == pytest.approx(
        2 + 30 + 0.4 + 1.5 * 0.05 + 0.1 * 2 * 320 / 1024 + reads + 200 * 0.02
    )


def test_a_run_over_folders_also_takes_the_time_of_as_many_people_as_the_card_says() -> None:
    group, both = (seconds(1, run_of(FILES, kind, blocks=2)) for kind in ("program", "bids"))
    assert group is not None
    assert both is not None
    assert both > group + 9 * (1.5 + 0.05)


def test_the_command_shows_time_alone() -> None:
    assert elapsed_line("Running", 7.2, None) == "Running: 7 s elapsed ..."
    line = "Running: [#####...............] 12 of 46 s planned ..."
    assert elapsed_line("Running", 12.4, 46) == line
    assert elapsed_line("Running", 99, 46).startswith("Running: [####################] 99 of")
