"""Keep budgets per window: an account for each calendar window, and one for all of them.

A card with `window = "month"` promises its budget for all that is charged in one calendar month
(UTC). Each account then has one more, which is opened anew in each window and has the cap. The
account without a window adds up for ever, and has no cap. Windows only go forward: which
one is open follows from the last day that was trusted, and a clock that was set back or ahead opens
none (decision 0012).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from typing import Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Refused
from sfumato.vault.ledger_entries import Account, Debtor

DAY, WEEK, MONTH, QUARTER, YEAR = "day", "week", "month", "quarter", "year"
UNITS: Final = (DAY, WEEK, MONTH, QUARTER, YEAR)
_MOST: Final = 2**62 - 2  # the largest cap that a ledger holds (chain.cap_list)
UNBOUNDED: Final = Cap(_MOST, _MOST, _MOST, _MOST)
WINDOW: Final = "window:"  # how the name of a window's account begins
CLOCK: Final = "clock:"  # and that of an account which says that a day was trusted; nobody pays it


def windows_stay() -> Refused:
    """Return the refusal to set a cap by hand where a card's windows have theirs."""
    return Refused(
        "not-allowed",
        "This budget is per window: each window is opened with the caps on the card.",
        "Add a version of the card with lower caps; they hold from the next window on.",
    )


def label_of(unit: str, day: date) -> str:
    """Return the name of the day's window; later windows sort behind earlier."""
    match unit:
        case "day":
            return day.isoformat()
        case "week":
            year, week, _ = day.isocalendar()
            return f"{year}-W{week:02}"
        case "month":
            return f"{day.year:04}-{day.month:02}"
        case "quarter":
            return f"{day.year:04}-Q{(day.month + 2) // 3}"
        case _:
            return f"{day.year:04}"


def window_account(unit: str, day: date, account: str) -> str:
    """Return the account of one window."""
    return f"{WINDOW}{unit}:{label_of(unit, day)}:{account}"


def parts_of(account: str) -> tuple[str, str, str] | None:
    """Return unit, label and account of a window's account; None of any other."""
    if not account.startswith(WINDOW):
        return None
    unit, label, name = account.removeprefix(WINDOW).split(":", 2)
    return unit, label, name


def is_internal(account: str) -> bool:
    """Say whether the account is a part of another's, or nobody's."""
    return account.startswith((WINDOW, CLOCK))


def trusted_day(seen: date | None, today: date, *, is_vouched: bool) -> date:
    """Return the day by which windows are opened: the clock's, or the last one that was trusted.

    A clock is followed to the next day. Where it says a later one, somebody has to vouch for it: a
    process that has counted the time since, or the owner. It is never followed back.
    """
    if seen is None:
        return today
    is_next = timedelta(0) <= today - seen <= timedelta(1)
    return today if is_next or (is_vouched and today > seen) else seen


def in_window(debtors: tuple[Debtor, ...], day: date) -> tuple[Debtor, ...]:
    """Return those who pay, and beside each that has windows the account of the open one."""
    opened = tuple(
        Debtor(window_account(debtor.window, day, debtor.account), debtor.window_cap)
        for debtor in debtors
        if debtor.window is not None and debtor.window_cap is not None
    )
    return debtors + opened


def viewed(accounts: Iterable[Account]) -> tuple[Account, ...]:
    """Return the accounts without their windows: cap and spent of the window, and in all."""
    known = tuple(accounts)
    opened = {parts[2]: one for one in known if (parts := parts_of(one.name)) is not None}
    return tuple(
        seen_through(one, opened[one.name]) if one.name in opened else one
        for one in known
        if not is_internal(one.name)
    )


def seen_through(account: Account, window: Account) -> Account:
    """Return the account as its window has it, with what was spent in all windows."""
    return replace(
        account, cap=window.cap, spent=window.spent, window=window.name, lifetime=account.spent
    )


def spent_in_all(account: Account) -> PrivacyCost:
    """Return what was spent in all windows together, or without any."""
    return account.spent if account.lifetime is None else account.lifetime
