"""Rank each person's rows and groups of rows, which decides whether a row counts.

The rows come in the order in which they are stored: person by person, and of each person by the
keyed hash of the row. So `rr`, the rank of a row, is its place after the person's first row. A
person's groups are ordered by the keyed hash of their key, and then by its code. Proof:
engines/kernel/ranks.proof.md.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

# one word for each row, to sort them: its person, the first bits of its group's hash, its place;
# there are no more persons than places, so a word has 64 bits
_PLACE_BITS: Final = 20
_HASH_BITS: Final = 24
MOST_ROWS: Final = 1 << _PLACE_BITS  # that are ranked at once by words


def row_ranks(persons: NDArray[Any]) -> Integers:
    """Return the rank of each row among the rows of its person, from 1 on.

    Args:
        persons: The person of each row; the rows of a person are next to each other.
    """
    return _since(_starts(persons)) + 1


def group_ranks(
    persons: NDArray[Any], codes: Integers, hashes: Hashes
) -> tuple[Integers, Integers]:
    """Return two ranks of each row, from 1 on: of its group for the person, and in its group.

    Rows without a group have the ranks 0. They come last, so they change no other rank.

    Args:
        persons: The person of each row; the rows of a person are next to each other.
        codes: The code of the group of each row; -1 without a group.
        hashes: The keyed hash of the person and the group.
    """
    people = np.cumsum(_starts(persons)) - 1
    order = _sorted(people, codes, hashes)
    of_person, of_code = people[order], codes[order]
    new_person = _starts(of_person)
    new_group = new_person | _starts(of_code) | _starts(hashes[order])
    groups = np.cumsum(new_group)
    first = np.flatnonzero(new_person)
    group_rank: Integers = groups - np.repeat(groups[first] - 1, np.diff([*first, len(order)]))
    is_grouped = of_code >= 0
    ranks = np.zeros((2, len(order)), np.int64)
    ranks[0, order] = np.where(is_grouped, group_rank, 0)
    ranks[1, order] = np.where(is_grouped, _since(new_group) + 1, 0)
    return ranks[0], ranks[1]


def _sorted(people: Integers, codes: Integers, hashes: Hashes) -> Integers:
    """Return the places of the rows by person, then hash, then code; equal ones in their order.

    Rows without a group come last. One word for each row is sorted faster than three columns, but
    has only the first bits of a hash. If two groups of a person have the same bits, columns decide.
    """
    without = codes < 0
    if len(people) <= MOST_ROWS:
        first_bits = hashes >> np.uint64(64 - _HASH_BITS)
        words = people.astype(np.uint64) << np.uint64(_HASH_BITS)
        words |= np.where(without, np.uint64((1 << _HASH_BITS) - 1), first_bits)
        words <<= np.uint64(_PLACE_BITS)
        words |= np.arange(len(people), dtype=np.uint64)
        words.sort()
        order = (words & np.uint64(MOST_ROWS - 1)).astype(np.int64)
        words >>= np.uint64(_PLACE_BITS)
        sorted_codes = codes[order]
        if not np.any((words[1:] == words[:-1]) & (sorted_codes[1:] != sorted_codes[:-1])):
            return order
    return np.lexsort((codes, hashes, without, people))


def _starts(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each value whether it differs from the value before."""
    starts = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def _since(starts: NDArray[np.bool_]) -> Integers:
    """Return how many places each place is after the last start."""
    first = np.flatnonzero(starts)
    return np.arange(len(starts)) - np.repeat(first, np.diff([*first, len(starts)]))
