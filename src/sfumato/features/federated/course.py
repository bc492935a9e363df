"""The names of PySyft 0.2 that course notebooks use; only the notebooks' imports change.

    import sfumato.features.federated.course as sy
    from sfumato.features.federated.course import nn, optim, th

PyTorch itself is not patched. Tensors that can be sent come from this module's `th` (also called
`torch`). Notebooks create a `TorchHook`; it refuses plain PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Self

import torch as plain_torch
from torch import optim

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors import virtual_worker
from sfumato.features.federated.tensors.local_tensor import LocalTensor, local, tensor
from sfumato.features.federated.tensors.remote_modules import nn
from sfumato.features.federated.tensors.remote_tensor import not_here

_LOOP: Final = "(x[0:2].send(bob), x[2:4].send(alice)), and loop over them"
_SITE: Final = "sfumato.features.federated.Site(url, token=...)"
_SERVE: Final = "sfumato site --vault ... --data ... in a shell"
_SHARE: Final = "x.fix_precision().share(bob, alice)"
_SEND: Final = "x.send(bob), which returns the reference itself"
_PROGRAM: Final = (
    "a function, and vault['name'].run(...), which runs it there (docs/how-to/pipelines.md)"
)
_TRAIN: Final = "sfumato.features.federated.federate(...), or `sfumato federate` over real sites"
INSTEAD: Final = {  # names of PySyft 0.2 that do not exist here
    "AdditiveSharingTensor": _SHARE,
    "AutogradTensor": "requires_grad=True where the tensor is made",
    "BaseDataset": _LOOP,
    "BaseWorker": "VirtualWorker(hook, id='bob')",
    "CRTPrecisionTensor": "x.fix_precision()",
    "DataCentricFLClient": _SITE,
    "DynamicFLClient": _SITE,
    "FederatedClient": _TRAIN,
    "FederatedDataLoader": _LOOP,
    "FederatedDataset": _LOOP,
    "FixedPrecisionTensor": "x.fix_precision()",
    "GridNetwork": "a list of sfumato.features.federated.Site(url, token=...)",
    "KerasHook": "TorchHook(th): models are PyTorch's",
    "LargePrecisionTensor": "x.fix_precision()",
    "LoggingTensor": "print where you want to see something",
    "ModelCentricFLClient": _TRAIN,
    "MultiPointerTensor": "x.send(bob, alice)",
    "ObjectPointer": _SEND,
    "Plan": _PROGRAM,
    "PlaceHolder": _PROGRAM,
    "PointerPlan": _PROGRAM,
    "PointerTensor": _SEND,
    "PrivateGridNetwork": "a list of sfumato.features.federated.Site(url, token=...)",
    "PrivateTensor": "VirtualWorker(id='clinic', tables={...}), whose tables stay there",
    "Protocol": _PROGRAM,
    "PublicGridNetwork": "a list of sfumato.features.federated.Site(url, token=...)",
    "Role": _PROGRAM,
    "State": _PROGRAM,
    "StaticFLClient": _TRAIN,
    "TensorFlowHook": "TorchHook(th): models are PyTorch's",
    "TrainConfig": _TRAIN,
    "VirtualGrid": "a list of VirtualWorker(hook, id=...)",
    "WebsocketClientWorker": _SITE,
    "WebsocketServerWorker": _SERVE,
    "combine_pointers": "x.send(bob, alice)",
    "create_sandbox": "VirtualWorker(hook, id='bob'), and send it what you need",
    "federated": _TRAIN,
    "func2plan": _PROGRAM,
    "frameworks": "the names of this module",
    "grid": "a list of sfumato.features.federated.Site(url, token=...)",
    "hook": "TorchHook(th)",
    "load": "torch.load, before tensors are sent",
    "local_worker": "TorchHook(th).local_worker",
    "make_hook": "TorchHook(th)",
    "serde": "x.send(bob): messages are made for you",
    "workers": "VirtualWorker(hook, id='bob')",
}
_IMPORTS: Final = (
    "from sfumato.features.federated.course import th, nn, optim (or torch in the place of th, if your "  # noqa: E501
    "cells say torch)."
)
__all__ = ["TorchHook", "VirtualWorker", "nn", "optim", "th", "torch"]


def __getattr__(name: str) -> NoReturn:
    """Refuse a PySyft 0.2 name that does not exist here, and name its replacement."""
    raise not_here(sys.modules[__name__], name, INSTEAD)


class TorchHook:
    """Stand in for PySyft's TorchHook: provide the local worker, and refuse plain PyTorch.

    The hook patches nothing in PyTorch.
    """

    def __init__(self, torch: object = None, **_: object) -> None:
        if torch is plain_torch:
            raise Refused(
                "remote-refused",
                "TorchHook got the torch module itself. sfumato does not change PyTorch, so "
                "plain PyTorch tensors cannot be sent.",
                f"Instead of `import torch as th`, write: {_IMPORTS}",
            )
        self.local_worker = virtual_worker.HERE


class VirtualWorker(virtual_worker.VirtualWorker):
    """A worker with the constructor of PySyft 0.2: the hook is the first argument."""

    def __init__(self, hook: object = None, id: str = "worker", **terms: Any) -> None:  # noqa: A002
        super().__init__(str(id), **terms)

    @property
    def _objects(self) -> dict[str, str]:
        """Return the worker's objects by key, as PySyft 0.2 names them.

        Instead of its value, each object is a text that names the worker.
        """
        return dict.fromkeys(self.objects(), f"at {self.id}")

    _tensors = _objects

    def add_workers(self, workers: Iterable[object]) -> Self:
        """Do nothing; in PySyft 0.2 this makes workers known to each other.

        Here each tensor reference already knows its worker.
        """
        del workers
        return self


class Torch:
    """A stand-in for the `torch` module: tensors that it creates can be sent to workers.

    All other functions are those of PyTorch.
    """

    nn = nn
    optim = optim

    def __getattr__(self, name: str) -> Any:
        found = getattr(plain_torch, name)
        return _making(found) if name in MAKERS else found

    def tensor(self, data: Any, **terms: Any) -> LocalTensor:
        """Return a tensor that can be sent to a worker."""
        return tensor(data, **terms)

    Tensor = FloatTensor = staticmethod(lambda data: tensor(data, dtype=plain_torch.float32))
    LongTensor = staticmethod(lambda data: tensor(data, dtype=plain_torch.int64))


MAKERS = frozenset({
    "arange", "empty", "eye", "from_numpy", "full", "linspace", "ones", "rand", "randint", "randn",
    "zeros",
})  # fmt: skip


def _making(maker: Any) -> Any:
    return lambda *args, **named: local(maker(*args, **named))


th = torch = Torch()
