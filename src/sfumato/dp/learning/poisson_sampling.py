"""Poisson subsampling: sample the people of one training round with a secret key.

A stream cipher expands a fresh random key to one coin per person. The door (the process that writes
the ledger) draws the key for one read of the rows. The key goes only to the process that reads
them. It is not stored and not disclosed. Privacy amplification needs this secrecy
(dp/accounting/poisson_subsampling.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug

KEY_BYTES: Final = 32
_WORD: Final = 8  # random bytes per person
_AT_ONCE: Final = 1 << 20  # people per block


@dataclass(frozen=True)
class PoissonSample:
    """The secret random sample of people for one training round (Poisson subsampling).

    A key decides for each person number whether the person is sampled.
    """

    key: bytes = field(repr=False)
    below: int  # a person is sampled if their 64-bit word is below this

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 0 < self.below < 1 << 64:
            raise Bug("coins have a key, and say both yes and no")

    @classmethod
    def fresh(cls, chance: Fraction, dice: RandomSource) -> Self:
        """Draw the key of a new sample, in which each person is with probability `chance`.

        The probability is rounded down to a multiple of 2**-64.
        """
        return cls(dice.draw(KEY_BYTES), most_below(chance))

    def tossed(self, people: int) -> NDArray[np.bool_]:
        """Return a mask of the sampled people, over the person numbers 0 to `people` - 1."""
        stream = Cipher(AES(self.key), CTR(bytes(16))).encryptor()
        found = np.empty(people, dtype=np.bool_)
        for start in range(0, people, _AT_ONCE):
            part = found[start : start + _AT_ONCE]
            words = np.frombuffer(stream.update(bytes(_WORD * len(part))), dtype="<u8")
            np.less(words, np.uint64(self.below), out=part)
        return found


def most_below(chance: Fraction) -> int:
    """Convert a sampling probability to a threshold: random 64-bit words below it mean sampled.

    It is rounded down, so that the sampling probability never exceeds `chance`.
    """
    return chance.numerator * (1 << 64) // chance.denominator
