"""Split one price among several questions.

The sum of the shares never exceeds the price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, cast

from sfumato.client.ask_terms import FitTerms, Number
from sfumato.client.display import Budget, CardView
from sfumato.client.query_builder import Builder, Target
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Constant

# the ledger's unit of epsilon; shares are rounded down to multiples of it
EPSILON_UNIT: Final = Fraction(1, 10**9)
DELTA_UNIT: Final = Fraction(1, 10**18)
RESUME: Final = (
    " If you asked the same thing before, give resume=True: answers that you have are free."
)


@dataclass(frozen=True)
class Share:
    """One question's share of a whole price: epsilon and delta."""

    epsilon: Fraction
    delta: Fraction


def shares(card: CardView, terms: FitTerms, parts: Sequence[Fraction]) -> list[Share]:
    """Return each question's share of the price, rounded down; delta defaults to the card's."""
    whole, delta = _exact(terms.get("epsilon"), "epsilon"), terms.get("delta")
    extra = _exact(card["delta_per_request"] if delta is None else delta, "delta")
    if whole <= 0 or extra < 0:
        raise _bad("epsilon" if whole <= 0 else "delta")
    return [
        Share(_down(whole * part, EPSILON_UNIT), _down(extra * part, DELTA_UNIT)) for part in parts
    ]


def _exact(value: object, name: str) -> Fraction:
    is_number = isinstance(value, Number) and not isinstance(value, bool) and _is_one(value)
    if not is_number or not 0 <= value < 10**9:  # type: ignore[operator]  # a number here
        raise _bad(name)
    return Constant.of(value).number


def _is_one(value: Number) -> bool:
    # check this first, because comparing a Decimal NaN fails
    return value.is_finite() if isinstance(value, Decimal) else True


def _bad(name: str) -> Refused:
    some = "1e-6" if name == "delta" else "0.5"
    return Refused(
        "bad-budget",
        f"{name} must be a plain number of at least zero.",
        f"Give {name} as a plain number such as {some}.",
    )


def _down(amount: Fraction, unit: Fraction) -> Fraction:
    return amount // unit * unit


def check_all_fits(
    data_set: Target, questions: Sequence[tuple[Builder, Share]], *, resume: bool | None
) -> None:
    """Refuse, before anything is spent, unless the budget covers all the questions together.

    With `resume`, the first questions are answered already and free, so the sum of all prices is
    not checked. A question that cannot be asked at all is still refused. `resume` is None for a
    step that can't be resumed.
    """
    prices = [q.price(epsilon=s.epsilon, delta=s.delta).shape for q, s in questions]
    if resume:
        return
    epsilon = sum((s.epsilon for _, s in questions), Fraction(0))
    delta = sum((Fraction(str(p["delta"])) for p in prices), Fraction(0))
    squares = sum((s.epsilon**2 / 2 + Fraction(1, 10**12) for _, s in questions), Fraction(0))
    for name, left in _accounts(data_set.budget):
        if not _pays(left, epsilon, delta, squares):
            raise Refused(
                "budget-exceeded",
                f"All {len(questions)} questions together need epsilon {float(epsilon):g} and "
                f"delta {float(delta):g}, but the {name} has {left['next_epsilon']:g} left "
                f"(delta {left['tests']['sums']['delta']:g}). Nothing was spent.",
                "Choose a smaller epsilon." + ("" if resume is None else RESUME),
                account=name,
                needed={"epsilon": float(epsilon), "delta": float(delta)},
            )


def _accounts(budget: Budget) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON of the wire
    people = budget["people"]
    whose = [("data set", budget.shape), (f"budget of {people['domain']}", people)]
    whose += list(budget["yours"].items())
    return [(name, _left(cast("Mapping[str, Any]", shape))) for name, shape in whose]


def _left(shape: Mapping[str, Any]) -> dict[str, Any]:
    left = dict(shape["left"])
    return {"next_epsilon": left["epsilon"], **left}


def _pays(left: Mapping[str, Any], epsilon: Fraction, delta: Fraction, squares: Fraction) -> bool:
    """Return True if an account's budget covers a total price, by one of the filter's two tests.

    The first test is over sums of epsilon and delta. The second is over rho (`squares` is the sum
    of rho), and needs delta 0. `left` is what is left of the account.
    """
    sums, rho = left["tests"]["sums"], left["tests"]["rho"]
    by_sum = epsilon <= _units(sums["epsilon"], EPSILON_UNIT) and delta <= _units(
        sums["delta"], DELTA_UNIT
    )
    return by_sum or (delta == 0 and squares <= Fraction(rho["rho"]))


def _units(amount: float, unit: Fraction) -> Fraction:
    return round(Fraction(amount) / unit) * unit
