"""Compare ways to combine the results of blocks: mean, trimmed means and median.

The expected error of each is the root of bias² + spread² + noise², at the same epsilon. Bias and
spread are those on synthetic people, so the comparison depends on no row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.median_of_blocks import mean_square_error
from sfumato.dp.ports import IntegerArray
from sfumato.features.pipelines.program_plan import MEAN, MEDIAN, Run
from sfumato.sandbox.program_outputs import Output

RESAMPLES: Final = 64  # how often the tried blocks are drawn again, to estimate the spread
# Another way than the mean is proposed only if its error is at most this part of the mean's error:
# the errors are estimated from a few blocks.
CLEARLY: Final = 0.9
_TRIMS: Final = (20, 10, 5)  # a trimmed mean leaves out 1/20, 1/10 or 1/5 at either end


@dataclass(frozen=True)
class Combination:
    """One way to combine the results of blocks, and its expected error for each output."""

    take: str
    trim: int
    error: dict[str, float]  # root mean square error in the output's unit
    relative: float  # the largest of these errors, relative to the output's range

    def as_json(self) -> Json:
        """Return the combination as JSON for a plan."""
        return {
            "take": self.take, "trim": self.trim, "error": self.error, "relative": self.relative,
        }  # fmt: skip


def combinations_of(run: Run) -> Iterator[Run]:
    """Yield a run with each way to combine its blocks that is compared; the mean comes first."""
    yield run
    trims = {max(1, run.blocks // part) for part in _TRIMS}
    yield from (replace(run, trim=trim) for trim in sorted(trims) if 2 * trim < run.blocks)
    split = run.split
    if split is not None and split.rho:  # a median is charged in epsilon, split in the same shares
        losses = tuple(loss * run.epsilon / split.rho for loss in split.losses)
        split = replace(split, losses=losses, rho=split.rho * 0)
    yield replace(run, take=MEDIAN, split=split)


def compare(
    run: Run, whole: IntegerArray, tried: IntegerArray, resamples: IntegerArray
) -> tuple[Combination, ...]:
    """Return the expected error of each combination of the blocks of a run.

    Args:
        run: The run, with the mean of its blocks.
        whole: The program's numbers for all synthetic people at once, in steps.
        tried: Its numbers for each tried block, one row for a block.
        resamples: Places of tried blocks; each row stands for all blocks of a run.
    """
    kept = [
        _Kept(output, int(whole[place]), tried[:, place][resamples])
        for output, place in _representatives(run.program.outputs, whole, tried)
    ]
    return tuple(_combination(one, kept) for one in combinations_of(run))


@dataclass(frozen=True)
class _Kept:
    """A number that stands for its output: what it is on everybody, and its resampled blocks."""

    output: Output
    target: int
    blocks: IntegerArray  # one row for a resample


def best_of(combinations: Sequence[Combination]) -> Combination:
    """Return the combination with the least error; the mean, unless another is clearly better."""
    mean, *others = combinations
    best = min(others, key=lambda one: one.relative, default=mean)
    return best if best.relative < CLEARLY * mean.relative else mean


def _representatives(
    outputs: Sequence[Output], whole: IntegerArray, tried: IntegerArray
) -> Iterator[tuple[Output, int]]:
    """Yield the places of each output's numbers with the largest bias and the largest spread."""
    bias, spread = np.abs(tried.mean(axis=0) - whole), tried.std(axis=0)
    start = 0
    for output in outputs:
        own = slice(start, start + output.count)
        for place in {int(bias[own].argmax()), int(spread[own].argmax())}:
            yield output, start + place
        start = own.stop


def _combination(run: Run, kept: Sequence[_Kept]) -> Combination:
    error: dict[str, float] = {}
    for one in kept:
        name = one.output.name
        found = float(one.output.step) * math.sqrt(_square_error(run, one))
        error[name] = max(found, error.get(name, 0.0))
    ranges = {one.output.name: float(one.output.upper - one.output.lower) for one in kept}
    relative = max(error[name] / width for name, width in ranges.items())
    return Combination(run.take, run.trim, error, relative)


def _square_error(run: Run, kept: _Kept) -> float:
    """Return the mean square distance of a combination from its target, with its noise."""
    output, target = kept.output, kept.target
    if run.take == MEDIAN:
        epsilon = run.loss(output)
        found = [mean_square_error(one, output.steps, epsilon, target) for one in kept.blocks]
        return float(np.mean(found))
    ordered = np.sort(kept.blocks, axis=1)
    middle = ordered[:, run.trim : run.blocks - run.trim].mean(axis=1)
    noise = run.noise(output)
    std = 0.0 if noise is None else noise.std() / run.counted
    return float(((middle - target) ** 2).mean()) + std**2


def name_of(take: str, trim: int) -> str:
    """Return the name of a combination in words, such as "trimmed mean (--trim 5)"."""
    if take == MEAN and trim:
        return f"trimmed mean (--trim {trim})"
    return take
