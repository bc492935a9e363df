"""The release step of `central-dp`: add fresh noise to exact integers, and select partitions.

Mechanisms that choose a value (quantiles, medians, the worst candidate of synthetic data) run here
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.median_of_blocks import choose_median
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.dp.mechanisms.spanning_tree import choose_highest_utility, choose_tree
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Bug
from sfumato.query.measure import Cells
from sfumato.query.partition_selection_price import PricedPartitionSelection
from sfumato.release.unseal import unseal
from sfumato.vault.sealed import Sealed

GUARANTEE: Final = "central-dp"
MAX_PART: Final = 2**62
Keys = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class BlockDraws:
    """Noise of a running count: the tree mechanism, and one draw for each block of periods."""

    running: TreeMechanism
    draws: NDArray[np.int64]


NoiseOrMechanism = (
    NDArray[np.int64] | BlockDraws | PrivateChoice
)  # noise to add, or a mechanism that chooses a value


@dataclass(frozen=True)
class PartitionSelection:
    """Settings of partition selection: the tally that counts people, the price, and the noise."""

    people: int  # index of the tally that counts the people of a key
    selection: PricedPartitionSelection
    draw: Callable[
        [int, int], NoiseOrMechanism
    ]  # (part, count) -> fresh noise, or a mechanism that chooses
    dice: RandomSource
    histograms: Callable[[Keys], Iterable[Sealed[Cells]]] = lambda _: ()  # histograms of kept keys


@dataclass(frozen=True)
class HistogramIndex:
    """Where to find an aggregate's histogram among the histograms of the selected keys."""

    index: int


class Weighted(Protocol):
    """Candidate of the exponential mechanism; its utility is weight * (distance - penalty).

    The distance is the sum of differences between exact and expected counts.
    """

    @property
    def weight(self) -> int: ...
    @property
    def penalty(self) -> int: ...
    @property
    def ends(self) -> tuple[int, ...]: ...


class Distances(Protocol):
    """Input of a private choice among candidates whose counts may be far from expected counts.

    It has the candidates, the expected counts of each, and the rate: how much a higher utility
    raises the probability of a candidate (exponential mechanism).
    """

    @property
    def kind(self) -> Literal["one", "tree"]: ...
    @property
    def candidates(self) -> Sequence[Weighted]: ...
    @property
    def expected(self) -> Sequence[NDArray[np.int64]]: ...
    @property
    def rate(self) -> Fraction: ...


class Scaled(Protocol):
    """Factor that multiplies exact counts, so that their distances to expected counts are whole.

    Whole numbers can get exact discrete noise.
    """

    @property
    def scale(self) -> int: ...


class Misfit(Protocol):
    """One measure of how badly synthetic data fit the real rows.

    It is the sum of the distances between exact and expected counts.
    """

    @property
    def misfit(self) -> Scaled: ...
    @property
    def expected(self) -> Sequence[NDArray[np.int64]]: ...


class Misfits(Protocol):
    """Several misfits of synthetic data (sums of distances of counts), released together."""

    @property
    def numbers(self) -> Sequence[Misfit]: ...


TallyIndex = int | HistogramIndex  # index of a part's tally among the sums, or among the histograms


@dataclass(frozen=True)
class ReleasedKeys:
    """The private keys of an earlier answer, and the function that writes a key as text."""

    keys: Sequence[str]
    spelled: Callable[[tuple[object, ...]], str]
    dice: RandomSource


@dataclass(frozen=True)
class NoisyCells:
    """The released values: noisy integers per aggregate, and the selected private keys, if any."""

    parts: tuple[IntegerArray, ...]
    keys: Keys | None = None


def add_noise(
    sealed: Sealed[Cells],
    tallies: Sequence[int],
    drawn: Sequence[NoiseOrMechanism],
    dice: RandomSource,
) -> NoisyCells:
    """Add fresh noise to each aggregate of the answer, one draw per group.

    An aggregate whose mechanism chooses a value, such as a median, runs that mechanism instead.
    """
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    pairs = zip(tallies, drawn, strict=True)
    return NoisyCells(tuple(_noisy(exact.parts[tally], with_, dice) for tally, with_ in pairs))


def select_partitions(
    sealed: Sealed[Cells], tallies: Sequence[TallyIndex], choosing: PartitionSelection
) -> NoisyCells:
    """Select which private keys may be shown, and add noise to the aggregates of these keys.

    A key that isn't selected gets no row and no noise (soundness rule 16). The selected keys are
    sorted by their text, so that their order reveals nothing about the rows.
    """
    exact = unseal(sealed)
    if exact.keys is None:
        raise Bug("the engine answered no keys to choose from")
    kept = choosing.selection.keep(exact.parts[choosing.people], choosing.dice)
    every = exact.keys
    ordered = sorted(np.flatnonzero(kept).tolist(), key=lambda place: repr(every[place]))
    places = np.array(ordered, dtype=np.int64)
    keys = tuple(every[place] for place in ordered)
    lists = _chosen_of_lists(keys, tallies, choosing)
    parts = tuple(
        lists[part]
        if isinstance(tally, HistogramIndex)
        else _noisy(exact.parts[tally][places], choosing.draw(part, len(places)), choosing.dice)
        for part, tally in enumerate(tallies)
    )
    return NoisyCells(parts, keys)


