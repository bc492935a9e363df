"""Poisson subsampling: secret coins say who is in one round of a lesson.

The coins are a fresh key, stretched by a cipher. The key is drawn in the door, for one look at the
rows. It goes to the process that reads them, and is kept nowhere and told nobody: that is what a
sample costs less for (dp/accounting/poisson_subsampling.proof.md).
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

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug

KEY_BYTES: Final = 32
_WORD: Final = 8  # bytes of a coin
_AT_ONCE: Final = 1 << 20  # people


@dataclass(frozen=True)
class PoissonSample:
    """A coin for each person of a table, by their number there."""

    key: bytes = field(repr=False)
    below: int  # a word of 64 bits that is smaller says yes

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or not 0 < self.below < 1 << 64:
            raise Bug("coins have a key, and say both yes and no")

    @classmethod
    def fresh(cls, chance: Fraction, dice: Dice) -> Self:
        """Return coins that nobody has tossed before; each says yes with at most that chance."""
        return cls(dice.draw(KEY_BYTES), most_below(chance))

    def tossed(self, people: int) -> NDArray[np.bool_]:
        """Return who is in, of so many people."""
        stream = Cipher(AES(self.key), CTR(bytes(16))).encryptor()
        found = np.empty(people, dtype=np.bool_)
        for start in range(0, people, _AT_ONCE):
            part = found[start : start + _AT_ONCE]
            words = np.frombuffer(stream.update(bytes(_WORD * len(part))), dtype="<u8")
            np.less(words, np.uint64(self.below), out=part)
        return found


def most_below(chance: Fraction) -> int:
    """Return how many of the words of 64 bits say yes; rounded down, since that costs no more."""
    return chance.numerator * (1 << 64) // chance.denominator
