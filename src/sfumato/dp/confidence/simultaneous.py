"""A noise read at a stricter confidence, so that several intervals hold at once."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.ports import Dice, IntegerArray
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class SimultaneousNoise(Noise):
    """The same noise, whose intervals miss so many times less often; it is never drawn itself.

    A subclass, so that every verb reads it like the noise that it is.
    """

    noise: Noise | None = None
    times: int = 1

    def miss(self) -> Fraction:
        """Return how often its intervals may miss."""
        return (1 - CONFIDENCE) / self.times

    def std(self) -> float:
        """Return the standard deviation of the noise, in steps."""
        return self._noise().std()

    def margin(self) -> float:
        """Return a t with |noise| <= t at the stricter confidence."""
        return self.within(CONFIDENCE)

    def within(self, confidence: Fraction) -> float:
        """Return a t that the noise passes so many times less often than is asked."""
        return self._noise().within(1 - (1 - confidence) / self.times)

    def width(self) -> float:
        """Return the scale of the Laplace or the sigma of the Gaussian."""
        return self._noise().width()

    def sample(self, count: int, dice: Dice) -> IntegerArray:
        """Raise: it was drawn already."""
        raise Bug("a noise that is only read is never drawn")

    def as_json(self) -> Json:
        """Return the noise as the receipt prints it."""
        return self._noise().as_json()

    def _noise(self) -> Noise:
        if self.noise is None:
            raise Bug("a stricter reading of no noise")
        return self.noise


def simultaneous(noise: Noise, times: int) -> Noise:
    """Return the noise, read so that `times` intervals hold at once at 95 % (Bonferroni)."""
    return noise if times == 1 else SimultaneousNoise(noise.kind, noise.parameter, noise, times)
