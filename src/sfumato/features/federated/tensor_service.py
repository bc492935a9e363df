"""Callers' tensors at a site: each token has a process of its own, and no row ever goes there.

What is handed on are bytes that this process does not read. A table of the site's is told by the
shape that its card declares: what it holds the door alone can release, at a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card
from sfumato.vault.users import Caller

MOST_NUMBER: Final = 1 << 53


class TensorRooms(Protocol):
    """The processes, one for each user's token."""

    def say(self, caller: tuple[str, str], header: Mapping[str, object], body: bytes) -> bytes:
        """Return what the caller's own process answers, or refuse."""
        ...


@dataclass(frozen=True)
class Said:
    """One message of a connection's, or a part of one, and its number there."""

    session: str
    number: int
    message: bytes = b""
    is_part: bool = False


@dataclass(frozen=True)
class Tensors:
    """What a vault does as a place for tensors; nothing, unless it is served as a site."""

    rooms: TensorRooms | None = None

    def call(self, caller: Caller, said: Said) -> bytes:
        """Return the answer of the caller's own process to a message."""
        return self._say(caller, said, None)

    def declare(self, caller: Caller, card: Card, said: Said) -> bytes:
        """Return what is told of a data set: rows by its limit, and columns that have bounds."""
        columns = [
            column.name for column in card.columns if column.is_numeric and column.is_bounded
        ]
        if not columns:
            raise _no("the data set has no column of numbers with bounds")
        return self._say(caller, said, [card.name, card.limits.rows, columns])

    def _say(self, caller: Caller, said: Said, table: list[object] | None) -> bytes:
        if self.rooms is None:
            raise _no("this service holds none; its owner has to serve it with `sfumato site`")
        header = {
            "session": said.session,
            "number": said.number,
            "more": said.is_part,
            "table": table,
        }
        return self.rooms.say((caller.user, caller.token), header, said.message)


def _no(why: str) -> Refused:
    return Refused(
        "remote-refused", f"There are no tensors here: {why}.", "See docs/federated.md on sites."
    )
