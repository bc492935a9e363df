"""A worker inside this process, which uses the same byte messages as a remote one.

It follows the rules of a site, but is not isolated: the operator of the process can read its
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.object_store import Store
from sfumato.features.federated.tensors.tensor_messages import answered, encode
from sfumato.features.federated.tensors.worker import TABLE, Worker
from sfumato.features.federated.training.training_site import SiteLimits


class VirtualWorker(Worker):
    """A named worker in this process, with optional tables of its own."""

    def __init__(
        self,
        id: str,  # noqa: A002  # PySyft 0.2's name
        *,
        tables: Mapping[str, torch.Tensor] | None = None,
        offer: SiteLimits | None = None,
    ) -> None:
        self.id = id
        self._store = Store(tables or {}, offer)

    def ask(self, **words: Any) -> Any:
        """Send the worker one request; return its answer, or raise its refusal."""
        return answered(self._store.handle(encode(words)), f"Worker {self.id!r}")

    def told_of_table(self, name: str) -> Any:
        """Return the reference, shape and dtype of one of the worker's own tables."""
        return self.ask(do="table", name=name)

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the worker's own tables."""
        found = self.ask(do="list")
        return tuple(n.removeprefix(TABLE) for n in found if n.startswith(TABLE))

    def release(self, key: str, *, epsilon: float, delta: float | None = None) -> Any:
        """Refuse: a worker in this process has no vault and no ledger."""
        raise Refused(
            "remote-private",
            f"The worker {self.id!r} runs in this Python process and has no vault, so no privacy "
            "budget can pay for a release.",
            "Use a site with a vault (docs/how-to/federated.md), or let several sites train.",
        )


HERE: Final = VirtualWorker("me")  # the local worker: it owns references, and moving to it fetches
