"""What is said of one verb: how it is reached, who may use it, what it takes and gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sfumato.wire.json_schemas import Schema

_PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    """One verb: how it is reached, who may use it, what it takes and gives."""

    verb: str
    method: str
    path: str  # {places} are keys of the body
    summary: str
    action: str | None  # what a token must let its caller do; None: nobody is asked who they are
    answer: Schema
    body: Schema | None = None
    query: Mapping[str, Schema] | None = None
    refusals: tuple[str, ...] = ()
    is_long: bool = False  # it may read rows, so it waits its turn among a few
    carries: Literal["json", "events", "file"] = "json"  # events go out, a file comes in

    @property
    def places(self) -> tuple[str, ...]:
        """Return the keys that stand in the path."""
        return tuple(_PLACE.findall(self.path))
