"""Privacy events: the privacy loss of each release, as the accountant adds it in whole units.

The ledger stores the name of each event. A replay of an old ledger must always give the same sums,
so the formula of a name never changes. A new formula gets a new name.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS, units_up
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class PrivacyCost:
    """The cost of a release in whole units: (epsilon, delta) and (rho, rho_delta).

    The first pair enters the first test of the privacy filter, the second pair the second test
    (privacy_filter.py).
    """

    epsilon: int = 0
    delta: int = 0
    rho: int = 0
    rho_delta: int = 0

    def __add__(self, other: PrivacyCost) -> PrivacyCost:
        return PrivacyCost(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.rho + other.rho,
            self.rho_delta + other.rho_delta,
        )


@dataclass(frozen=True)
class PureEvent:
    """A release that is (epsilon, 0)-DP: Laplace, geometric, randomised response."""

    epsilon: Fraction
    name: str = "pure/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon)


@dataclass(frozen=True)
class GaussianEvent:
    """A release that is rho-zCDP; zcdp_conversion.py converts rho to (epsilon, delta)-DP."""

    rho: Fraction
    epsilon: Fraction
    delta: Fraction
    name: str = "gaussian/1"

    def __post_init__(self) -> None:
        _check_loss(self.rho, self.epsilon, self.delta)


@dataclass(frozen=True)
class ApproximateEvent:
    """A release that is (epsilon, delta)-DP without a zCDP guarantee, as in partition selection."""

    epsilon: Fraction
    delta: Fraction
    name: str = "approximate/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon, self.delta)


@dataclass(frozen=True)
class ThresholdEvent:
    """A release that is (epsilon, delta)-DP, and also rho-zCDP except with probability `tail`.

    Gaussian partition selection (gaussian_partition_selection.py) is one.
    """

    rho: Fraction
    tail: Fraction
    epsilon: Fraction
    delta: Fraction
    name: str = "threshold/1"

    def __post_init__(self) -> None:
        _check_loss(self.rho, self.tail, self.epsilon, self.delta)


@dataclass(frozen=True)
class ExponentialEvent:
    """A release by the exponential mechanism: (epsilon, 0)-DP.

    It costs less rho than other pure releases because its range is bounded.
    """

    epsilon: Fraction
    name: str = "exponential/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon)

    @property
    def delta(self) -> Fraction:
        """Return 0, because the exponential mechanism is pure."""
        return Fraction(0)


SingleEvent = PureEvent | GaussianEvent | ApproximateEvent | ThresholdEvent | ExponentialEvent


@dataclass(frozen=True)
class JointEvent:
    """Two or more releases with one price: the code adds their losses, then rounds up once."""

    parts: tuple[SingleEvent, ...]
    name: str = "joint/1"

    @property
    def epsilon(self) -> Fraction:
        """Return the sum of the epsilons."""
        return sum((part.epsilon for part in self.parts), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """Return the sum of the deltas."""
        return sum((_exact(part)[1] for part in self.parts), Fraction(0))


Event = SingleEvent | JointEvent


@lru_cache(maxsize=1024)
def privacy_cost(event: Event) -> PrivacyCost:
    """Return the event's cost under both filter tests, rounded up (privacy_filter.proof.md)."""
    if isinstance(event, JointEvent):
        losses = [_exact(part) for part in event.parts]
        return _debt(*(sum(column, Fraction(0)) for column in zip(*losses, strict=True)))
    return _debt(*_exact(event))


def _exact(event: SingleEvent) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return the exact epsilon, delta, rho and rho_delta of the event."""
    match event:
        case PureEvent(epsilon=epsilon):
            return epsilon, Fraction(0), epsilon**2 / 2, Fraction(0)
        case ExponentialEvent(epsilon=epsilon):  # dp/mechanisms/exponential.proof.md
            return epsilon, Fraction(0), epsilon**2 / 8, Fraction(0)
        case GaussianEvent(rho=rho, epsilon=epsilon, delta=delta):
            return epsilon, delta, rho, Fraction(0)
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            return epsilon, delta, epsilon**2 / 2, delta
        case ThresholdEvent(rho=rho, tail=tail, epsilon=epsilon, delta=delta):
            return epsilon, delta, rho, tail


def _check_loss(*losses: Fraction) -> None:
    if not all(isinstance(loss, Fraction) and loss > 0 for loss in losses):
        raise Bug("a loss is a fraction above zero: no float carries a debt, nothing is free")


def _debt(epsilon: Fraction, delta: Fraction, rho: Fraction, rho_delta: Fraction) -> PrivacyCost:
    return PrivacyCost(
        units_up(epsilon, EPSILON_UNITS),
        units_up(delta, DELTA_UNITS),
        units_up(rho, RHO_UNITS),
        units_up(rho_delta, DELTA_UNITS),
    )
