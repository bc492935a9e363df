"""What JSON can say, as a type."""

from __future__ import annotations

Json = dict[str, object]
