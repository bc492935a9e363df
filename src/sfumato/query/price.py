"""Price a plan and predict its error, from the query and the card only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.accounting.privacy_events import (
    Event,
    GaussianEvent,
    JointEvent,
    PureEvent,
    SingleEvent,
)
from sfumato.dp.accounting.zcdp_conversion import epsilon_at, rho_within
from sfumato.dp.budget import MAX_EPSILON, MIN_EPSILON
from sfumato.dp.mechanisms import gaussian, laplace
from sfumato.dp.mechanisms.averaged_noise import average_noise
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.partition_selection import (
    keep_probabilities,
)
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.aggregates.aggregate import AskedAggregate, Mechanism, NoisyPart, Part
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.earlier_answer import Earlier
from sfumato.query.expression import Total
from sfumato.query.expression_text import expression_text
from sfumato.query.model import Aggregate, Formula
from sfumato.query.partition_selection_price import PricedPartitionSelection, selection_for
from sfumato.query.plan import PartSensitivity, Plan
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import interval_of
from sfumato.query.postprocess.linear_forms import Linear, linear_form
from sfumato.query.postprocess.totals import Rows, totals_in
from sfumato.query.public_keys import public_instead

# --- Predicted error of a formula before payment, from the noise and an assumed size alone


def predicted_margin(
    plan: Plan, formula: Formula, noises: Sequence[Mechanism], size: int | None
) -> float | None:
    """Predict half the 95 % interval of a formula in a group of `size` people.

    A linear formula has the same margin in every group. For other formulas, the prediction assumes
    values that are a quarter of their range above the middle, as for a mean. The result is infinite
    if no interval is known. It is None if nobody gave a size that is needed, or if the formula
    depends on more than a size.
    """
    rows = {total: _public_rows(plan, total) for total in totals_in(formula.expr)}
    known = {total: found for total, found in rows.items() if found is not None}
    if len(known) < len(rows):
        return None
    of = FormulaErrors(plan, formula, _assumed(plan, noises, size or 1), known)
    form = linear_form(formula.expr, of.sums)
    is_even = isinstance(form, Linear)
    if not is_even and (size is None or not all(_is_foreseen(of, unit) for unit in of.flat.units)):
        return None
    with np.errstate(all="ignore"):  # values that are not finite count as unknown
        held = interval_of(of, np.full(1, np.nan))
        half = float(held.high[0] - held.low[0]) / 2
    return half if math.isfinite(half) else math.inf


def _public_rows(plan: Plan, total: Total) -> Rows | None:
    """Return the answer rows that a total sums, for a prediction; None if keys are private.

    With private keys, the number of rows is not known before the query runs.
    """
    by = {o.of for o in plan.question.outputs if o.name in total.by}
    sizes = [key.key.size for key in plan.keys if key.of not in by]
    if any(key.key.size is None for key in plan.keys):
        return None
    return Rows(np.zeros(1, dtype=np.int64), math.prod(size or 1 for size in sizes))


def _is_foreseen(of: FormulaErrors, unit: object) -> bool:
    return not isinstance(unit, str) or of.aggregates[unit].verb == "mean"


def _assumed(plan: Plan, noises: Sequence[Mechanism], size: int) -> list[NoisyPart]:
    """Return the partial aggregates that a group of `size` people is assumed to have.

    Sums, counts and means get assumed values. All other aggregates get zeros.
    """
    values = [0.0] * len(plan.parts)
    for asked in plan.asked:
        if aggregate_of(asked.aggregate.verb).unit is None and asked.aggregate.verb != "mean":
            continue
        for place in plan.parts_of(asked.aggregate):
            values[place] = _value(asked, plan.parts[place].part, size)
    pairs = zip(values, noises, strict=True)
    return [NoisyPart(np.array([value]), noise) for value, noise in pairs]


def _value(asked: AskedAggregate, part: Part, size: int) -> float:
    tally = part.tally
    if tally.kind != "sum":
        return float(size)
    side = asked.operand
    usual = Fraction(side.lower + 3 * side.upper, 4)
    each = tally.scale * usual + tally.offset
    if tally.clamp is not None:
        each = min(max(each, Fraction(tally.clamp[0])), Fraction(tally.clamp[1]))
    return float(each * size)


# an epsilon that is computed from a wanted error is a multiple of this
STEP: Final = Fraction(1, 10**6)


@dataclass(frozen=True)
class Priced:
    """A plan with its total price and the noise that this price buys."""

    plan: Plan
    epsilon: Fraction
    delta: Fraction
    event: Event
    noises: tuple[Mechanism, ...]
    selection: PricedPartitionSelection | None = None
    earlier: Earlier | None = None  # the answer that this tops up; the price is then the difference
    total: Fraction | None = None  # the total price after the top-up

    @property
    def effective_noises(self) -> tuple[Mechanism, ...]:
        """Return the noise in each released partial aggregate.

        After a top-up, this is the noise of the mean of all draws.
        """
        if self.earlier is None:
            return self.noises
        draws = [draw.noises for draw in self.earlier.draws]
        own = [noise for noise in self.noises if isinstance(noise, Noise)]
        return tuple(average_noise(parts) for parts in zip(*draws, own, strict=True))

    @property
    def mechanism(self) -> str:
        """Return the names of all privacy mechanisms that the answer uses, as one text."""
        names = [str(noise.as_json()["kind"]) for noise in self.effective_noises]
        if self.selection is not None:
            is_optimal = self.selection.threshold is None
            names.append("partition selection" + ("" if is_optimal else " by a threshold"))
        return ", ".join(dict.fromkeys(names))

    def noises_of(self, aggregate: Aggregate) -> tuple[Noise, ...]:
        """Return the noise of the aggregate's partial aggregates; a private choice has none."""
        found = (self.effective_noises[place] for place in self.plan.parts_of(aggregate))
        return tuple(noise for noise in found if isinstance(noise, Noise))

    def rank_error(self, aggregate: Aggregate | Formula) -> int | None:
        """Return the 95 % error of a quantile's rank, in rows; None for other aggregates."""
        if isinstance(aggregate, Formula):
            return None
        for place in self.plan.parts_of(aggregate):
            mechanism = self.noises[place]
            if isinstance(mechanism, PrivateChoice):
                return mechanism.rank_error()
        return None

    def margin(self, of: Aggregate | Formula, people: int | None) -> float | None:
        """Return half the expected 95 % interval of an aggregate or formula.

        The margin is None if it depends on a group size that nobody gave. It is infinite if a
        formula divides by a number that noise alone could explain.
        """
        return self._margin(of, people or self.plan.card.size)

    def assumes_size(self, of: Aggregate | Formula, people: int | None) -> bool:
        """Check whether the margin assumes a group size, which must be shown (soundness rule 4)."""
        return self.margin(of, people) is not None and self._margin(of, None) is None

    def _margin(self, of: Aggregate | Formula, size: int | None) -> float | None:
        if isinstance(of, Formula):
            return predicted_margin(self.plan, of, self.effective_noises, size)
        for place in self.plan.parts_of(of):
            mechanism = self.noises[place]
            if isinstance(mechanism, TreeMechanism):
                return mechanism.margin()
        asked = self.plan.asked_of(of)
        return aggregate_of(of.verb).margin(asked, self.noises_of(of), size)


