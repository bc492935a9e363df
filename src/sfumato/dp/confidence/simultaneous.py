"""Simultaneous confidence intervals by Bonferroni: noise whose intervals are wider."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class SimultaneousNoise(Noise):
    """The noise of one of `times` intervals that must all hold together (Bonferroni).

    Each interval misses with 1/`times` of the probability. It is a subclass of Noise, so that every
    aggregate treats it like the noise that it wraps. It cannot be sampled.
    """

    noise: Noise | None = None
    times: int = 1

    def miss(self) -> Fraction:
        """Return the probability that one of the simultaneous intervals misses the exact value."""
        return (1 - CONFIDENCE) / self.times

    def std(self) -> float:
        """Return the standard deviation of the noise, in grid steps.

        It is that of the wrapped noise: only the intervals are wider.
        """
        return self._noise().std()

    def margin(self) -> float:
        """Return a half-width so that all intervals hold together at 95 %, in grid steps."""
        return self.within(CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return a t that the noise exceeds with probability at most (1 - confidence) / times."""
        return self._noise().within(1 - (1 - confidence) / self.times)

    def width(self) -> float:
        """Return the scale of the wrapped Laplace noise, or the sigma of the Gaussian noise."""
        return self._noise().width()

    def sample(self, count: int, dice: RandomSource) -> IntegerArray:
        """Raise a Bug: the wrapped noise was already sampled for the release."""
        raise Bug("a noise that is only read is never drawn")

    def as_json(self) -> Json:
        """Return the wrapped noise as JSON, for the receipt of an answer."""
        return self._noise().as_json()

    def _noise(self) -> Noise:
        if self.noise is None:
            raise Bug("a stricter reading of no noise")
        return self.noise


def bonferroni(noise: Noise, times: int) -> Noise:
    """Return the noise with wider intervals, so that `times` of them hold together at 95 %.

    This is the Bonferroni correction.
    """
    return noise if times == 1 else SimultaneousNoise(noise.kind, noise.parameter, noise, times)
