"""What every worker can do, wherever it runs: it is asked in words, and holds what it is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from sfumato.features.federated.tensors.tensor_messages import Reference

if TYPE_CHECKING:
    from sfumato.features.federated.tensors.remote_tensor import RemoteTensor

TABLE: Final = "table:"


class Worker(ABC):
    """A place with a name that computes with the tensors that it holds."""

    id: str

    @abstractmethod
    def ask(self, **words: Any) -> Any:
        """Return the worker's answer to one request of the tensor protocol, or raise its refusal.

        Tensors ask for you; call it only to speak the protocol yourself.

        Args:
            words: The fields of the request; `do` names it.
        """

    @abstractmethod
    def told_of_table(self, name: str) -> Any:
        """Return what a client learns of one of the site's own tables."""

    @property
    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """Return the names of the site's own tables."""

    @abstractmethod
    def release(self, key: str, *, epsilon: float, delta: float | None = None) -> Any:
        """Return what the site's door gives for what an object is, at a price; or refuse.

        Args:
            key: The object: a sum or mean of a table's columns.
            epsilon: What it may cost.
            delta: What may be spent of delta; without it, the card's `delta_per_request`.

        Returns:
            A tensor of noisy numbers, with the `answer` beside it.

        Raises:
            Refused: If the object is anything else, or cannot be paid.
        """

    def drop(self, key: str) -> None:
        """Let the worker forget an object of which nobody here speaks any more."""
        self.ask(do="drop", key=key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id={self.id!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_objects()

    def table(self, name: str) -> RemoteTensor:
        """Return a reference to one of the site's own tables."""
        from sfumato.features.federated.tensors.remote_tensor import remote

        return remote(self, self.told_of_table(name))

    def objects(self) -> tuple[str, ...]:
        """Return the names of what the worker holds: its tables, then keys of objects."""
        held = (key for key in self.ask(do="list") if not key.startswith(TABLE))
        return (*(f"{TABLE}{name}" for name in self.tables), *held)

    def objects_count(self) -> int:
        """Return how many objects were sent here or computed here and are still held."""
        return len(self.objects()) - len(self.tables)

    def search(self, *tags: str | Sequence[str]) -> list[RemoteTensor]:
        """Return references to all that bears each of these tags; none of them keeps it there."""
        from sfumato.features.federated.tensors.remote_tensor import remote

        words = [word for one in tags for word in ([one] if isinstance(one, str) else one)]
        found = [remote(self, told) for told in self.ask(do="search", tags=words)]
        for one in found:
            one._ref.is_open = False
        return found

    def clear_objects(self) -> Self:
        """Forget whatever was sent and computed; the site's own tables stay."""
        self.ask(do="clear")
        return self


class Ref:
    """One object at a worker: it is dropped there when nobody here speaks of it any more."""

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
        """Return what stands for the object in a message."""
        return Reference(self.key)
