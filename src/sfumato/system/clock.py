"""The system clock, which other modules receive as a parameter."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The time of day of this machine."""

    def now(self) -> str:
        """Return the time as ISO 8601 in UTC."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")