# epsilons from which an asker can choose
LADDER: Final = tuple(Fraction(n, 10) for n in (1, 2, 5, 10, 20))


def prices_on_ladder(plan: Plan, priced: Priced) -> tuple[Priced, ...]:
    """Return the given price, and the plan's prices at epsilon 0.1, 0.2, 0.5, 1 and 2 (LADDER).

    Both are shown, so that an asker can compare. `plan` must be the plan for a wanted epsilon,
    because a price for wanted errors may split the budget differently. For a top-up, return the
    given price alone.
    """
    if priced.earlier is not None:
        return (priced,)
    made = [_price_on_ladder(plan, at, priced.delta) for at in LADDER if at != priced.epsilon]
    found = [priced, *(offer for offer in made if _is_drawable(offer))]
    return tuple(sorted(found, key=lambda offer: offer.epsilon))


def price_at(plan: Plan, epsilon: Fraction, delta: Fraction) -> Priced:
    """Price the plan at this epsilon and delta; refuse noise too wide to be drawn exactly.

    Also refuse a price at which partition selection could show no private key.
    """
    priced = _price_on_ladder(plan, epsilon, delta)
    if priced.selection is not None and priced.selection.threshold is None:
        keep_probabilities(*priced.selection.per_key())  # refuses if no key could be shown
    if not _is_drawable(priced):
        raise Refused(
            "noise-out-of-range",
            "At this price, the noise is too wide to be drawn exactly.",
            "Choose a larger epsilon, or ask the owner for a coarser step.",
        )
    return priced


