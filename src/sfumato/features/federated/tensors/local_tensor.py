"""Local tensors that can be sent to workers."""

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
    """A PyTorch tensor that can be sent, tagged, and secret-shared among workers."""

    _labels: tuple[frozenset[str], str | None] = (frozenset(), None)

    @overload
    def send(self, worker: Worker) -> RemoteTensor: ...
    @overload
    def send(self, worker: Worker, *others: Worker) -> SeveralTensors: ...
    def send(self, worker: Worker, *others: Worker) -> RemoteTensor | SeveralTensors:
        """Copy the tensor to one worker or to several; the local tensor does not change."""
        if not others:
            return put(worker, self)
        return SeveralTensors(tuple(put(one, self) for one in (worker, *others)))

    def __repr__(self, **_: object) -> str:
        return torch.Tensor.__repr__(self).replace(f"{type(self).__name__}(", "tensor(", 1)

    def get(self) -> LocalTensor:
        """Return the tensor itself, because it is local already."""
        return self

    def copy(self) -> LocalTensor:
        """Return a local copy of the tensor."""
        return self.clone()

    @property
    def child(self) -> LocalTensor:
        """Return the tensor itself, for notebooks that use PySyft 0.2's `child`.

        There it was the tensor inside a wrapper.
        """
        return self

    def tag(self, *tags: str) -> LocalTensor:
        """Add tags, by which `worker.search` finds the tensor after it is sent."""
        self._labels = (self._labels[0] | {*tags}, self._labels[1])
        return self

    def describe(self, line: str) -> LocalTensor:
        """Set a description, which the worker keeps after the tensor is sent."""
        self._labels = (self._labels[0], line)
        return self

    @property
    def tags(self) -> set[str]:
        """Return the tensor's tags, by which `worker.search` finds it once sent."""
        return {*self._labels[0]}

    @property
    def description(self) -> str | None:
        """Return the tensor's description, or None."""
        return self._labels[1]

    def fix_precision(self, *, precision_fractional: int = 3) -> FixedTensor:
        """Convert to fixed-point numbers with `precision_fractional` decimal places."""
        from sfumato.features.federated.tensors.secret_shared_tensor import fixed

        return fixed(self, precision_fractional)

    fix_prec = fix_precision

    def share(self, *workers: Worker, crypto_provider: object = None) -> SharedTensor:
        """Secret-share the integers among workers. No worker learns anything alone."""
        from sfumato.features.federated.tensors.secret_shared_tensor import shared

        # the caller deals the multiplication triples, so no crypto provider is needed
        del crypto_provider
        return shared(self, workers)

    def __getattr__(self, name: str) -> Any:
        raise not_here(self, name, INSTEAD)


@dataclass(frozen=True)
class SeveralTensors:
    """Copies of one tensor at several workers."""

    at: tuple[RemoteTensor, ...]

    @property
    def location(self) -> tuple[Worker, ...]:
        """Return the workers that hold the copies."""
        return tuple(one.location for one in self.at)

    def get(self, sum_results: bool = False) -> Any:
        """Fetch all copies; the workers delete theirs.

        `sum_results` returns their sum instead, as in PySyft 0.2.
        """
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
    """Create a tensor that can be sent.

    Args:
        data: Numbers, nested lists or an array, as `torch.tensor` takes them.
        dtype: The dtype; None infers it from the data.
        device: The device.
        requires_grad: Whether autograd records operations on it.
        pin_memory: Whether to allocate it in pinned memory.
    """
    made = local(torch.tensor(data, dtype=dtype, device=device, pin_memory=pin_memory))
    return made.requires_grad_() if requires_grad else made


def local(held: torch.Tensor) -> LocalTensor:
    """Return the tensor as a `LocalTensor`, which can be sent."""
    return held.as_subclass(LocalTensor)
