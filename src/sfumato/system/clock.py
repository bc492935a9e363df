"""The system clock, which other modules receive as a parameter."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Clock that returns the time of day of this machine."""

    def now(self) -> str:
        """Return the current time in UTC, as ISO 8601 text with milliseconds."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")
