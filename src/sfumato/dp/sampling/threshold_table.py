"""Exact inversion sampling from a table of certified thresholds, without floats.

A uniform number in [0, 1) falls between two thresholds P(X <= k), and that k is the draw:

1. 16 random bits select a cell of a guide table. If no threshold is inside the cell, the guide
   gives the outcome.
2. Otherwise 48 more bits are drawn. A binary search finds the outcome among the floors of 2**64
   times the thresholds.
3. If the 64 bits *equal* a floor, more bits and finer thresholds decide; the precision doubles
   until the outcome is certain.

So the draw is exact with probability one, and the tail is not truncated
(`tests/dp/sampling/test_threshold_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, Uniform

Integers = NDArray[np.int64]
# A distribution: maps a number of bits to bounds of P(X <= k) for k = 0, 1, 2, ..., each below 1.
# For infinitely many outcomes the iterator never ends; for finitely many it omits the last one.
Distribution = Callable[[int], Iterator[Interval]]

CELL_BITS: Final = 16
REST_BITS: Final = 48
FLOOR_BITS: Final = 64
CHUNK: Final = 1 << 17  # draws per chunk, so that the arrays stay in the CPU cache
MAX_OUTCOME: Final = (1 << 15) - 2  # so that 1 + (outcome << 48 | low bits) fits in 64 bits
_TOP: Final = (1 << FLOOR_BITS) - 1
_FIRST_BITS: Final = 192
_OPEN: Final = -1


@dataclass(frozen=True, eq=False)
class Table:
    """A distribution ready for exact sampling: its thresholds, and a guide by the first 16 bits.

    `floors` has floor(2**64 P(X <= k)) for each outcome k. `guide` gives the outcome for each value
    of the first 16 random bits, where these decide it.
    """

    distribution: Distribution
    floors: NDArray[np.uint64]
    guide: NDArray[np.int16]


def table_of(distribution: Distribution) -> Table:
    """Build the sampling table of a distribution: its thresholds, and a guide to find outcomes."""
    floors = np.array(certified_floors(distribution), dtype=np.uint64)
    if floors.size >= 1 << 15:
        raise Bug("a table of noise is too long for its guide")
    return Table(distribution, floors, _guide(floors))


def certified_floors(distribution: Distribution) -> list[int]:
    """Return floor(2**64 P(X <= k)) for k = 0, 1, ..., up to the first that is 2**64 - 1.

    The integers are certain: the code raises the precision until each is decided.
    """
    bits = _FIRST_BITS
    while (floors := _floors_at(distribution, bits)) is None:
        bits *= 2
    return floors


def _floors_at(distribution: Distribution, bits: int) -> list[int] | None:
    """Return floor(2**64 P(X <= k)) for each k, or None if `bits` of precision cannot decide one.

    The caller then tries again with more bits.
    """
    shift = bits - FLOOR_BITS
    floors: list[int] = []
    for low, high in distribution(bits):
        floor = low >> shift
        # a threshold is below 1, so its floor is at most _TOP
        if floor != min(high >> shift, _TOP):
            return None
        floors.append(floor)
        if floor == _TOP:
            break
    return floors


def _guide(floors: NDArray[np.uint64]) -> NDArray[np.int16]:
    """Return the outcome for each value of a draw's first 16 bits, or -1 if it needs more bits.

    With this table, most draws need no search.
    """
    cells = (floors >> np.uint64(REST_BITS)).astype(np.int64)
    cells_between = np.diff(cells, prepend=0, append=1 << CELL_BITS)
    guide = np.repeat(np.arange(floors.size + 1, dtype=np.int16), cells_between)
    guide[cells] = _OPEN
    return guide


def draw_from(table: Table, count: int, dice: RandomSource) -> Integers:
    """Draw `count` independent outcomes of the table's distribution, as 64-bit integers."""
    return draw_from_int16(table, count, dice).astype(np.int64)


def draw_from_int16(table: Table, count: int, dice: RandomSource) -> NDArray[np.int16]:
    """Draw `count` independent outcomes of the table's distribution, as 16-bit integers.

    MAX_OUTCOME, the largest outcome, fits in 16 bits.
    """
    cells = np.frombuffer(dice.draw(2 * count), dtype="<u2")
    found = table.guide.take(cells, mode="clip")  # no cell is ever clipped
    undecided = np.flatnonzero(found < 0)
    if undecided.size:
        found[undecided] = _search(table, cells[undecided], dice)
    return found


def _search(table: Table, cells: NDArray[np.uint16], dice: RandomSource) -> Integers:
    """Find the outcomes of the draws whose first 16 random bits do not decide them.

    Each such draw uses 48 more bits, and more bits on a tie.
    """
    uniforms = (cells.astype(np.uint64) << np.uint64(REST_BITS)) | _rests(cells.size, dice)
    places: Integers = np.searchsorted(table.floors, uniforms, side="left").astype(np.int64)
    nearest = table.floors[np.minimum(places, table.floors.size - 1)]
    for tie in np.flatnonzero(nearest == uniforms):
        known = Uniform(int(uniforms[tie]), FLOOR_BITS)
        places[tie] = resolve_tie(table.distribution, int(places[tie]), known, dice)
    return places


def _rests(count: int, dice: RandomSource) -> NDArray[np.uint64]:
    """Draw `count` uniform 48-bit integers: the bits that follow the first 16 of each draw."""
    padded = np.zeros((count, 8), dtype=np.uint8)
    padded[:, :6] = np.frombuffer(dice.draw(6 * count), dtype=np.uint8).reshape(count, 6)
    return padded.reshape(-1).view("<u8")


def resolve_tie(
    distribution: Distribution, outcome: int, uniform: Uniform, dice: RandomSource
) -> int:
    """Find the outcome for a uniform number that its first 64 bits do not decide.

    More bits are drawn until the outcome is certain. The result is at least `outcome`.
    """
    decided = False
    while not decided:
        uniform = uniform.longer(dice)
        outcome, decided = _advance(distribution, outcome, uniform)
    if outcome > MAX_OUTCOME:
        raise Bug("a draw of noise does not fit into 64 bits")  # see geometric.proof.md, the tail
    return outcome


def _advance(distribution: Distribution, outcome: int, uniform: Uniform) -> tuple[int, bool]:
    """Advance `outcome` past all thresholds that are certainly below the uniform number.

    Return the outcome, and whether the drawn bits make it final.
    """
    for threshold in islice(distribution(uniform.fine_bits), outcome, None):
        verdict = uniform.is_below(threshold)
        if verdict is None:
            return outcome, False
        if verdict:
            return outcome, True
        outcome += 1
    return outcome, True


def in_chunks(draw: Callable[[int], NDArray[np.signedinteger[Any]]], count: int) -> Integers:
    """Draw `count` numbers by several calls of `draw`, in chunks that fit in the CPU cache."""
    if count <= CHUNK:
        return draw(count).astype(np.int64, copy=False)
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK):
        part = drawn[start : start + CHUNK]
        part[:] = draw(part.size)
    return drawn


def signs(count: int, dice: RandomSource) -> Integers:
    """Draw `count` fair random signs: 0 for plus, -1 for minus."""
    octets = np.frombuffer(dice.draw((count + 7) // 8), dtype=np.uint8)
    return -np.unpackbits(octets, count=count).astype(np.int64)


def signed(magnitudes: Integers, minus: Integers) -> Integers:
    """Apply the signs that `signs` draws to magnitudes (two's complement: -x is ~x + 1)."""
    return (magnitudes ^ minus) - minus
