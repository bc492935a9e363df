"""What a mechanism claims, and what guesses on fresh coins prove against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.lab.audit.epsilon_lower_bounds import (
    divergence_of_order_2,
    epsilon_above,
    relative_entropy,
    surely_above,
)
from sfumato.lab.audit.guess_event import Event, Trials, best_event

SURELY: Final = (0.0, 2.0, 4.0)  # epsilons against which the events of a divergence are sought
LIKELY: Final = 0.01  # how wrong the bounds may be that such an event is chosen by


class Claim(Protocol):
    """A number that is claimed to be an upper bound of a privacy loss."""

    @property
    def value(self) -> float:
        """Return the number."""
        ...

    @property
    def delta(self) -> float:
        """Return the delta beside it; 0 for none."""
        ...

    @property
    def words(self) -> str:
        """Return what the number is called."""
        ...

    def event(self, past: Trials, lower: float) -> Event:
        """Return what to guess from, so much being proved already; past runs prove nothing."""
        ...

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return a lower bound of the true number, wrong with a chance of at most alpha."""
        ...


@dataclass(frozen=True)
class EpsilonClaim:
    """(epsilon, delta)-DP."""

    value: float
    delta: float = 0.0
    words: str = "epsilon"

    def event(self, past: Trials, lower: float) -> Event:
        """Return what speaks most against the larger of what is claimed and what is proved."""
        target = lower if math.isinf(self.value) else max(lower, self.value)
        return best_event(past, target=target, delta=self.delta)

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return the bound by right guesses."""
        return epsilon_above(event.score(fresh), self.delta, alpha)


@dataclass(frozen=True)
class RhoClaim:
    """rho-zCDP: then the relative entropy of any event is at most rho, both ways round."""

    value: float
    delta: float = 0.0
    words: str = "rho"

    def event(self, past: Trials, lower: float) -> Event:
        """Return an event that tells the sides apart often, or one that does so surely.

        Often is not enough: of one-sided noise what gives it away is one output in six.
        """
        del lower
        found = [best_event(past, target=target, delta=0.0) for target in SURELY]
        found += [event.with_the_rest for event in found]
        return max(found, key=lambda event: self.proved(event, past, LIKELY))

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return the relative entropy of the event "the guess is the second side"."""
        return _apart(relative_entropy, event, fresh, alpha)


@dataclass(frozen=True)
class OrderTwoClaim(RhoClaim):
    """A bound of Renyi's divergence of order 2, which no event passes either."""

    words: str = "divergence of order 2"

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return that divergence of the same event."""
        return _apart(divergence_of_order_2, event, fresh, alpha)


def _apart(
    divergence: Callable[[float, float], float], event: Event, fresh: Trials, alpha: float
) -> float:
    """Return how far the event sets the sides apart, at the near ends of both its chances."""
    says, is_second = event.guessed(fresh) == 1, fresh.is_second
    ones, zeros = int(is_second.sum()), fresh.size - int(is_second.sum())
    hits, alarms = int((says & is_second).sum()), int((says & ~is_second).sum())
    hit = surely_above(hits, ones, alpha / 2)
    alarm = 1 - surely_above(zeros - alarms, zeros, alpha / 2)
    if hit <= alarm:
        return 0.0
    return max(divergence(hit, alarm), divergence(1 - alarm, 1 - hit))
