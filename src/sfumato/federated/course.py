"""The names that an old course's notebooks use, so that only their import lines change.

    import sfumato.federated.course as sy
    from sfumato.federated.course import nn, optim, th

Nothing is hooked: `TorchHook` is there because notebooks make one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Self

import torch
from torch import optim

from sfumato.federated import virtual
from sfumato.federated.local import LocalTensor, local, tensor
from sfumato.federated.models import nn
from sfumato.federated.remote import not_here

INSTEAD: Final = {
    "FederatedDataLoader": "(x[0:2].send(bob), x[2:4].send(alice)), and loop over them",
    "PrivateTensor": "VirtualWorker(id='clinic', tables={...}), whose tables stay there",
    "WebsocketClientWorker": "sfumato.federated.Site(url, token=...)",
    "WebsocketServerWorker": "sfumato site --vault ... --data ... in a shell",
}
__all__ = ["TorchHook", "VirtualWorker", "nn", "optim", "th"]


def __getattr__(name: str) -> NoReturn:
    """Say what to write in the place of an old name that is not here."""
    raise not_here(sys.modules[__name__], name, INSTEAD)


class TorchHook:
    """Holds the notebook's own worker, and changes nothing."""

    def __init__(self, torch: object = None, **_: object) -> None:
        self.local_worker = virtual.HERE


class VirtualWorker(virtual.VirtualWorker):
    """A worker that is made as it used to be: with the hook first."""

    def __init__(self, hook: object = None, id: str = "worker", **terms: Any) -> None:  # noqa: A002
        super().__init__(str(id), **terms)

    @property
    def _objects(self) -> dict[str, str]:
        """What the worker holds, by key; it does not show values, nor sizes."""
        return dict.fromkeys(self.objects(), f"at {self.id}")

    _tensors = _objects

    def add_workers(self, workers: Iterable[object]) -> Self:
        """Change nothing: a reference says itself where it is."""
        del workers
        return self


class Torch:
    """`torch`, where what makes a tensor makes one that can be sent."""

    nn = nn
    optim = optim

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        return _making(found) if name in MAKERS else found

    def tensor(self, data: Any, **terms: Any) -> LocalTensor:
        """Return a tensor that can be sent."""
        return tensor(data, **terms)

    Tensor = FloatTensor = staticmethod(lambda data: tensor(data, dtype=torch.float32))
    LongTensor = staticmethod(lambda data: tensor(data, dtype=torch.int64))


MAKERS = frozenset({
    "arange", "empty", "eye", "from_numpy", "full", "linspace", "ones", "rand", "randint", "randn",
    "zeros",
})  # fmt: skip


def _making(maker: Any) -> Any:
    return lambda *args, **named: local(maker(*args, **named))


th = Torch()
