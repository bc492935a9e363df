"""Tensors that are here, and can be sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, overload

import torch

from sfumato.features.federated.tensors.remote_tensor import INSTEAD, RemoteTensor, not_here, put
from sfumato.features.federated.tensors.worker import Worker

if TYPE_CHECKING:
    from sfumato.features.federated.tensors.secret_shared_tensor import FixedTensor, SharedTensor


class LocalTensor(torch.Tensor):
    """A tensor of PyTorch that can be sent, called by tags, and shared among workers."""

    _labels: tuple[frozenset[str], str | None] = (frozenset(), None)

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

    def copy(self) -> LocalTensor:
        """Return another with the same values."""
        return self.clone()

    @property
    def child(self) -> LocalTensor:
        """Return itself: nothing is wrapped in anything."""
        return self

    def tag(self, *tags: str) -> LocalTensor:
        """Be found by these words at the worker that it is sent to (`worker.search`)."""
        self._labels = (self._labels[0] | {*tags}, self._labels[1])
        return self

    def describe(self, line: str) -> LocalTensor:
        """Have a line about it kept at the worker that it is sent to."""
        self._labels = (self._labels[0], line)
        return self

    @property
    def tags(self) -> set[str]:
        """Return the words by which it is to be found."""
        return {*self._labels[0]}

    @property
    def description(self) -> str | None:
        """Return the line about it."""
        return self._labels[1]

    def fix_precision(self, *, precision_fractional: int = 3) -> FixedTensor:
        """Return its numbers as whole ones, of so many decimal places."""
        from sfumato.features.federated.tensors.secret_shared_tensor import fixed

        return fixed(self, precision_fractional)

    fix_prec = fix_precision

    def share(self, *workers: Worker, crypto_provider: object = None) -> SharedTensor:
        """Return its whole numbers split among workers, of which none learns a thing alone."""
        from sfumato.features.federated.tensors.secret_shared_tensor import shared

        del crypto_provider  # who shares draws what products need
        return shared(self, workers)

    def __getattr__(self, name: str) -> Any:
        raise not_here(self, name, INSTEAD)


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


def tensor(
    data: Any,  # whatever torch.tensor takes
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> LocalTensor:
    """Return a tensor that can be sent.

    Args:
        data: Numbers, nested lists or an array, as `torch.tensor` takes them.
        dtype: The type of its numbers; without it, what the data suggest.
        device: Where it is kept.
        requires_grad: Whether gradients are kept for it.
        pin_memory: Whether it lies in pinned memory.
    """
    made = local(torch.tensor(data, dtype=dtype, device=device, pin_memory=pin_memory))
    return made.requires_grad_() if requires_grad else made


def local(held: torch.Tensor) -> LocalTensor:
    """Return the same tensor as one that can be sent."""
    return held.as_subclass(LocalTensor)
