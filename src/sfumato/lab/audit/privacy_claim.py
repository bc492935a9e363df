"""Define the claims that an audit tests: epsilon, rho, or a Renyi divergence of order 2."""

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

# the target epsilons with which an event for a divergence is searched
TARGET_EPSILONS: Final = (0.0, 2.0, 4.0)
SEARCH_ALPHA: Final = 0.01  # the alpha of the bounds by which one of these events is chosen


class Claim(Protocol):
    """The interface of a privacy claim that an audit tests: an upper bound of a privacy loss."""

    @property
    def value(self) -> float:
        """Return the claimed upper bound."""
        ...

    @property
    def delta(self) -> float:
        """Return the claimed delta, or 0 if the claim has none."""
        ...

    @property
    def words(self) -> str:
        """Return the name of the claimed parameter, such as "epsilon" or "rho"."""
        ...

    def event(self, past: Trials, lower: float) -> Event:
        """Choose a guessing rule (event) on past runs; `lower` is the bound proved so far."""
        ...

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return a lower bound of the claimed parameter's true value, from fresh runs.

        The bound is wrong with a chance of at most alpha.
        """
        ...


@dataclass(frozen=True)
class EpsilonClaim:
    """A claim of (epsilon, delta)-DP."""

    value: float
    delta: float = 0.0
    words: str = "epsilon"

    def event(self, past: Trials, lower: float) -> Event:
        """Return the rule with the most evidence against the larger of claim and proved bound."""
        target = lower if math.isinf(self.value) else max(lower, self.value)
        return best_event(past, target=target, delta=self.delta)

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return the lower bound of epsilon that the right guesses on fresh runs prove."""
        return epsilon_above(event.score(fresh), self.delta, alpha)


@dataclass(frozen=True)
class RhoClaim:
    """A claim of rho-zCDP: for any event, the relative entropy of its chances is at most rho.

    It is that of the event's chances on the two data sets, in both directions.
    """

    value: float
    delta: float = 0.0
    words: str = "rho"

    def event(self, past: Trials, lower: float) -> Event:
        """Return the guessing rule that proves the largest lower bound on past runs.

        The candidates guess often, or rarely but with certainty. Frequent guesses are not enough:
        of one-sided noise, only one output in six reveals the data set.
        """
        del lower
        found = [best_event(past, target=target, delta=0.0) for target in TARGET_EPSILONS]
        found += [event.with_the_rest for event in found]
        return max(found, key=lambda event: self.proved(event, past, SEARCH_ALPHA))

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return a lower bound of rho: the relative entropy of the event "the second is guessed".

        "The second" is the second data set.
        """
        return _apart(relative_entropy, event, fresh, alpha)


@dataclass(frozen=True)
class OrderTwoClaim(RhoClaim):
    """A claimed bound of the Renyi divergence of order 2 between the outputs on two data sets.

    The divergence of any single event is no larger, so an audit can test events.
    """

    words: str = "divergence of order 2"

    def proved(self, event: Event, fresh: Trials, alpha: float) -> float:
        """Return a lower bound of the order-2 divergence of the event "the second is guessed".

        "The second" is the second data set.
        """
        return _apart(divergence_of_order_2, event, fresh, alpha)


def _apart(
    divergence: Callable[[float, float], float], event: Event, fresh: Trials, alpha: float
) -> float:
    """Return a lower bound of the divergence between two chances: those of one event.

    The event is that the second data set is guessed; its chance differs between the two data sets.
    The bound uses the nearest ends of both chances' confidence intervals.
    """
    says, is_second = event.guessed(fresh) == 1, fresh.is_second
    ones, zeros = int(is_second.sum()), fresh.size - int(is_second.sum())
    hits, alarms = int((says & is_second).sum()), int((says & ~is_second).sum())
    hit = surely_above(hits, ones, alpha / 2)
    alarm = 1 - surely_above(zeros - alarms, zeros, alpha / 2)
    if hit <= alarm:
        return 0.0
    return max(divergence(hit, alarm), divergence(1 - alarm, 1 - hit))
