"""Blind RSA signatures (RFC 9474): a server signs a token that it never sees.

The variant is RSABSSA-SHA384-PSS-Deterministic. A token is 32 random bytes of the respondent's own,
so it needs no random prefix against guessing, and the device stores one value fewer.
"Deterministic" is about the message's preparation; the PSS salt is random.

A malicious key could mark people. If the exponent divides the order of the group, a blinded token
is not uniform, and one message has several signatures. So each key comes with a proof: the roots
of eight numbers that a hash derives from the key (Goldberg, Reyzin, Sagga and Baldimtsi 2018).
Under a malicious key at most one number in 65537 has a root, so all eight have one by chance once
in 2**128. Respondents check the proof before they blind a token.

This module has the arithmetic alone; the respondent's page has it in JavaScript as well. A library
makes, stores and loads the keys, and verifies finished signatures
(features/surveys/ballot_key_store.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused

HASH_BYTES: Final = 48  # length in bytes of SHA-384, and of the salt
TOKEN_BYTES: Final = 32
EXPONENT: Final = 65537  # a prime, on which the proof by roots depends
SMALLEST_KEY, LARGEST_KEY = 2048, 4096  # the allowed key sizes in bits
# number of roots in a proof; under a malicious key, each exists with a chance of 1/65537
ROOTS: Final = 8
_TRAILER: Final = 0xBC
_PROOF: Final = b"sfumato-key-proof/1\n"


@dataclass(frozen=True)
class PublicKey:
    """The public half of the key that signs the ballot tokens of one survey."""

    modulus: int
    exponent: int

    @property
    def size(self) -> int:
        """Return the length of a signature by this key in bytes."""
        return (self.modulus.bit_length() + 7) // 8


@dataclass(frozen=True)
class PrivateKey:
    """The private half of a survey's signing key, with its primes."""

    public: PublicKey
    p: int
    q: int
    d: int


@dataclass(frozen=True)
class Blinded:
    """A blinded ballot token to be signed, and the number that unblinds its signature.

    That number (`inverse`) never leaves the device.
    """

    message: bytes
    inverse: int


def blind(key: PublicKey, token: bytes, dice: RandomSource) -> Blinded:
    """Blind a ballot token with a random factor, so that the server signs it without seeing it.

    Without the inverse of the factor, the blinded token is a uniformly random number.
    """
    salt = dice.draw(HASH_BYTES)
    while True:
        factor = int.from_bytes(dice.draw(key.size + 16), "big") % key.modulus  # bias: 2**-128
        if factor > 1 and gcd(factor, key.modulus) == 1:
            return blind_with(key, token, salt, factor)


def blind_with(key: PublicKey, token: bytes, salt: bytes, factor: int) -> Blinded:
    """Blind a ballot token with a given PSS salt and blinding factor; `blind` draws both."""
    encoded = int.from_bytes(encode(token, key.modulus.bit_length() - 1, salt), "big")
    # a factor that shares a divisor with the modulus would make the token recognisable
    if gcd(encoded, key.modulus) != 1:
        raise unproven()
    hidden = encoded * pow(factor, key.exponent, key.modulus) % key.modulus
    return Blinded(hidden.to_bytes(key.size, "big"), pow(factor, -1, key.modulus))


def read_blinded(key: PublicKey, message: bytes) -> int:
    """Parse a blinded token as a number; refuse one that can't be signed with this key."""
    number = int.from_bytes(message, "big")
    if len(message) != key.size or not 1 < number < key.modulus:
        raise Refused(
            "bad-request",
            "The request has no valid blinded ballot token.",
            "Load the survey's page again, and answer there.",
        )
    return number


def sign(key: PrivateKey, message: bytes, dice: RandomSource) -> bytes:
    """Sign a blinded ballot token; refuse a number that can't be a blinded token of this key.

    Python's pow is not constant-time. So the number is first multiplied by the public power of a
    random mask. Then the time of the private power tells the sender nothing about the key.
    """
    public = key.public
    number = read_blinded(public, message)
    mask = int.from_bytes(dice.draw(public.size + 16), "big") % public.modulus
    while gcd(mask, public.modulus) != 1:
        mask = int.from_bytes(dice.draw(public.size + 16), "big") % public.modulus
    masked = number * pow(mask, public.exponent, public.modulus) % public.modulus
    signed = _root(key, masked) * pow(mask, -1, public.modulus) % public.modulus
    # verify the signature before it leaves, because a faulty one would reveal the key
    if pow(signed, public.exponent, public.modulus) != number:
        raise Bug("a blind signature that does not verify")
    return signed.to_bytes(public.size, "big")