def _chosen_of_lists(
    keys: Keys, tallies: Sequence[TallyIndex], choosing: PartitionSelection
) -> dict[int, IntegerArray]:
    """Choose a value (such as a median) from the histogram of each selected key, per aggregate.

    Only one block of keys is in memory at a time.
    """
    listed = {
        part: tally for part, tally in enumerate(tallies) if isinstance(tally, HistogramIndex)
    }
    found: dict[int, list[IntegerArray]] = {part: [] for part in listed}
    for sealed in choosing.histograms(keys):
        exact = unseal(sealed)
        for part, tally in listed.items():
            counts = exact.parts[tally.index]
            drawn = choosing.draw(part, len(counts))
            found[part].append(_noisy(counts, drawn, choosing.dice))
    if any(sum(map(len, several)) != len(keys) for several in found.values()):
        raise Bug("the engine answered other keys than were kept")
    return {
        part: np.concatenate(several) if several else np.zeros((0, 1), dtype=np.int64)
        for part, several in found.items()
    }


def add_noise_to_released_keys(
    sealed: Sealed[Cells],
    tallies: Sequence[int],
    drawn: Sequence[NoiseOrMechanism],
    kept: ReleasedKeys,
) -> NoisyCells:
    """Add new noise to the aggregates of the keys that an earlier answer released (a top-up).

    Partition selection doesn't run again. A released key that has no rows now counts as zero.
    """
    exact = unseal(sealed)
    if exact.keys is None:
        raise Bug("the engine answered no keys to look up")
    place_of = {kept.spelled(key): place for place, key in enumerate(exact.keys)}
    places = [place_of.get(key) for key in kept.keys]
    pairs = zip(tallies, drawn, strict=True)
    parts = (_noisy(_at(exact.parts[tally], places), with_, kept.dice) for tally, with_ in pairs)
    return NoisyCells(tuple(parts))


def noisy_sums_of_blocks(
    sealed: Sealed[IntegerArray], trim: int, drawn: Sequence[NDArray[np.int64]]
) -> tuple[int, ...]:
    """Sum each output of a program over the blocks of people, trimmed, and add noise.

    The `trim` lowest and `trim` highest values of each output are left out. Block values were
    clamped before, so one block changes a sum by at most the width of the range
    (dp/sampling/sampling_in_blocks.proof.md).
    """
    ordered = np.sort(unseal(sealed), axis=0)
    sums = ordered[trim : len(ordered) - trim].sum(axis=0, dtype=np.int64)
    return tuple(_sum(sums, np.concatenate(drawn)).tolist())


def medians_of_blocks(
    sealed: Sealed[IntegerArray],
    steps: Sequence[int],
    epsilons: Sequence[Fraction],
    dice: RandomSource,
) -> tuple[int, ...]:
    """Choose a private median of each number of a program, over its results for all blocks.

    Each number costs its own epsilon. The proof is dp/mechanisms/median_of_blocks.proof.md.
    """
    said = unseal(sealed)
    numbers = zip(said.T, steps, epsilons, strict=True)
    return tuple(choose_median(values, top, epsilon, dice) for values, top, epsilon in numbers)


def _at(part: IntegerArray, places: Sequence[int | None]) -> IntegerArray:
    found = [0 if place is None else int(part[place]) for place in places]
    return np.array(found, dtype=np.int64)


def _noisy(part: IntegerArray, drawn: NoiseOrMechanism, dice: RandomSource) -> IntegerArray:
    if isinstance(drawn, PrivateChoice):
        return drawn.choose(part, dice)
    if isinstance(drawn, BlockDraws):
        return drawn.running.prefixes(_sum(drawn.running.blocks(part), drawn.draws))
    return _sum(part, drawn)


def _sum(part: IntegerArray, drawn: NDArray[np.int64]) -> IntegerArray:
    if part.shape != drawn.shape or part.dtype != np.int64:
        raise Bug("the engine answered other cells than were asked")
    # np.abs would overflow: abs(-2**63) is no int64
    if np.any((part > MAX_PART) | (part < -MAX_PART)):
        raise Bug("a part passed the bound that the plan proved")
    return np.add(part, drawn)


def choose_farthest(
    sealed: Sequence[Sealed[Cells]], distances: Distances, dice: RandomSource
) -> tuple[int, ...]:
    """Choose, with privacy, the candidates whose exact counts are far from the expected counts.

    The exponential mechanism chooses, with the distances as utilities. The distances themselves are
    not released.
    """
    utilities = np.array(
        [
            one.weight * (int(np.abs(unseal(held).parts[0] - expected).sum()) - one.penalty)
            for held, expected, one in zip(
                sealed, distances.expected, distances.candidates, strict=True
            )
        ],
        dtype=np.int64,
    )
    if distances.kind == "tree":
        ends = [one.ends for one in distances.candidates]
        return choose_tree(utilities, ends, distances.rate, dice)
    return (choose_highest_utility(utilities, distances.rate, dice),)


def noisy_misfits(
    sealed: Sequence[Sequence[Sealed[Cells]]], misfits: Misfits, drawn: Sequence[NDArray[np.int64]]
) -> tuple[int, ...]:
    """Return each sum of distances between exact counts and expected counts, plus noise.

    The sum measures how badly synthetic data fit the real rows.
    """
    sums = [
        sum(
            int(np.abs(one.misfit.scale * unseal(held).parts[0] - expected).sum())
            for held, expected in zip(counts, one.expected, strict=True)
        )
        for counts, one in zip(sealed, misfits.numbers, strict=True)
    ]
    return tuple(_sum(np.array(sums, dtype=np.int64), np.concatenate(drawn)).tolist())
