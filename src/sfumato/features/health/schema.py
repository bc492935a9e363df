"""Requests and replies of the verbs that show the state of the service."""

from __future__ import annotations

from typing import Any

from sfumato.wire.schema import Name, Reply


class Hello(Reply):
    """The version of the wire format and of the package."""

    wire: int
    version: Name


class Ready(Reply):
    """Whether the service can charge and read; if not, what is missing."""

    ready: bool
    missing: list[Name]


class Metrics(Reply):
    """Counts of the calls of each verb (API operation), by result."""

    began: float
    calls: list[dict[str, Any]]
