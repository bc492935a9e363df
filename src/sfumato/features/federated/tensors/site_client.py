"""A client for a site on another machine: the worker interface over HTTP, with a token.

The site keeps sent tensors in a process of that token. Its tables have only the shape that their
cards declare. A release of their contents is charged to the site's ledger.
"""

from __future__ import annotations

import base64
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import torch

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.tensor_messages import answered, encode
from sfumato.features.federated.tensors.worker import Worker
from sfumato.system.randomness import SystemRandomSource

PART: Final = 500_000  # the most message bytes of one request
_SQL: Final = {"mean": "AVG", "sum": "SUM"}


class Served(Protocol):
    """The interface of a connection to a served vault: its verbs, and its data sets by name."""

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
        """Call a verb (API operation) of the vault; return its reply, or raise its refusal."""
        ...

    def __getitem__(self, name: str) -> Any:  # Any: the client's data set
        """Return the data set of that name."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Site(Worker):
    """A worker at a real site, which is reached over HTTP: `Site("https://...", token=...)`."""

    def __init__(self, url: str, *, token: str, id: str | None = None) -> None:  # noqa: A002
        from sfumato.client import remote_vault

        draw = SystemRandomSource().draw
        self.id = id or urlsplit(url).hostname or url
        self.vault: Served = remote_vault.connect(url, token=token, draw=draw)
        self._session = draw(16).hex()
        self._number = 0
        self._lock = threading.RLock()
        self._dropped: deque[str] = deque()

    def ask(self, **words: Any) -> Any:
        """Send the worker one request; return its answer, or raise its refusal."""
        with self._lock:
            dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
            beside = {"grads": torch.is_grad_enabled(), "dropped": dropped}
            message = encode({**words, **beside})
            while len(message) > PART:
                self._sent("tensor-call", {"message": _text(message[:PART]), "more": True})
                message = message[PART:]
            said = self._sent("tensor-call", {"message": _text(message)})
        return answered(said, f"Site {self.id!r}")

    def drop(self, key: str) -> None:
        """Queue an object for deletion; the next request carries the deletion."""
        self._dropped.append(key)

    def told_of_table(self, name: str) -> Any:
        """Return the key and the declared shape of one of the site's data sets."""
        said = None
        with self._lock:
            try:
                said = self._sent("tensor-table", {"data_set": name})
            except Refused as refused:
                if refused.code != "unknown-data-set":
                    raise
        if said is None:
            raise Refused(
                "remote-unknown",
                f"Site {self.id!r} has no table {name!r} that you may ask.",
                "List its tables with .tables.",
            )
        return answered(said, f"Site {self.id!r}")

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the data sets that you may query."""
        found = self.vault.call("data-sets", {})["data_sets"]
        return tuple(str(card["name"]) for card in found)

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's bounded numeric columns, in order."""
        card = self.vault.call("card", {"data_set": table})
        return tuple(str(one["name"]) for one in card["columns"] if _is_bounded(one))

    def release(self, key: str, *, epsilon: float, delta: float | None = None) -> Any:
        """Release sums or means of a table's columns by a query to the site's vault, at a price."""
        from sfumato.features.federated.tensors.local_tensor import local

        source = self.ask(do="source", key=key)
        how, names = _SQL[source["how"]], source["columns"]
        cells = ", ".join(f"{how}({_quoted(name)}) AS c{n}" for n, name in enumerate(names))
        asked = f"SELECT {cells} FROM {_quoted(source['table'])}"
        answer = self.vault[source["table"]].ask(asked, epsilon=epsilon, delta=delta)
        values = [float(value) for value in answer.rows[0]]
        made = local(torch.tensor(values, dtype=torch.float64))
        made = made[0] if source["is_one"] else made
        made.answer = answer
        return made

    def close(self) -> None:
        """Close the connections; the site deletes sent tensors after a long idle time."""
        self.vault.close()

    def _sent(self, verb: str, body: Mapping[str, Any]) -> bytes:
        self._number += 1
        numbered = {**body, "session": self._session, "number": self._number}
        return base64.b64decode(self.vault.call(verb, numbered)["message"])


def connect(url: str, *, token: str, id: str | None = None) -> Site:  # noqa: A002
    """Connect to the site at a URL as the token's user; return it as a worker."""
    return Site(url, token=token, id=id)


def _is_bounded(column: Mapping[str, Any]) -> bool:
    bounds = column.get("lower"), column.get("upper")
    return column.get("type") in ("integer", "number") and None not in bounds


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(message: bytes) -> str:
    return base64.b64encode(message).decode("ascii")
