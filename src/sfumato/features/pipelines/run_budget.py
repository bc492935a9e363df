"""Say before a run whether the budget left is large enough for it, and what would fit instead.

Everything here follows from the run's terms and the balances of the accounts that pay for it, which
their asker may see (`budget`). No row decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, log10

from sfumato.dp.accounting.privacy_events import privacy_cost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_plan import MEDIAN, Run
from sfumato.vault.ledger_entries import Account

Terms = Mapping[str, object]
Reread = Callable[[Terms], Run]  # the same run with other terms


def fits(run: Run, accounts: Sequence[Account]) -> bool:
    """Return True if every account can pay for the run."""
    cost = privacy_cost(run.event)
    return all(fits_under_cap(one.cap, one.spent, cost) for one in accounts)


def budget_warnings(
    run: Run, accounts: Sequence[Account], left: float, reread: Reread
) -> list[str]:
    """Return a warning if the budget left is too small for the run, with what would fit.

    Args:
        run: The run and its price.
        accounts: The accounts that pay for it.
        left: The largest epsilon that all of them can still pay.
        reread: Returns the same run with some terms replaced; it may refuse them.
    """
    if fits(run, accounts):
        return []
    delta = f" and delta {float(run.spent_delta):g}" if run.spent_delta else ""
    first = (
        f"The budget left is too small for this run. It costs epsilon {float(run.epsilon):g}"
        f"{delta}, and epsilon {left:g} is left."
    )
    if left <= 0:
        return [f"{first} Repeat an earlier run for free, or ask the owner for more budget."]
    found = [*_cheaper(run, accounts, _cut(left), reread), *_fewer(run, left)]
    return [f"{first} This would fit: {'; or '.join(found)}." if found else first]


def _cheaper(
    run: Run, accounts: Sequence[Account], left: Fraction, reread: Reread
) -> Iterator[str]:
    """Yield the same run at the epsilon that is left, with its errors, if that can be drawn."""
    for terms in ({"epsilon": left}, {"epsilon": left, "delta": 0}):
        try:
            # the wanted errors cost too much, so all numbers share what is left
            made = reread({**terms, "error": None})
        except Refused:
            continue
        if fits(made, accounts):
            unit = " ranks" if made.take == MEDIAN else ""
            errors = ", ".join(f"{name} ± {by:.4g}{unit}" for name, by in made.margins().items())
            without = " and delta 0" if "delta" in terms and run.spent_delta else ""
            yield f"epsilon {float(left):g}{without}, with the larger errors {errors}"
            return


def _fewer(run: Run, left: float) -> Iterator[str]:
    """Yield how many of the numbers fit at the error that each has now; for equal shares alone."""
    most = floor(run.numbers * Fraction(left) / run.epsilon)
    if run.split is None and not run.rho and 1 <= most < run.numbers:
        yield f"a program with {most} of the {run.numbers} numbers, at the error that they have now"


def _cut(epsilon: float) -> Fraction:
    """Return an epsilon rounded down to three digits."""
    step = Fraction(10) ** (ceil(log10(epsilon)) - 3)
    return floor(Fraction(epsilon) / step) * step
