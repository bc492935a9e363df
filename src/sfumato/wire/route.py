"""The definition of a verb (an API operation): HTTP route, permission, request and answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sfumato.wire.json_schemas import Schema

_PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    """One verb (API operation): its HTTP route, permission, request and answer schemas."""

    verb: str
    method: str
    path: str  # {places} are parameters, taken from the body by the client
    summary: str
    action: str | None  # the permission that a token needs; None: no authentication
    answer: Schema
    body: Schema | None = None
    query: Mapping[str, Schema] | None = None
    refusals: tuple[str, ...] = ()
    is_long: bool = False  # it may read rows, so it waits for one of a few slots
    carries: Literal["json", "events", "file"] = "json"  # events: streamed out; file: uploaded

    @property
    def places(self) -> tuple[str, ...]:
        """Return the names of the path's parameters."""
        return tuple(_PLACE.findall(self.path))
