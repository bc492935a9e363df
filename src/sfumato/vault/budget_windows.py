"""Budget windows: a privacy budget per calendar day, week, month, quarter or year.

A data card with `window = "month"` promises its budget for all charges of one calendar month (UTC).
Each account then has one window account per window, with the cap of the card. The account itself
adds up all windows, and has no cap.

Windows only advance. The open window follows from the last trusted day, so a clock that was set
back or ahead opens no window (decision 0012).
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
_MAX_CAP: Final = 2**62 - 2  # the largest cap that a ledger holds (hash_chain.cap_list)
UNBOUNDED: Final = Cap(_MAX_CAP, _MAX_CAP, _MAX_CAP, _MAX_CAP)
WINDOW: Final = "window:"  # prefix of a window's account
CLOCK: Final = "clock:"  # prefix of an account that records a trusted day; it never pays


def windows_stay() -> Refused:
    """Return the refusal to set a cap of a budget by hand, where the budget is per window.

    Each budget window opens with the data card's caps.
    """
    return Refused(
        "not-allowed",
        "This cap cannot be set by hand: the budget is renewed in time windows, each with the "
        "caps on the data card.",
        "Write lower caps on the card, and add it as a new version. They apply from the next "
        "window on.",
    )


def label_of(unit: str, day: date) -> str:
    """Return the label of the calendar window that contains the day, such as 2026-W07.

    `unit` is day, week, month, quarter or year. Labels sort by time.
    """
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
    """Return the name of the account that pays in the budget window that contains the day."""
    return f"{WINDOW}{unit}:{label_of(unit, day)}:{account}"


def parts_of(account: str) -> tuple[str, str, str] | None:
    """Split the name of a budget window's account into unit, label and account; None for others."""
    if not account.startswith(WINDOW):
        return None
    unit, label, name = account.removeprefix(WINDOW).split(":", 2)
    return unit, label, name


def is_internal(account: str) -> bool:
    """Say whether the account is hidden from users: it is for a window or the trusted day."""
    return account.startswith((WINDOW, CLOCK))


def trusted_day(seen: date | None, today: date, *, is_vouched: bool) -> date:
    """Return the day that budget windows use: the clock's day, or the last trusted day `seen`.

    The clock is trusted if it shows the same day as before or the next. A later day needs
    confirmation: by a process that has measured the time since, or by the owner. An earlier day is
    never trusted.
    """
    if seen is None:
        return today
    is_next = timedelta(0) <= today - seen <= timedelta(1)
    return today if is_next or (is_vouched and today > seen) else seen


def in_window(debtors: tuple[Debtor, ...], day: date) -> tuple[Debtor, ...]:
    """Return the debtors, and after them their accounts in the open budget window, if any."""
    opened = tuple(
        Debtor(window_account(debtor.window, day, debtor.account), debtor.window_cap)
        for debtor in debtors
        if debtor.window is not None and debtor.window_cap is not None
    )
    return debtors + opened


def viewed(accounts: Iterable[Account]) -> tuple[Account, ...]:
    """Merge each account with its window account, and leave out the accounts that users don't see.

    A merged account has the cap and spending of the open budget window, and the total spending.
    """
    known = tuple(accounts)
    opened = {parts[2]: one for one in known if (parts := parts_of(one.name)) is not None}
    return tuple(
        seen_through(one, opened[one.name]) if one.name in opened else one
        for one in known
        if not is_internal(one.name)
    )


def seen_through(account: Account, window: Account) -> Account:
    """Return an account as users see it: with the cap and spending of its open budget window.

    What the account has spent in all windows is a field of its own.
    """
    return replace(
        account, cap=window.cap, spent=window.spent, window=window.name, lifetime=account.spent
    )


def spent_in_all(account: Account) -> PrivacyCost:
    """Return the privacy budget that the account has spent in all windows together."""
    return account.spent if account.lifetime is None else account.lifetime
