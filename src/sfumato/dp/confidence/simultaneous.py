"""Simultaneous confidence intervals: a Noise with stricter confidence (Bonferroni)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class SimultaneousNoise(Noise):
    """A noise for simultaneous intervals: each interval misses with 1/`times` of the probability.

    It is a subclass of Noise, so that every aggregate treats it like the noise that it wraps.
    Nothing ever samples it.
    """

    noise: Noise | None = None
    times: int = 1

    def miss(self) -> Fraction:
        """Return the probability that one of its intervals misses the exact value."""
        return (1 - CONFIDENCE) / self.times

    def std(self) -> float:
        """Return the standard deviation of the noise, in steps."""
        return self._noise().std()

    def margin(self) -> float:
        """Return a t with |noise| <= t at the stricter confidence, in steps."""
        return self.within(CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return a t that the noise exceeds with probability at most (1 - confidence) / times."""
        return self._noise().within(1 - (1 - confidence) / self.times)

    def width(self) -> float:
        """Return the scale of the Laplace or the sigma of the Gaussian."""
        return self._noise().width()

    def sample(self, count: int, dice: RandomSource) -> IntegerArray:
        """Raise a Bug: the wrapped noise was sampled already."""
        raise Bug("a noise that is only read is never drawn")

    def as_json(self) -> Json:
        """Return the wrapped noise as JSON for the receipt."""
        return self._noise().as_json()

    def _noise(self) -> Noise:
        if self.noise is None:
            raise Bug("a stricter reading of no noise")
        return self.noise


def bonferroni(noise: Noise, times: int) -> Noise:
    """Wrap a noise so that `times` intervals hold simultaneously at 95 % (Bonferroni)."""
    return noise if times == 1 else SimultaneousNoise(noise.kind, noise.parameter, noise, times)
