"""Shamir's shares: enough of them give the secret, one too few say nothing of it."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.secret_sharing import PRIME, SHARE_BYTES, join, split
from support.seeded_dice import SeededDice

SECRET = bytes(range(32))


def test_the_field_is_a_field() -> None:
    """Miller and Rabin with forty bases: a composite passes with a chance below 4**-40."""
    odd = PRIME - 1
    twos = (odd & -odd).bit_length() - 1
    for base in range(2, 42):
        power = pow(base, odd >> twos, PRIME)
        squares = [pow(power, 1 << i, PRIME) for i in range(twos)]
        assert power == 1 or PRIME - 1 in squares


def test_every_choice_of_enough_shares_gives_the_secret() -> None:
    shares = split(SECRET, 3, [1, 2, 4, 7, 9], SeededDice(1))
    for places in combinations(shares, 3):
        assert join({place: shares[place] for place in places}, 3) == SECRET


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 99))
def test_whatever_is_split_comes_back(secret: bytes, threshold: int, seed: int) -> None:
    shares = split(secret, threshold, range(1, 8), SeededDice(seed))
    assert join(shares, threshold) == secret


def test_one_share_too_few_fits_every_secret_equally() -> None:
    """For each other secret there is one polynomial through the same two shares."""
    shares = split(SECRET, 3, [1, 2, 3], SeededDice(2))
    two = {place: shares[place] for place in (1, 2)}
    assert join(two, 3) is None
    found = {join({**two, 3: third.to_bytes(SHARE_BYTES, "little")}, 3) for third in range(50)}
    assert len(found - {None}) > 45


def test_shares_of_the_same_secret_differ_each_time() -> None:
    dice = SeededDice(3)
    first, second = (split(SECRET, 2, [1, 2, 3], dice) for _ in range(2))
    assert all(first[place] != second[place] for place in first)


def test_shares_outside_the_field_give_nothing() -> None:
    shares = split(SECRET, 2, [1, 2], SeededDice(4))
    assert join({**shares, 1: b"\xff" * SHARE_BYTES}, 2) is None


@pytest.mark.parametrize(
    ("secret", "threshold", "places"),
    [(b"short", 1, [1]), (SECRET, 3, [1, 2]), (SECRET, 0, [1]), (SECRET, 1, [0, 1])],
)
def test_what_cannot_be_split_is_a_bug(secret: bytes, threshold: int, places: list[int]) -> None:
    with pytest.raises(Bug):
        split(secret, threshold, places, SeededDice(5))
