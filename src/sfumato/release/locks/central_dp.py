"""The lock of `central-dp`: exact integers, plus noise that nobody has seen; keys, if chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.median_of_blocks import choose_median
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import Running
from sfumato.dp.mechanisms.spanning_tree import choose_tree, choose_worst
from sfumato.dp.ports import Dice, IntegerArray
from sfumato.dp.refusal import Bug
from sfumato.query.measure import Cells
from sfumato.query.price import Selection
from sfumato.release.unseal import unseal
from sfumato.vault.sealed import Sealed

GUARANTEE: Final = "central-dp"
LARGEST: Final = 2**62
Keys = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class BlockDraws:
    """Noise that is ready for the blocks of running counts: one draw for each block."""

    running: Running
    draws: NDArray[np.int64]


Drawn = NDArray[np.int64] | BlockDraws | PrivateChoice  # noise that is ready, or how to choose


@dataclass(frozen=True)
class Choosing:
    """How private keys are chosen: by which tally, at what price, and who draws the noise."""

    people: int  # the tally that counts the people of a key
    selection: Selection
    draw: Callable[[int, int], Drawn]  # part, count -> fresh noise, or how to choose
    dice: Dice
    further: Callable[[Keys], Iterable[Sealed[Cells]]] = lambda _: ()  # histograms of kept keys


@dataclass(frozen=True)
class Listed:
    """Where a histogram of kept keys stands among those that were counted of them."""

    among_lists: int


class Weighted(Protocol):
    """A candidate of a choice: how often its distance counts, less its penalty, and its ends."""

    @property
    def weight(self) -> int: ...
    @property
    def penalty(self) -> int: ...
    @property
    def ends(self) -> tuple[int, ...]: ...


class Distances(Protocol):
    """Candidates with the counts that are expected of each, and the rate of each round."""

    @property
    def kind(self) -> Literal["one", "tree"]: ...
    @property
    def candidates(self) -> Sequence[Weighted]: ...
    @property
    def expected(self) -> Sequence[NDArray[np.int64]]: ...
    @property
    def rate(self) -> Fraction: ...


class Scaled(Protocol):
    """How many parts of a count a whole number stands for."""

    @property
    def scale(self) -> int: ...


class Misfit(Protocol):
    """One number: how far counts lie from what is expected of them, in parts of a count."""

    @property
    def misfit(self) -> Scaled: ...
    @property
    def expected(self) -> Sequence[NDArray[np.int64]]: ...


class Misfits(Protocol):
    """Several such numbers."""

    @property
    def numbers(self) -> Sequence[Misfit]: ...


Place = int | Listed  # of a part's tally, among what was added up or among the histograms


@dataclass(frozen=True)
class Kept:
    """The private keys that an earlier answer released, and how a found key is spelled."""

    keys: Sequence[str]
    spelled: Callable[[tuple[object, ...]], str]
    dice: Dice


@dataclass(frozen=True)
class NoisyCells:
    """What may leave: noisy integers per part, and the keys that were chosen, if any were."""

    parts: tuple[IntegerArray, ...]
    keys: Keys | None = None


def add_noise(
    sealed: Sealed[Cells], tallies: Sequence[int], drawn: Sequence[Drawn], dice: Dice
) -> NoisyCells:
    """Return each part with its own noise added, one fresh draw per cell; or what was chosen."""
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    pairs = zip(tallies, drawn, strict=True)
    return NoisyCells(tuple(_softened(exact.parts[tally], with_, dice) for tally, with_ in pairs))


def select_partitions(
    sealed: Sealed[Cells], tallies: Sequence[Place], choosing: Choosing
) -> NoisyCells:
    """Return the parts of those keys that private selection keeps, each with its own noise.

    What is not kept leaves no trace: neither its row nor its noise (soundness rule 16). The keys
    come out in an order of their own values, and noise is drawn only for what is shown.
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
        if isinstance(tally, Listed)
        else _softened(exact.parts[tally][places], choosing.draw(part, len(places)), choosing.dice)
        for part, tally in enumerate(tallies)
    )
    return NoisyCells(parts, keys)


