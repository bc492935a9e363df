"""Tensors whose values are at a worker: PyTorch functions accept them, and the worker computes.

A remote tensor is a PyTorch tensor without values (on the `meta` device). So shapes are known
locally, and modules and optimisers accept it. PyTorch hands every function call on one to
`__torch_function__`; PyTorch itself is not patched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.operations import IN_PLACE, name_of
from sfumato.features.federated.tensors.worker import Ref, Worker

KNOWN_HERE: Final = frozenset({
    "shape", "dtype", "ndim", "device", "layout", "is_sparse", "is_cuda", "is_complex", "is_leaf",
    "is_quantized", "is_floating_point", "size", "dim", "numel", "element_size", "stride",
    "__len__", "__hash__", "is_mkldnn", "is_meta", "is_nested", "is_mps", "is_xla", "is_same_size",
    "is_contiguous", "ndimension", "nelement", "itemsize", "is_signed", "is_inference",
    "_is_view", "_backward_hooks", "names", "has_names",
})  # fmt: skip


INSTEAD: Final = {  # PySyft 0.2 name -> replacement
    "send_": "x = x.send(worker)",
    "get_": "x = x.get()",
    "move_": "x = x.move(worker)",
    "fix_precision_": "x = x.fix_precision()",
    "fix_prec_": "x = x.fix_prec()",
    "share_": "x = x.share(bob, alice)",
    "float_precision_": "x = x.float_precision()",
    "float_prec_": "x = x.float_prec()",
}
OF_POINTERS: Final = {
    "fix_precision": "x.get().fix_precision()",
    "fix_prec": "x.get().fix_prec()",
    "share": "x.get().fix_precision().share(bob, alice)",
    "float_precision": "x.get().float_precision()",
    "float_prec": "x.get().float_prec()",
}


class RemoteTensor(torch.Tensor):
    """A tensor whose values are at a worker, which computes on them when PyTorch is called."""

    _ref: Ref
    _needs_grad: bool
    # True: the tensor was sent and not computed there, so it may have a gradient
    _is_sent: bool = False

    @property
    def location(self) -> Worker:
        """Return the worker that holds the values."""
        return self._ref.worker

    @property
    def id_at_location(self) -> str:
        """Return the key under which the worker holds the values."""
        return self._ref.key

    @property
    def id(self) -> str:
        """Return the name of the reference, as notebooks print it."""
        return f"{self.owner.id}:{self._ref.key}"

    @property
    def owner(self) -> Worker:
        """Return the worker that holds the reference: the local one."""
        from sfumato.features.federated.tensors.virtual_worker import HERE

        return HERE

    @property
    def child(self) -> RemoteTensor:
        """Return the tensor itself, for notebooks that use PySyft 0.2's `child`.

        There it was the tensor inside a wrapper.
        """
        return self

    @property
    def garbage_collect_data(self) -> bool:
        """Return True if the worker deletes the object once its last local reference is gone."""
        return self._ref.is_open

    def tag(self, *tags: str) -> RemoteTensor:
        """Add tags at the worker, for `worker.search`."""
        self._ref.worker.ask(do="label", key=self._ref.key, tags=list(tags), line=None)
        return self

    def describe(self, line: str) -> RemoteTensor:
        """Set the tensor's description at the worker."""
        self._ref.worker.ask(do="label", key=self._ref.key, tags=[], line=line)
        return self

    @property
    def tags(self) -> set[str]:
        """Return the tensor's tags, as the worker has them."""
        return {*self._ref.worker.ask(do="labels", key=self._ref.key)["tags"]}

    @property
    def description(self) -> str | None:
        """Return the tensor's description, as the worker has it, or None."""
        return self._ref.worker.ask(do="labels", key=self._ref.key)["line"]

    def __getattr__(self, name: str) -> Any:
        raise not_here(self, name, {**INSTEAD, **OF_POINTERS})

    def get(self, user: object = None, reason: str = "") -> Any:  # Any: LocalTensor or parameter
        """Fetch the values to this process; the worker deletes them.

        A sent tensor comes back with its gradient, unless the gradient depends on the site's
        tables.
        """
        from sfumato.features.federated.tensors.local_tensor import local

        if user is not None:
            raise refused("the token decides who asks, so nobody can name another user")
        del reason  # PySyft 0.2's parameter, ignored
        grad = self._gradient()
        held = self._ref.worker.ask(do="get", key=self._ref.key)
        self._ref.is_open = False
        if grad is None:
            return local(held)
        brought = local(held.detach()).requires_grad_()
        brought.grad = grad
        return brought

    def _gradient(self) -> Any:  # Any: as above, or None
        if not (self._is_sent and self._needs_grad):
            return None
        try:
            found = self.grad
            return None if found is None else found.get()
        except Refused:
            return None

    def copy(self) -> RemoteTensor:
        """Return a copy at the same worker."""
        return self.clone()

    def release(self, *, epsilon: float, delta: float | None = None) -> Any:
        """Release a sum or mean of a site's table with noise, at a price.

        The exact values stay at the site.

        Args:
            epsilon: The largest epsilon to spend; the site's ledger is charged.
            delta: The largest delta to spend; None means the card's `delta_per_request`.

        Returns:
            A tensor of noisy numbers; its attribute `answer` has receipt and intervals.

        Raises:
            Refused: `remote-private`, if it is no sum or mean of a site's table.
        """
        return self._ref.worker.release(self._ref.key, epsilon=epsilon, delta=delta)

    def move(self, worker: Worker) -> RemoteTensor:
        """Move the tensor to another worker; this worker deletes it."""
        if worker is self.owner:
            return self.get()  # as in PySyft 0.2
        return self if worker is self.location else put(worker, self.get())

    def send(self, worker: Worker) -> RemoteTensor:
        """Move the tensor to that worker."""
        return self.move(worker)

    def __repr__(self, **_: object) -> str:
        return f"[remote tensor {tuple(self.shape)} | {self._ref.worker.id}:{self._ref.key}]"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise refused("a remote tensor cannot be pickled")

    def __deepcopy__(self, memo: object) -> RemoteTensor:
        return self.clone()

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Forward a PyTorch call to the worker, except what the reference itself can answer."""
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__", "__delete__"):
            return _attribute(name, func, args)
        if name in KNOWN_HERE:
            return _here(func, args, kwargs)
        if name == "backward":
            return _backward(*args, **(kwargs or {}))
        if name == "__repr__":
            return repr(args[0])
        return call(name, args, kwargs or {})


class RemoteParameter(RemoteTensor, torch.nn.Parameter):
    """A parameter of a model that was sent to a worker: its values are there.

    It stays the same Python object, so an existing optimiser still updates it.
    """


def remote(worker: Worker, told: Any) -> RemoteTensor:
    """Create the remote tensor that a worker's reply describes."""
    blank = torch.empty(told["shape"], dtype=told["dtype"], device="meta")
    made = blank.as_subclass(RemoteTensor)
    made._ref, made._needs_grad = Ref(worker, told["key"].key), told["needs_grad"]
    return made


