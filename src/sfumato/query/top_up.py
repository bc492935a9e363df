"""Top up an earlier answer: independent noise at the difference of two prices.

Soundness rule 7: Laplace noise for epsilon_2 - epsilon_1, or Gaussian noise for rho_2 - rho_1,
charged as exactly that event. The new answer is the inverse-variance mean of all draws. Private
keys that were selected are kept, so the whole difference pays for the values.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Never

from sfumato.dp.accounting.privacy_events import Event, GaussianEvent, PureEvent
from sfumato.dp.accounting.zcdp_conversion import epsilon_at, rho_within
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.earlier_answer import Earlier
from sfumato.query.plan import Plan
from sfumato.query.price import Priced, price_at


def top_up_at(plan: Plan, earlier: Earlier, epsilon: Fraction, delta: Fraction | None) -> Priced:
    """Price a top-up of the earlier answer to the total `epsilon`, or refuse."""
    _check(plan, earlier, epsilon, delta)
    kinds = {noise.kind for draw in earlier.draws for noise in draw.noises}
    event, noises = (_laplace if kinds == {"laplace"} else _gaussian)(plan, earlier, epsilon)
    priced = Priced(
        plan,
        event.epsilon,
        event.delta if isinstance(event, GaussianEvent) else Fraction(0),
        event,
        noises,
        earlier=earlier,
        total=epsilon,
    )
    if not all(noise.is_drawable() for noise in noises):
        _refuse("The difference in epsilon is too small for its noise to be drawn exactly.")
    return priced


def one_draw_at(plan: Plan, priced: Priced) -> Priced:
    """Price the same query as one new draw at the total price, to compare it with a top-up."""
    earlier = priced.earlier
    delta = Fraction(0) if earlier is None else earlier.delta
    return price_at(plan, priced.total or priced.epsilon, delta)


def _laplace(
    plan: Plan, earlier: Earlier, epsilon: Fraction
) -> tuple[PureEvent, tuple[Noise, ...]]:
    added = epsilon - earlier.epsilon
    parts = plan.parts
    noises = [Noise("laplace", laplace.scale_for(b.l1, added * b.weight)) for b in parts]
    return PureEvent(added), tuple(noises)


def _gaussian(plan: Plan, earlier: Earlier, epsilon: Fraction) -> tuple[Event, tuple[Noise, ...]]:
    """Return a top-up's Gaussian event to charge, and its noise, for the difference in rho.

    The event also states the epsilon that follows from this difference.
    """
    chosen, chosen_delta = earlier.selection or (Fraction(0), Fraction(0))
    delta = earlier.delta - chosen_delta
    before, after = (rho_within(whole - chosen, delta) for whole in (earlier.epsilon, epsilon))
    rho = after - before
    if rho <= 0:
        _refuse("The difference in epsilon is too small for its noise to be drawn exactly.")
    noises = [
        Noise("gaussian", gaussian.variance_for(b.l2_squared, rho * b.weight)) for b in plan.parts
    ]
    return GaussianEvent(rho, epsilon_at(rho, delta), delta), tuple(noises)


def _check(plan: Plan, earlier: Earlier, epsilon: Fraction, delta: Fraction | None) -> None:
    if plan.digest() != earlier.plan:
        raise Refused(
            "top-up-unknown",
            "The earlier answer is to another question, or has another version or other "
            "contribution bounds.",
            "Repeat the same question with the same max_groups and max_rows. A new version of "
            "the data needs a new answer.",
        )
    if any(bounded.part.choice is not None for bounded in plan.parts):
        _refuse(
            "Quantiles, minimum, maximum and most frequent values are chosen at random, not sums "
            "with noise, so they cannot be topped up."
        )
    if any(bounded.axis is not None for bounded in plan.parts):
        _refuse("Running counts cannot be topped up, because neighbouring ones share their noise.")
    if earlier.keys is not None and not earlier.keys:
        _refuse("The earlier answer shows no group, so there is nothing to top up.")
    if epsilon <= earlier.epsilon:
        _refuse("The new epsilon is not above the epsilon of the earlier answer.")
    if delta is not None and earlier.delta not in (0, delta):
        _refuse("The earlier answer has another delta.")


def _refuse(cause: str) -> Never:
    raise Refused(
        "top-up-impossible",
        cause,
        "Give a larger epsilon: the whole price, not the difference. Or ask without a top-up.",
    )
