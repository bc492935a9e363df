"""PyTorch modules that can be sent to workers: with `send`, `get`, `move` and `copy`.

`nn.Linear` and the others are subclasses created on demand; PyTorch itself is not patched. A model
is sent in place: its parameters stay the same objects, so an existing optimiser still works.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, Self

import torch

from sfumato.features.federated.tensors.remote_tensor import RemoteParameter, put
from sfumato.features.federated.tensors.tensor_messages import malformed
from sfumato.features.federated.tensors.worker import Ref, Worker


class Sendable:
    """A mixin that lets PyTorch modules be sent to workers and fetched back."""

    def send(self, worker: Worker) -> Self:
        """Send every parameter to the worker, in place."""
        return send(self, worker)

    def get(self) -> Self:
        """Fetch every parameter back, in place; all or none."""
        return get(self)

    def move(self, worker: Worker) -> Self:
        """Move the model from one worker to another."""
        return send(get(self), worker)

    def copy(self) -> Self:
        """Return a deep copy of the model."""
        return copy.deepcopy(self)

    @property
    def location(self) -> Worker | None:
        """Return the model's worker, or None if it is local."""
        return location(self)


def location(model: Any) -> Worker | None:
    """Return the model's worker, or None if it is local."""
    for parameter in model.parameters():
        if isinstance(parameter, RemoteParameter):
            return parameter.location
    return None


def send(model: Any, worker: Worker) -> Any:
    """Send every parameter of a module to the worker, in place; return the module."""
    if next(model.buffers(), None) is not None:
        raise malformed(
            "a model with buffers (batch norms) cannot be sent, because buffers carry data"
        )
    if location(model) is not None:
        raise malformed("the model is already at a worker; bring it back or move it")
    for parameter in model.parameters():
        if type(parameter) is not torch.nn.Parameter:
            raise malformed(f"a parameter of type {type(parameter).__name__} cannot be sent")
    for parameter in model.parameters():
        at = put(worker, parameter)
        parameter.grad = None
        ref, at._ref = at._ref, Ref(worker, "table:")
        parameter._ref, parameter._needs_grad = ref, parameter.requires_grad
        parameter.__class__ = RemoteParameter
    return model


def get(model: Any) -> Any:
    """Fetch every parameter of a module back, in place; return the module."""
    away = [p for p in model.parameters() if isinstance(p, RemoteParameter)]
    values = [parameter.clone().get() for parameter in away]  # all or none
    for parameter, value in zip(away, values, strict=True):
        ref = parameter._ref
        parameter.__class__ = torch.nn.Parameter
        del parameter._ref, parameter._needs_grad, ref
        with torch.no_grad():
            parameter.copy_(value.as_subclass(torch.Tensor))
    return model


class Networks:
    """A stand-in for `torch.nn` whose modules can be sent to workers."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch.nn, name, None)
        if found is None:
            raise AttributeError(f"torch.nn has no {name!r}")
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            return _sendable(name, found)
        return found


@lru_cache(maxsize=512)
def _sendable(name: str, module: type) -> type:
    return type(name, (Sendable, module), {"__module__": __name__, "__doc__": module.__doc__})


nn = Networks()
