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
    """The privacy cost of a release in whole units, which the accountant adds up.

    The privacy filter (privacy_filter.py) has two tests. Its first test uses the pair (epsilon,
    delta), and its second test the pair (rho, rho_delta).
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
    """The privacy loss of an (epsilon, 0)-DP release: Laplace, geometric, randomised response."""

    epsilon: Fraction
    name: str = "pure/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon)


@dataclass(frozen=True)
class GaussianEvent:
    """The privacy loss of a rho-zCDP release, also given as (epsilon, delta)-DP.

    zcdp_conversion.py converts rho to (epsilon, delta).
    """

    rho: Fraction
    epsilon: Fraction
    delta: Fraction
    name: str = "gaussian/1"

    def __post_init__(self) -> None:
        _check_loss(self.rho, self.epsilon, self.delta)


@dataclass(frozen=True)
class ApproximateEvent:
    """The privacy loss of an (epsilon, delta)-DP release without a zCDP guarantee.

    An example is partition selection.
    """

    epsilon: Fraction
    delta: Fraction
    name: str = "approximate/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon, self.delta)


@dataclass(frozen=True)
class ThresholdEvent:
    """The privacy loss of a release that is rho-zCDP except with probability `tail`.

    The release is also (epsilon, delta)-DP. An example is Gaussian partition selection
    (gaussian_partition_selection.py).
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
    """The privacy loss of a release by the exponential mechanism: (epsilon, 0)-DP.

    It costs less rho than other pure releases, because its privacy loss is in an interval of
    width epsilon.
    """

    epsilon: Fraction
    name: str = "exponential/1"

    def __post_init__(self) -> None:
        _check_loss(self.epsilon)

    @property
    def delta(self) -> Fraction:
        """Return 0, because the exponential mechanism is pure (epsilon-DP without a delta)."""
        return Fraction(0)


SingleEvent = PureEvent | GaussianEvent | ApproximateEvent | ThresholdEvent | ExponentialEvent


@dataclass(frozen=True)
class JointEvent:
    """The privacy loss of two or more releases charged as one; their sum is rounded up once."""

    parts: tuple[SingleEvent, ...]
    name: str = "joint/1"

    @property
    def epsilon(self) -> Fraction:
        """Return the sum of the epsilons of all releases in this event."""
        return sum((part.epsilon for part in self.parts), Fraction(0))

    @property
    def delta(self) -> Fraction:
        """Return the sum of the deltas of all releases in this event."""
        return sum((_exact(part)[1] for part in self.parts), Fraction(0))


Event = SingleEvent | JointEvent


@lru_cache(maxsize=1024)
def privacy_cost(event: Event) -> PrivacyCost:
    """Return the cost of a release for both tests of the privacy filter, in units rounded up.

    The first test uses epsilon and delta, the second rho and rho_delta. The proof is in
    privacy_filter.proof.md.
    """
    if isinstance(event, JointEvent):
        losses = [_exact(part) for part in event.parts]
        return _debt(*(sum(column, Fraction(0)) for column in zip(*losses, strict=True)))
    return _debt(*_exact(event))


def _exact(event: SingleEvent) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return the exact epsilon, delta, rho and rho_delta that the event of one release costs."""
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
