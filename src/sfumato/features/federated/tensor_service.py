"""Tensors that callers keep at a site: one process per token, without access to any row.

The service forwards messages to the process without parsing them. The process knows only the shape
of a site's table, as the card declares it. A table's contents leave only through a release of the
vault, at a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sfumato.dp.refusal import Refused
from sfumato.features.federated.schema import TensorCall, TensorTable, bytes_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.users import Caller


class TensorRooms(Protocol):
    """The interface to a site's tensor processes, of which each user's token has its own."""

    def say(self, caller: tuple[str, str], header: Mapping[str, object], body: bytes) -> bytes:
        """Send a message to the caller's tensor process and return the reply, or refuse."""
        ...


@dataclass(frozen=True)
class Tensors:
    """The service of a vault for remote tensors; disabled unless the vault is served as a site."""

    rooms: TensorRooms | None = None

    def call(self, caller: Caller, asked: TensorCall) -> bytes:
        """Forward a message to the caller's process, and return its reply."""
        header = {"more": asked.more, "table": None}
        return self._send(caller, asked, header, bytes_of(asked.message))

    def declare(self, caller: Caller, card: Card, asked: TensorTable) -> bytes:
        """Declare a data set's row limit and bounded numeric columns to the caller's process."""
        columns = [
            column.name for column in card.columns if column.is_numeric and column.is_bounded
        ]
        if not columns:
            raise _no("the data set has no column of numbers with bounds")
        table = [card.name, card.limits.rows, columns]
        return self._send(caller, asked, {"more": False, "table": table}, b"")

    def _send(
        self,
        caller: Caller,
        asked: TensorCall | TensorTable,
        header: Mapping[str, object],
        message: bytes,
    ) -> bytes:
        if self.rooms is None:
            raise _no("this service has no tensors; its owner must start it with `sfumato site`")
        whole = {"session": asked.session, "number": asked.number, **header}
        return self.rooms.say((caller.user, caller.token), whole, message)


def _no(why: str) -> Refused:
    return Refused(
        "remote-refused",
        f"Tensors are not available here: {why}.",
        "docs/how-to/federated.md explains how a site offers tensors.",
    )
