"""Tensors that callers keep at a site: one process per token, without access to any row.

This process forwards messages without parsing them. A table of the site has only the shape that its
card declares. Its contents leave only through a release of the vault, at a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card
from sfumato.vault.users import Caller

MAX_NUMBER: Final = 1 << 53


class TensorRooms(Protocol):
    """The tensor processes, one per user's token."""

    def say(self, caller: tuple[str, str], header: Mapping[str, object], body: bytes) -> bytes:
        """Return the reply of the caller's process, or refuse."""
        ...


@dataclass(frozen=True)
class Said:
    """One message of a connection, or a part of one, with its sequence number."""

    session: str
    number: int
    message: bytes = b""
    is_part: bool = False


@dataclass(frozen=True)
class Tensors:
    """The tensor verbs of a vault; disabled unless it is served as a site."""

    rooms: TensorRooms | None = None

    def call(self, caller: Caller, said: Said) -> bytes:
        """Forward a message to the caller's process, and return its reply."""
        return self._say(caller, said, None)

    def declare(self, caller: Caller, card: Card, said: Said) -> bytes:
        """Declare a data set's public shape: its row limit and its bounded numeric columns."""
        columns = [
            column.name for column in card.columns if column.is_numeric and column.is_bounded
        ]
        if not columns:
            raise _no("the data set has no column of numbers with bounds")
        return self._say(caller, said, [card.name, card.limits.rows, columns])

    def _say(self, caller: Caller, said: Said, table: list[object] | None) -> bytes:
        if self.rooms is None:
            raise _no("this service has no tensors; its owner must start it with `sfumato site`")
        header = {
            "session": said.session,
            "number": said.number,
            "more": said.is_part,
            "table": table,
        }
        return self.rooms.say((caller.user, caller.token), header, said.message)


def _no(why: str) -> Refused:
    return Refused(
        "remote-refused",
        f"Tensors are not available here: {why}.",
        "See docs/how-to/federated.md on sites.",
    )