def _chosen_of_lists(
    keys: Keys, tallies: Sequence[Place], choosing: Choosing
) -> dict[int, IntegerArray]:
    """Return what is chosen for each kept key, by part; lists of some keys are held at a time."""
    listed = {part: tally for part, tally in enumerate(tallies) if isinstance(tally, Listed)}
    found: dict[int, list[IntegerArray]] = {part: [] for part in listed}
    for sealed in choosing.further(keys):
        exact = unseal(sealed)
        for part, tally in listed.items():
            counts = exact.parts[tally.among_lists]
            drawn = choosing.draw(part, len(counts))
            found[part].append(_softened(counts, drawn, choosing.dice))
    if any(sum(map(len, several)) != len(keys) for several in found.values()):
        raise Bug("the engine answered other keys than were kept")
    return {
        part: np.concatenate(several) if several else np.zeros((0, 1), dtype=np.int64)
        for part, several in found.items()
    }


def selected_before(
    sealed: Sealed[Cells], tallies: Sequence[int], drawn: Sequence[Drawn], kept: Kept
) -> NoisyCells:
    """Return the parts of exactly the keys that were released before, each with new noise.

    Nothing is chosen a second time; a kept key that the engine does not find counts as zero.
    """
    exact = unseal(sealed)
    if exact.keys is None:
        raise Bug("the engine answered no keys to look up")
    place_of = {kept.spelled(key): place for place, key in enumerate(exact.keys)}
    places = [place_of.get(key) for key in kept.keys]
    pairs = zip(tallies, drawn, strict=True)
    parts = (_softened(_at(exact.parts[tally], places), with_, kept.dice) for tally, with_ in pairs)
    return NoisyCells(tuple(parts))


def blocks_added(
    sealed: Sealed[IntegerArray], trim: int, drawn: Sequence[NDArray[np.int64]]
) -> tuple[int, ...]:
    """Return each output's sum over blocks, the lowest and highest left out, with its own noise.

    What a block says was clamped before; one block moves a sum by the width of the range at most
    (dp/sampling/sampling_in_blocks.proof.md).
    """
    ordered = np.sort(unseal(sealed), axis=0)
    sums = ordered[trim : len(ordered) - trim].sum(axis=0, dtype=np.int64)
    return tuple(_sum(sums, np.concatenate(drawn)).tolist())


def blocks_in_the_middle(
    sealed: Sealed[IntegerArray], steps: Sequence[int], epsilon: Fraction, dice: Dice
) -> tuple[int, ...]:
    """Return, for each number, a point of its range in the middle of what the blocks say.

    Each is chosen at that epsilon (dp/mechanisms/median_of_blocks.proof.md).
    """
    said = unseal(sealed)
    pairs = zip(said.T, steps, strict=True)
    return tuple(choose_median(values, top, epsilon, dice) for values, top in pairs)


def _at(part: IntegerArray, places: Sequence[int | None]) -> IntegerArray:
    found = [0 if place is None else int(part[place]) for place in places]
    return np.array(found, dtype=np.int64)


def _softened(part: IntegerArray, drawn: Drawn, dice: Dice) -> IntegerArray:
    if isinstance(drawn, PrivateChoice):
        return drawn.choose(part, dice)
    if isinstance(drawn, BlockDraws):
        return drawn.running.prefixes(_sum(drawn.running.blocks(part), drawn.draws))
    return _sum(part, drawn)


def _sum(part: IntegerArray, drawn: NDArray[np.int64]) -> IntegerArray:
    if part.shape != drawn.shape or part.dtype != np.int64:
        raise Bug("the engine answered other cells than were asked")
    if np.any((part > LARGEST) | (part < -LARGEST)):  # of the least number abs is itself
        raise Bug("a part passed the bound that the plan proved")
    return np.add(part, drawn)


def choose_farthest(
    sealed: Sequence[Sealed[Cells]], distances: Distances, dice: Dice
) -> tuple[int, ...]:
    """Return which candidates were chosen; how far any of them lies stays in here."""
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
    return (choose_worst(utilities, distances.rate, dice),)


def noisy_misfits(
    sealed: Sequence[Sequence[Sealed[Cells]]], misfits: Misfits, drawn: Sequence[NDArray[np.int64]]
) -> tuple[int, ...]:
    """Return how far the counts lie from what is expected, each sum with its own noise."""
    sums = [
        sum(
            int(np.abs(one.misfit.scale * unseal(held).parts[0] - expected).sum())
            for held, expected in zip(counts, one.expected, strict=True)
        )
        for counts, one in zip(sealed, misfits.numbers, strict=True)
    ]
    return tuple(_sum(np.array(sums, dtype=np.int64), np.concatenate(drawn)).tolist())
