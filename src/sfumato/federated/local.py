"""Tensors that are here, and can be sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, overload

import torch

from sfumato.federated.remote import RemoteTensor, put
from sfumato.federated.worker import Worker


class LocalTensor(torch.Tensor):
    """A tensor of PyTorch with one word more: `send`."""

    @overload
    def send(self, worker: Worker) -> RemoteTensor: ...
    @overload
    def send(self, worker: Worker, *others: Worker) -> SeveralTensors: ...
    def send(self, worker: Worker, *others: Worker) -> RemoteTensor | SeveralTensors:
        """Return the tensor at the worker, or at each of several; this one stays as it is."""
        if not others:
            return put(worker, self)
        return SeveralTensors(tuple(put(one, self) for one in (worker, *others)))

    def __repr__(self, **_: object) -> str:
        return torch.Tensor.__repr__(self).replace(f"{type(self).__name__}(", "tensor(", 1)

    def get(self) -> LocalTensor:
        """Return itself: it is here already."""
        return self


@dataclass(frozen=True)
class SeveralTensors:
    """One tensor at each of several workers, as it was sent to them."""

    at: tuple[RemoteTensor, ...]

    @property
    def location(self) -> tuple[Worker, ...]:
        """Return where they are."""
        return tuple(one.location for one in self.at)

    def get(self, sum_results: bool = False) -> Any:
        """Return all of them, or (the course's word for it) their sum; nobody keeps them longer."""
        brought = [one.get() for one in self.at]
        return reduce(add, brought) if sum_results else brought


def tensor(data: Any, **terms: Any) -> LocalTensor:  # Any: whatever torch.tensor takes
    """Return a tensor that can be sent; takes what `torch.tensor` takes."""
    needs_grad = terms.pop("requires_grad", False)
    made = local(torch.tensor(data, **terms))
    return made.requires_grad_() if needs_grad else made


def local(held: torch.Tensor) -> LocalTensor:
    """Return the same tensor as one that can be sent."""
    return held.as_subclass(LocalTensor)