def _price_on_ladder(plan: Plan, epsilon: Fraction, delta: Fraction) -> Priced:
    """Price the plan at an epsilon, without the checks of `price_at`.

    Delta is spent on sums and counts only if that reduces their noise.
    """
    if plan.selects_keys:
        return _with_selection(plan, epsilon, delta)
    return _values(plan, epsilon, delta)


def _values(plan: Plan, epsilon: Fraction, delta: Fraction) -> Priced:
    pure = _with_laplace(plan, epsilon)
    if delta == 0 or any(b.part.choice is not None for b in plan.parts):
        return pure  # a private choice is pure DP, and all parts have the same kind of noise
    rho = rho_within(epsilon, delta)
    if rho == 0:
        return pure
    concentrated = _with_gaussian(plan, GaussianEvent(rho, epsilon, delta))
    return concentrated if _total(concentrated) < _total(pure) else pure


def price_at_rho(plan: Plan, rho: Fraction, delta: Fraction) -> Priced:
    """Price the plan with Gaussian noise of this rho (zero-concentrated DP).

    Epsilon follows from rho and delta. Several queries that share one price use it, because their
    rho add up.
    """
    if plan.selects_keys or any(b.part.choice is not None for b in plan.parts):
        raise Bug("a price in rho is for counts and sums over public keys")
    priced = _with_gaussian(plan, GaussianEvent(rho, epsilon_at(rho, delta), delta))
    if not _is_drawable(priced):
        raise Refused(
            "noise-out-of-range",
            "At this price, the noise is too wide to be drawn exactly.",
            "Choose a larger epsilon.",
        )
    return priced


def price_for_errors(
    plan: Plan, margins: Mapping[str, Fraction], delta: Fraction, people: int | None
) -> Priced:
    """Return the lowest price at which every named column is within its margin at 95 %."""
    wanted = {_number_named(plan, name): margin for name, margin in margins.items()}
    _check_reach(price_at(plan, MAX_EPSILON, delta), wanted, people)
    low, high = int(MIN_EPSILON / STEP) - 1, int(MAX_EPSILON / STEP)
    while high - low > 1:
        middle = (low + high) // 2
        if _meets(_price_on_ladder(plan, middle * STEP, delta), wanted, people):
            high = middle
        else:
            low = middle
    return price_at(plan, high * STEP, delta)


def _meets(
    priced: Priced, wanted: Mapping[Aggregate | Formula, Fraction], people: int | None
) -> bool:
    return _is_drawable(priced) and all(
        (priced.margin(a, people) or 0) <= margin for a, margin in wanted.items()
    )


def _is_drawable(priced: Priced) -> bool:
    return all(noise.is_drawable() for noise in priced.noises)


def _check_reach(
    priced: Priced, wanted: Mapping[Aggregate | Formula, Fraction], people: int | None
) -> None:
    for of in wanted:
        if priced.margin(of, people) is None:
            raise Refused(
                "error-needs-size",
                f"The error of {_output_name(priced.plan, of)} depends on how many people "
                "it covers, and that number is private.",
                "Give your own guess with --people N, or name an epsilon.",
            )
    if not _meets(priced, wanted, people):
        raise Refused(
            "error-out-of-reach",
            f"No epsilon up to {int(MAX_EPSILON)} gives an error that small.",
            "Allow a larger error, or ask for fewer aggregates at once.",
        )


