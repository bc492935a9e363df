"""Remote tensors and federated training in the style of PySyft 0.2; needs PyTorch.

A tensor that is sent to a worker stays there. The worker runs the operations, and the caller can
fetch only values that came from the caller. The hash lock does not include PyTorch: `pip install
torch==2.13.0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.features.federated.tensors.local_tensor import LocalTensor, tensor
    from sfumato.features.federated.tensors.remote_modules import nn
    from sfumato.features.federated.tensors.remote_tensor import RemoteTensor
    from sfumato.features.federated.tensors.site_client import Site, connect
    from sfumato.features.federated.tensors.virtual_worker import VirtualWorker
    from sfumato.features.federated.training.federation import Federation, federate

_WHERE = {
    "Federation": "training.federation",
    "federate": "training.federation",
    "LocalTensor": "tensors.local_tensor",
    "RemoteTensor": "tensors.remote_tensor",
    "Site": "tensors.site_client",
    "VirtualWorker": "tensors.virtual_worker",
    "connect": "tensors.site_client",
    "nn": "tensors.remote_modules",
    "tensor": "tensors.local_tensor",
}
__all__ = [
    "Federation",
    "LocalTensor",
    "RemoteTensor",
    "Site",
    "VirtualWorker",
    "connect",
    "federate",
    "nn",
    "tensor",
]


def __getattr__(name: str) -> object:
    """Import PyTorch only on first use; refuse with install instructions if it is missing."""
    import importlib
    import importlib.util

    if name not in _WHERE:
        raise AttributeError(f"module 'sfumato.features.federated' has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise Refused(
            "not-installed",
            "Remote tensors need the package torch.",
            "Install it: pip install torch==2.13.0.",
        )
    return getattr(importlib.import_module(f"sfumato.features.federated.{_WHERE[name]}"), name)