def unblind(key: PublicKey, signed: bytes, inverse: int) -> bytes:
    """Unblind a signature; it is not verified here, so the caller must verify it."""
    number = int.from_bytes(signed, "big")
    if len(signed) != key.size or number >= key.modulus:
        raise Refused(
            "bad-request",
            "The service's signature of your ballot token is not valid.",
            "Ask for the ballot token again with the same invitation.",
        )
    return (number * inverse % key.modulus).to_bytes(key.size, "big")


def prove(key: PrivateKey, dice: RandomSource) -> tuple[bytes, ...]:
    """Prove that a key can't make signatures that identify people.

    The proof is the roots of numbers that a hash derives from the key.
    """
    size = key.public.size
    return tuple(sign(key, number.to_bytes(size, "big"), dice) for number in _nobodys(key.public))


def is_proven(key: PublicKey, roots: Sequence[bytes]) -> bool:
    """Return True if the roots prove that a key can't make signatures that identify people.

    With a proven key every invertible number has exactly one root. So a blinded token reveals
    nothing about the token.
    """
    is_sized = SMALLEST_KEY <= key.modulus.bit_length() <= LARGEST_KEY
    if not is_sized or key.modulus < 0 or key.modulus % 2 == 0:
        return False
    if key.exponent != EXPONENT or len(roots) != ROOTS:
        return False
    return all(
        gcd(number, key.modulus) == 1
        and pow(int.from_bytes(root, "big"), key.exponent, key.modulus) == number
        for number, root in zip(_nobodys(key), roots, strict=True)
    )


def unproven() -> Refused:
    """Return the refusal of a key that could make signatures which identify respondents."""
    return Refused(
        "ballot-forged",
        "The survey's signing key could be made to recognise people, so this device does not "
        "trust it.",
        "Nothing was sent. Ask who invited you.",
    )


def _nobodys(key: PublicKey) -> list[int]:
    """Derive from a key the numbers whose roots prove that it is honest.

    A hash of the key gives the numbers, so nobody chooses them. Their bias is 2**-128.
    """
    start = _PROOF + key.modulus.to_bytes(key.size, "big")
    seeds = (hashlib.sha384(start + bytes([place])).digest() for place in range(ROOTS))
    wide = (int.from_bytes(_stretched(seed, key.size + 16), "big") for seed in seeds)
    return [number % key.modulus for number in wide]


def encode(message: bytes, bits: int, salt: bytes) -> bytes:
    """Encode a message for an RSA signature in `bits` bits, by EMSA-PSS (RFC 8017, 9.1.1)."""
    length = (bits + 7) // 8
    if length < HASH_BYTES + len(salt) + 2:
        raise Bug("a key that is too short for its hash")
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(length - len(salt) - HASH_BYTES - 2) + b"\x01" + salt
    mask = _stretched(digest, length - HASH_BYTES - 1)
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=True))
    masked[0] &= 0xFF >> (8 * length - bits)
    return bytes(masked) + digest + bytes([_TRAILER])


def _stretched(seed: bytes, length: int) -> bytes:
    """Derive `length` pseudo-random bytes from a seed: MGF1 of RFC 8017, with SHA-384."""
    rounds = range(-(-length // HASH_BYTES))
    parts = (hashlib.sha384(seed + n.to_bytes(4, "big")).digest() for n in rounds)
    return b"".join(parts)[:length]


def _root(key: PrivateKey, number: int) -> int:
    """Raise a number to the private RSA exponent, its e-th root, by the Chinese remainder theorem.

    The public exponent is e.
    """
    by_p = pow(number, key.d % (key.p - 1), key.p)
    by_q = pow(number, key.d % (key.q - 1), key.q)
    return by_q + key.q * (pow(key.q, -1, key.p) * (by_p - by_q) % key.p)