def _output_name(plan: Plan, of: Aggregate | Formula) -> str:
    if isinstance(of, Formula):
        return expression_text(of.expr)
    return aggregate_of(of.verb).says(plan.asked_of(of))


def _number_named(plan: Plan, name: str) -> Aggregate | Formula:
    numbers = [o for o in plan.question.outputs if isinstance(o.of, Aggregate | Formula)]
    for output in numbers:
        if output.name.casefold() == name.casefold() and isinstance(output.of, Aggregate | Formula):
            return output.of
    raise Refused(
        "unknown-column",
        f"The answer has no number named {name!r}.",
        "Name one of: " + ", ".join(o.name for o in numbers if o.is_shown) + ".",
    )


def _with_laplace(plan: Plan, epsilon: Fraction) -> Priced:
    noises = tuple(_pure_mechanism(plan, b, epsilon * b.weight) for b in plan.parts)
    return Priced(plan, epsilon, Fraction(0), PureEvent(epsilon), noises)


def _pure_mechanism(plan: Plan, bounded: PartSensitivity, epsilon: Fraction) -> Mechanism:
    choice = bounded.part.choice
    if choice is None:
        return _noise_of_part(bounded, Noise("laplace", laplace.scale_for(bounded.l1, epsilon)))
    return PrivateChoice(  # each cell of a person has a choice of its own (soundness rule 18)
        choice.kind,
        epsilon / bounded.cells,
        plan.measure.max_rows,
        bounded.part.tally.size,
        at=choice.at,
        names=choice.names,
        threshold=choice.threshold,
    )


def _noise_of_part(bounded: PartSensitivity, noise: Noise) -> Noise | TreeMechanism:
    """Return a partial aggregate's noise: plain, or the tree mechanism for a running count."""
    if bounded.axis is None:
        return noise
    return TreeMechanism(noise, bounded.tree(noise.kind), bounded.axis)


def _with_gaussian(plan: Plan, event: GaussianEvent) -> Priced:
    noises = tuple(
        _noise_of_part(b, Noise("gaussian", _variance(b, event.rho))) for b in plan.parts
    )
    return Priced(plan, event.epsilon, event.delta, event, noises)


def _with_selection(plan: Plan, epsilon: Fraction, delta: Fraction) -> Priced:
    """Price the plan with partition selection, which gets the share of one more aggregate."""
    if delta == 0:
        raise _needs_delta(plan)
    share = Fraction(1, len(plan.question.aggregates) + 1)
    values = _values(plan, epsilon * (1 - share), delta / 2)
    selection = selection_for(epsilon * share, delta - values.delta, plan.measure.max_groups)
    event = JointEvent((selection.event, _single(values.event)))
    return Priced(plan, epsilon, delta, event, values.noises, selection)


def _single(event: Event) -> SingleEvent:
    if isinstance(event, JointEvent):
        raise Bug("values are one event")
    return event


def _needs_delta(plan: Plan) -> Refused:
    names = [expression_text(key.of) for key in plan.keys if key.keys is None]
    found = public_instead(plan)
    whole = "" if found is None else f"GROUP BY {found[1]} shows all {found[2]:,} groups. Or: "
    return Refused(
        "keys-needed",
        f"The data card declares no keys for {names[0]!r}, and partition selection needs a delta.",
        f"{whole}Give --delta 1e-6, or group by declared keys or by public bins such as "
        "FLOOR(age / 10) * 10. The owner can also declare keys.",
        column=names[0],
    )


def _variance(bounded: PartSensitivity, rho: Fraction) -> Fraction:
    return gaussian.variance_for(bounded.l2_squared, rho * bounded.weight)


def _total(priced: Priced) -> float:
    """Return the sum of the noise variances that a price gives, to compare prices.

    Each partial aggregate counts in units of what one row changes. Private choices don't count.
    """
    pairs = zip(priced.noises, priced.plan.parts, strict=True)
    return sum(
        (noise.std() / max(b.part.per_row, 1)) ** 2
        for noise, b in pairs
        if not isinstance(noise, PrivateChoice)
    )
