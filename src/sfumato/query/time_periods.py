"""Convert dates to period numbers counted from 1970, and back, for keys and for typed constants."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sfumato.query.expression import Unit

_FIRST = date(1970, 1, 1)


def day_of(text: str) -> int:
    """Return the number of days from 1970-01-01 to the ISO date."""
    return (date.fromisoformat(text[:10]) - _FIRST).days


def period_of_day(unit: Unit, day: int) -> int:
    """Return the number of the period that contains the day; for hours, of the day's first hour."""
    moment = _FIRST + timedelta(days=day)
    match unit:
        case "day":
            return day
        case "hour":
            return day * 24
        case "week":
            return (day + 3) // 7
        case "month":
            return (moment.year - 1970) * 12 + moment.month - 1
        case "quarter":
            return (moment.year - 1970) * 4 + (moment.month - 1) // 3
        case "year":
            return moment.year - 1970


def period_of_text(unit: Unit, text: str) -> int:
    """Return the number of the period that contains the ISO date or timestamp."""
    hours = int(text[11:13]) if unit == "hour" and len(text) > 10 else 0
    return period_of_day(unit, day_of(text)) + hours


def first_of_period(unit: Unit, period: int) -> str:
    """Return the date or hour at which the period begins, as ISO text."""
    match unit:
        case "day":
            return (_FIRST + timedelta(days=period)).isoformat()
        case "hour":
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=period)
            return moment.strftime("%Y-%m-%d %H:00:00")
        case "week":
            return (_FIRST + timedelta(days=7 * period - 3)).isoformat()
        case "month":
            return f"{1970 + period // 12:04d}-{period % 12 + 1:02d}-01"
        case "quarter":
            return f"{1970 + period // 4:04d}-{period % 4 * 3 + 1:02d}-01"
        case "year":
            return f"{1970 + period:04d}-01-01"
