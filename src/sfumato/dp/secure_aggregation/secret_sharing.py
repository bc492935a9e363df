"""Shamir sharing of a 256-bit secret: `threshold` shares recover it, and fewer reveal nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug

PRIME: Final = (
    1 << 256
) + 297  # the least prime above 2**256 (tests/dp/secure_aggregation/test_secret_sharing.py)
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33
MAX_PLACES: Final = 1 << 14  # size of the cache of modular inverses
_DRAWN_BYTES: Final = 48  # 384 bits modulo a 257-bit prime are uniform up to 2**-127


def split(
    secret: bytes, threshold: int, places: Sequence[int], dice: RandomSource
) -> dict[int, bytes]:
    """Split a secret into one share for each place; any `threshold` shares recover it.

    A place is an integer from 1: the x coordinate of the share.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= len(places) or min(places) < 1:
        raise Bug("a secret of 32 bytes is split among at least as many places as give it")
    coefficients = [int.from_bytes(secret, "little")]
    coefficients += [_uniform(dice) for _ in range(threshold - 1)]
    return {place: _value_at(coefficients, place) for place in places}


def _uniform(dice: RandomSource) -> int:
    return int.from_bytes(dice.draw(_DRAWN_BYTES), "little") % PRIME


def _value_at(coefficients: Sequence[int], place: int) -> bytes:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value.to_bytes(SHARE_BYTES, "little")


def join(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """Recover the secret from the first `threshold` shares; return None if they cannot be valid."""
    used = tuple(sorted(shares)[:threshold])
    values = {place: int.from_bytes(shares[place], "little") for place in used}
    if len(used) < threshold or any(value >= PRIME for value in values.values()):
        return None
    secret = _value_through(values, 0)
    return None if secret >> (8 * SECRET_BYTES) else secret.to_bytes(SECRET_BYTES, "little")


def is_consistent_share(shares: Mapping[int, bytes], place: int, share: bytes) -> bool:
    """Return whether a share agrees with `threshold` correct shares of the same secret.

    All correct shares are points of one polynomial, so this share must be one too.
    """
    values = {one: int.from_bytes(held, "little") for one, held in shares.items()}
    return _value_through(values, place) == int.from_bytes(share, "little")


def _value_through(values: Mapping[int, int], at: int) -> int:
    """Return the value at `at` of the polynomial through these points (Lagrange interpolation).

    `values` maps the x coordinate (place) of each point to its y coordinate. All arithmetic is
    modulo a prime.
    """
    places = tuple(sorted(values))
    whole, found = 1, 0
    for place, weight in zip(places, _weights(places), strict=True):
        whole = whole * (at - place) % PRIME
        found += values[place] * weight % PRIME * _inverse(at - place)
    return whole * found % PRIME


@lru_cache(maxsize=64)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange weight of each place: the inverse of the product of its distances.

    The distances are those to all other places, modulo a prime.
    """
    products = (prod(one - other for other in places if other != one) for one in places)
    return tuple(pow(product, -1, PRIME) for product in products)


@lru_cache(maxsize=MAX_PLACES)
def _inverse(distance: int) -> int:
    return pow(distance, -1, PRIME)