def put(worker: Worker, value: torch.Tensor) -> RemoteTensor:
    """Copy a local tensor to the worker, and return its remote tensor.

    The local tensor does not change.
    """
    made = remote(worker, worker.ask(do="put", value=value))
    made._is_sent = True
    tags, line = getattr(value, "_labels", ((), None))
    if tags or line is not None:
        worker.ask(do="label", key=made._ref.key, tags=sorted(tags), line=line)
    return made


def call(said: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Run an operation at the worker of its tensors, and return references to its results."""
    name = name_of(said)
    if name is None:
        raise refused(f"{said!r} is not an operation on remote tensors")
    named = {key: value for key, value in named.items() if not _is_unsaid(key, value)}
    worker = _one_worker([args, named])
    told = worker.ask(do="call", name=name, args=_words(args), named=_words(named))
    if name in IN_PLACE:
        args[0]._needs_grad = told["needs_grad"]
        return args[0]
    if isinstance(told, list):
        return tuple(remote(worker, part) for part in told)
    return remote(worker, told)


def not_here(held: object, name: str, instead: Mapping[str, str]) -> Exception:
    """Return the error for an attribute that remote or local tensors lack.

    If `instead` has a replacement for the attribute, the error is a refusal that names it.
    Otherwise it is an AttributeError.
    """
    if name not in instead:
        return AttributeError(f"{type(held).__name__!r} object has no attribute {name!r}")
    return refused(f"there is no {name!r}; write {instead[name]}")


def _is_unsaid(key: str, value: object) -> bool:
    """Return True for a keyword argument that is not sent to the worker.

    PyTorch adds it by default, or its value is the default.
    """
    return (
        value is None
        or key in ("_stacklevel", "memory_format")
        or (key, value) == ("inplace", False)
    )


def _attribute(how: str, func: Any, args: tuple[Any, ...]) -> Any:
    """Carry out PyTorch's access to an attribute of a remote tensor: get, set or delete it."""
    name, tensor = func.__self__.__name__, args[0]
    if how == "__get__":
        return _read(name, func, tensor)
    if name == "grad":
        value = None if how == "__delete__" or args[1] is None else _words(args[1])
        if value is not None:
            _one_worker([tensor, args[1]])
        return tensor._ref.worker.ask(do="set grad", key=tensor._ref.key, to=value)
    if name == "requires_grad":
        return call("requires_grad_", (tensor, bool(args[1])), {})
    raise refused(f"{name!r} of a remote tensor cannot be set")


def _read(name: str, func: Any, tensor: RemoteTensor) -> Any:
    match name:
        case "grad":
            told = tensor._ref.worker.ask(do="grad", key=tensor._ref.key)
            return None if told is None else remote(tensor._ref.worker, told)
        case "requires_grad":
            return tensor._needs_grad
        case "grad_fn":
            return None
        case "data" | "T":
            return call(name, (tensor,), {})
        case _ if name in KNOWN_HERE:
            return _here(func, (tensor,), None)
    raise refused(f"{name!r} of a remote tensor is not supported")


def _here(func: Any, args: Any, named: dict[str, Any] | None) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **(named or {}))


