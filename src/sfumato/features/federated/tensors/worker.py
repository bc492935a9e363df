"""The interface of a worker: it holds tensors that are sent to it, and computes with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from sfumato.features.federated.tensors.tensor_messages import Reference

if TYPE_CHECKING:
    from sfumato.features.federated.tensors.remote_tensor import RemoteTensor

TABLE: Final = "table:"


class Worker(ABC):
    """The base class of workers, which hold tensors and compute: at a site, or in this process."""

    id: str

    @abstractmethod
    def ask(self, **words: Any) -> Any:
        """Send one request of the tensor protocol; return the answer or raise the refusal.

        Tensors call this for you. Call it only to speak the protocol yourself.

        Args:
            words: The fields of the request; `do` names it.
        """

    @abstractmethod
    def told_of_table(self, name: str) -> Any:
        """Return the reference, shape and dtype of one of the worker's own tables."""

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """Return the names of the worker's own tables."""

    @abstractmethod
    def release(self, key: str, *, epsilon: float, delta: float | None = None) -> Any:
        """Release a sum or mean of a table's columns with noise, at a price; or refuse.

        Args:
            key: The object: a sum or mean of a table's columns.
            epsilon: The largest epsilon to spend.
            delta: The largest delta to spend; None means the card's `delta_per_request`.

        Returns:
            A tensor of noisy numbers, with the answer in its attribute `answer`.

        Raises:
            Refused: If the object is anything else, or cannot be paid.
        """

    def drop(self, key: str) -> None:
        """Delete an object at the worker after its last local reference is gone."""
        self.ask(do="drop", key=key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id={self.id!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_objects()

    def table(self, name: str) -> RemoteTensor:
        """Return a reference to one of the worker's own tables."""
        from sfumato.features.federated.tensors.remote_tensor import remote

        return remote(self, self.told_of_table(name))

    def objects(self) -> tuple[str, ...]:
        """Return the names of everything the worker holds: tables, then keys of objects."""
        held = (key for key in self.ask(do="list") if not key.startswith(TABLE))
        return (*(f"{TABLE}{name}" for name in self.tables), *held)

    def objects_count(self) -> int:
        """Return the number of sent or computed objects that the worker still holds."""
        return len(self.objects()) - len(self.tables)

    def search(self, *tags: str | Sequence[str]) -> list[RemoteTensor]:
        """Return references to all objects that have every given tag.

        These references delete nothing when they are garbage-collected.
        """
        from sfumato.features.federated.tensors.remote_tensor import remote

        words = [word for one in tags for word in ([one] if isinstance(one, str) else one)]
        found = [remote(self, told) for told in self.ask(do="search", tags=words)]
        for one in found:
            one._ref.is_open = False
        return found

    def clear_objects(self) -> Self:
        """Delete all sent and computed objects; the site's own tables stay."""
        self.ask(do="clear")
        return self


class Ref:
    """A handle to one object at a worker; garbage collection of the handle deletes the object."""

    __slots__ = ("is_open", "key", "worker")

    def __init__(self, worker: Worker, key: str) -> None:
        self.worker = worker
        self.key = key
        self.is_open = not key.startswith(TABLE)

    def __del__(self) -> None:
        if self.is_open:
            self.is_open = False
            self.worker.drop(self.key)

    def word(self) -> Reference:
        """Return the object's key in the form that messages to the worker use."""
        return Reference(self.key)
