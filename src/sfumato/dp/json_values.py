"""A type for JSON objects."""

from __future__ import annotations

Json = dict[str, object]
