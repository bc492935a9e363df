"""Tensors that stay with a worker: send, compute there, and bring back what was yours.

Needs PyTorch (`pip install torch==2.13.0`), which stands outside the hash lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.core.refusal import Refused

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation, federate
    from sfumato.federated.local import LocalTensor, tensor
    from sfumato.federated.models import nn
    from sfumato.federated.remote import RemoteTensor
    from sfumato.federated.site import Site, connect
    from sfumato.federated.virtual import VirtualWorker

_WHERE = {
    "Federation": "federation",
    "federate": "federation",
    "LocalTensor": "local",
    "RemoteTensor": "remote",
    "Site": "site",
    "VirtualWorker": "virtual",
    "connect": "site",
    "nn": "models",
    "tensor": "local",
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
    """Bring in PyTorch only when it is used, and say so where it is not installed."""
    import importlib
    import importlib.util

    if name not in _WHERE:
        raise AttributeError(f"module 'sfumato.federated' has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise Refused(
            "not-installed",
            "Remote tensors need the package torch.",
            "Install it: pip install torch==2.13.0.",
        )
    return getattr(importlib.import_module(f"sfumato.federated.{_WHERE[name]}"), name)