def _backward(loss: RemoteTensor, *args: Any, **named: Any) -> None:
    given = {key: value for key, value in named.items() if value is not None and value is not False}
    given.pop("inputs", None)
    words, more = _words(args), _words(given)
    loss._ref.worker.ask(do="backward", key=loss._ref.key, args=words, named=more)


def _one_worker(words: Any) -> Worker:
    workers = {id(worker): worker for worker in _workers(words)}
    if len(workers) != 1:
        names = " and ".join(repr(worker.id) for worker in workers.values())
        raise Refused(
            "remote-elsewhere",
            f"The operation needs tensors from different places: {names or 'here'}.",
            "Send or move these tensors to one worker first.",
        )
    return next(iter(workers.values()))


def _workers(words: Any) -> list[Worker]:
    match words:
        case RemoteTensor():
            return [words._ref.worker]
        case torch.Tensor():
            raise Refused(
                "remote-elsewhere",
                "The operation mixes a local tensor with one at a worker.",
                "Send the local tensor to that worker first: x.send(worker).",
            )
        case tuple() | list():
            return [worker for part in words for worker in _workers(part)]
        case dict():
            return _workers(list(words.values()))
    return []


def _words(words: Any) -> Any:
    """Return a call's arguments for a message: each remote tensor becomes a reference."""
    match words:
        case RemoteTensor():
            return words._ref.word()
        case torch.Size() | tuple():
            return tuple(_words(part) for part in words)
        case list():
            return [_words(part) for part in words]
        case dict():
            return {key: _words(part) for key, part in words.items()}
    return words


def refused(why: str) -> Refused:
    """Return the refusal for an operation that remote tensors do not support."""
    return Refused(
        "remote-refused",
        f"Remote tensors do not support this: {why}.",
        "docs/how-to/federated.md lists what they support. Bring back what is yours with .get().",
    )
