"""Tensors that are here, and can be sent."""

from __future__ import annotations

from typing import Any

import torch

from sfumato.federated.remote import RemoteTensor, put
from sfumato.federated.worker import Worker


class LocalTensor(torch.Tensor):
    """A tensor of PyTorch with one word more: `send`."""

    def send(self, worker: Worker) -> RemoteTensor:
        """Return the tensor at the worker; this one stays as it is."""
        return put(worker, self)

    def __repr__(self, **_: object) -> str:
        return torch.Tensor.__repr__(self).replace(f"{type(self).__name__}(", "tensor(", 1)

    def get(self) -> LocalTensor:
        """Return itself: it is here already."""
        return self


def tensor(data: Any, **terms: Any) -> LocalTensor:  # Any: whatever torch.tensor takes
    """Return a tensor that can be sent; takes what `torch.tensor` takes."""
    needs_grad = terms.pop("requires_grad", False)
    made = local(torch.tensor(data, **terms))
    return made.requires_grad_() if needs_grad else made


def local(held: torch.Tensor) -> LocalTensor:
    """Return the same tensor as one that can be sent."""
    return held.as_subclass(LocalTensor)
