"""A worker in this process, spoken to in messages of bytes as if it were far away.

It keeps the rules of a site, not its walls: whoever runs the process can read its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch

from sfumato.core.refusal import Refused
from sfumato.federated.frames import Reference, decode, encode
from sfumato.federated.store import TABLE, Store
from sfumato.federated.trainee import Offer

if TYPE_CHECKING:
    from sfumato.federated.remote import RemoteTensor


class VirtualWorker:
    """A worker with a name; holds what it is sent, and tables of its own if it is given any."""

    def __init__(
        self,
        id: str,  # noqa: A002  # the course's word
        *,
        tables: Mapping[str, torch.Tensor] | None = None,
        offer: Offer | None = None,
    ) -> None:
        self.id = id
        self._store = Store(tables or {}, offer)

    def __repr__(self) -> str:
        return f"<VirtualWorker id={self.id!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_objects()

    def ask(self, **words: Any) -> Any:
        """Return the worker's answer to a request, or raise its refusal."""
        answer = decode(self._store.handle(encode(words)))
        if "refused" in answer:
            code, cause, next_step = answer["refused"]
            raise Refused(code, f"Worker {self.id!r}: {cause}", next_step)
        return answer["said"]

    def table(self, name: str) -> RemoteTensor:
        """Return a reference to one of the site's own tables."""
        from sfumato.federated.remote import remote

        return remote(self, self.ask(do="table", name=name))

    def objects(self) -> tuple[str, ...]:
        """Return the names of what the worker holds: its tables, then keys of objects."""
        return tuple(self.ask(do="list"))

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the site's own tables."""
        return tuple(n.removeprefix(TABLE) for n in self.objects() if n.startswith(TABLE))

    def objects_count(self) -> int:
        """Return how many objects were sent here or computed here and are still held."""
        return len(self.objects()) - len(self.tables)

    def clear_objects(self) -> Self:
        """Forget whatever was sent and computed; the site's own tables stay."""
        self.ask(do="clear")
        return self


class Ref:
    """One object at a worker: it is dropped there when nobody here speaks of it any more."""

    __slots__ = ("is_open", "key", "worker")

    def __init__(self, worker: VirtualWorker, key: str) -> None:
        self.worker = worker
        self.key = key
        self.is_open = not key.startswith(TABLE)

    def __del__(self) -> None:
        if self.is_open:
            self.is_open = False
            self.worker.ask(do="drop", key=self.key)

    def word(self) -> Reference:
        """Return what stands for the object in a message."""
        return Reference(self.key)
