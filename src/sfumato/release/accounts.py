"""Privacy budget accounts: which accounts pay for a question, and what each has spent and left."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import (
    Cap,
    cap_from_budget,
    largest_next_units,
    remaining_budget,
)
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS, Budget
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.budget_windows import UNBOUNDED, parts_of, spent_in_all
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account, Debtor


def people_account(people: str) -> str:
    """Return the name of the budget account that all data about one group of people share."""
    return f"people:{people}"


def data_set_account(name: str) -> str:
    """Return the name of the budget account that all versions of a data set share."""
    return f"data-set:{name}"


def group_account(name: str, group: str) -> str:
    """Return the name of the budget account of a group of users on a data set."""
    return f"group:{name}/{group}"


def user_account(name: str, user: str) -> str:
    """Return the name of one user's budget account on a data set."""
    return f"user:{name}/{user}"


def debtors(card: Card, user: str, groups: tuple[str, ...]) -> tuple[Debtor, ...]:
    """Return the budget accounts that pay for a user's question, each with its cap.

    They are the account of the people in the data, that of the data set, and the user's own. If the
    data card has a group cap, the accounts of the user's groups pay too.
    """
    shared = [people_account(card.people), data_set_account(card.name)]
    whole = cap_from_budget(card.budget)
    paying = [(account, whole) for account in shared]
    if card.group_cap is not None:
        cap = cap_from_budget(card.group_cap)
        paying += [(group_account(card.name, group), cap) for group in groups]
    own = whole if card.user_cap is None else cap_from_budget(card.user_cap)
    paying.append((user_account(card.name, user), own))
    if card.window is None:
        return tuple(Debtor(account, cap) for account, cap in paying)
    return tuple(Debtor(account, UNBOUNDED, card.window, cap) for account, cap in paying)


def budget_of(account: Account) -> Budget:
    """Return an account's cap (the most that it may spend) as epsilon and delta.

    The privacy filter has two tests, and each may use half of the card's delta. The account stores
    that half, so this function doubles the stored delta.
    """
    return Budget(
        Fraction(account.cap.epsilon, EPSILON_UNITS), Fraction(2 * account.cap.delta, DELTA_UNITS)
    )


def cap_in_all(card: Card, budget: Budget) -> Cap:
    """Return the most that an account may spend over all time.

    There is no such cap if each budget window (a day, say) has a cap of its own.
    """
    return cap_from_budget(budget) if card.window is None else UNBOUNDED


def cap_json(account: Account) -> Json:
    """Return an account's cap (epsilon, delta and rho) as decimal numbers, for display."""
    return {**budget_of(account).as_json(), "rho": max(account.cap.rho, 0) / RHO_UNITS}


def spent_json(account: Account) -> Json:
    """Return what an account has spent (epsilon, delta and rho) as decimal numbers, for display."""
    return _debt_json(account.spent)


def left_json(account: Account) -> Json:
    """Return the budget that an account has left, and the largest epsilon that it can still pay.

    The privacy filter has two tests, over sums of epsilon and over rho; the result states what each
    of them has left (soundness rule 3).
    """
    rest = remaining_budget(account.cap, account.spent)
    delta = max(2 * account.cap.delta - account.spent.delta, 0)  # the whole cap: see `budget_of`
    return {
        "epsilon": rest.epsilon / EPSILON_UNITS,
        "delta": delta / DELTA_UNITS,
        "tests": {
            "sums": {
                "epsilon": rest.epsilon / EPSILON_UNITS,
                "delta": rest.delta / DELTA_UNITS,
            },
            "rho": {"rho": rest.rho / RHO_UNITS, "delta": rest.rho_delta / DELTA_UNITS},
        },
        "next_epsilon": float(rest.next_epsilon),
    }


def smallest_next(accounts: Iterable[Account]) -> float:
    """Return the largest pure epsilon (delta 0) that every one of the accounts can pay."""
    units = min(largest_next_units(account.cap, account.spent) for account in accounts)
    return units / EPSILON_UNITS  # one division of two integers, so the result is rounded once


def window_json(account: Account) -> Json:
    """Return an account's current budget window as JSON, and what it spent in all windows.

    Return {} for an account without windows. The privacy guarantee holds per window; over several
    windows the epsilons add up (decision 0012).
    """
    parts = None if account.window is None else parts_of(account.window)
    if parts is None:
        return {}
    lifetime = _debt_json(spent_in_all(account))
    return {
        "window": {
            "per": parts[0],
            "now": parts[1],
            "lifetime": lifetime,
            "says": (
                f"epsilon per {parts[0]}: the budget covers the charges of one {parts[0]} (UTC; "
                f"now {parts[1]}). It renews, so the lifetime total grows: epsilon "
                f"{lifetime['epsilon']:g}, delta {lifetime['delta']:g} so far."
            ),
        }
    }


def left_to_pay(data_set: Account, paying: Iterable[Account]) -> Json:
    """Return the data set's remaining budget, and the largest epsilon that all accounts can pay."""
    return {**left_json(data_set), "next_epsilon": smallest_next(paying)}


def _debt_json(debt: PrivacyCost) -> Json:
    return {
        "epsilon": debt.epsilon / EPSILON_UNITS,
        "delta": debt.delta / DELTA_UNITS,
        "rho": debt.rho / RHO_UNITS,
    }


def exceeded(account: Account, debt: PrivacyCost) -> Refused:
    """Return the refusal of a charge beyond an account's cap; it states what is spent and left."""
    spent, rest = spent_json(account), left_json(account)
    needed = _debt_json(debt)
    window = parts_of(account.name)
    kind, _, name = (account.name if window is None else window[2]).partition(":")
    when = "" if window is None else f" in {window[1]}"
    return Refused(
        "budget-exceeded",
        f"The {_KINDS[kind]} {name!r} has epsilon {rest['next_epsilon']:g} left{when} "
        f"(spent {spent['epsilon']:g} of {cap_json(account)['epsilon']:g}); "
        f"this question needs {needed['epsilon']:g}.",
        _next_step(account, debt),
        account=account.name,
        spent=spent,
        needed=needed,
        left=rest,
    )


def _next_step(account: Account, debt: PrivacyCost) -> str:
    """Return the advice of the refusal of a charge that exceeds an account's cap.

    Each of the two tests of the privacy filter has half of the card's delta. So a Gaussian query
    that asks for the whole delta fits neither (decision 0001).
    """
    if debt.delta > account.cap.delta:
        half = account.cap.delta / DELTA_UNITS
        return f"Ask with a delta of at most {half:g}, or with a smaller epsilon."
    if largest_next_units(account.cap, account.spent) <= 0:
        return "Repeat an earlier question for free, or ask the owner for more budget."
    return (
        "Ask with a smaller epsilon, repeat an earlier question for free, or ask the owner for "
        "more budget."
    )


_KINDS = {
    "people": "budget of the people",
    "data-set": "data set",
    "group": "group",
    "user": "user",
    "respondent": "invited person",
}
