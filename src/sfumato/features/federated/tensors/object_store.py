"""A worker's object store: objects by key; values that depend on the site's tables stay there.

An object is *free* if it may be fetched. It is free if it was sent, or computed from free objects
before any table was used. After the first use of a table, no new result is free, and no sent object
that is written to stays free. Gradients and views make finer tracking unsafe;
`tests/features/federated/tensors/test_private_tensors.py` lists the attacks that were tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.operations import IN_PLACE, OPERATIONS, SAFE_ARGS, WRITES
from sfumato.features.federated.tensors.tensor_messages import Reference, decode, encode, malformed
from sfumato.features.federated.tensors.unseen_values import (
    FAILURES,
    blank,
    filled,
    is_done,
    zeros_of,
)
from sfumato.features.federated.tensors.worker import TABLE
from sfumato.features.federated.training.training_site import SiteLimits, TrainingSite

# --- Labels of objects at a worker: the caller's tags and description, independent of values


MAX_TAGS: Final = 32
MAX_LETTERS: Final = 1000  # of a tag, and of the description


class ObjectLabels:
    """The tags and descriptions that a caller gave to a worker's objects, by object key."""

    def __init__(self) -> None:
        self._tags: dict[str, frozenset[str]] = {}
        self._lines: dict[str, str] = {}

    def put(self, key: str, tags: list[Any], line: str | None) -> None:
        """Add tags to an object; a new description replaces the old one."""
        words = [*tags, "" if line is None else line]
        if not all(isinstance(word, str) and len(word) <= MAX_LETTERS for word in words):
            raise malformed(
                f"a tag or a description must be a text of at most {MAX_LETTERS} letters"
            )
        together = self._tags.get(key, frozenset()) | {*tags}
        if len(together) > MAX_TAGS:
            raise malformed(f"an object may have {MAX_TAGS} tags at most")
        self._tags[key] = together
        if line is not None:
            self._lines[key] = line

    def of(self, key: str) -> dict[str, Any]:
        """Return an object's tags and description."""
        tags = sorted(self._tags.get(key, ()))
        return {"tags": tags, "line": self._lines.get(key)}

    def with_all(self, tags: list[Any]) -> list[str]:
        """Return the keys of objects with all of these tags, oldest first."""
        if not all(isinstance(tag, str) for tag in tags):
            raise malformed("a tag must be a text")
        return [key for key, borne in self._tags.items() if borne.issuperset(tags)]

    def forget(self, key: str) -> None:
        """Delete an object's labels."""
        self._tags.pop(key, None)
        self._lines.pop(key, None)

    def clear(self) -> None:
        """Delete the tags and descriptions of all objects."""
        self._tags.clear()
        self._lines.clear()


MAX_OBJECTS: Final = 100_000
GRAD: Final = OPERATIONS["requires_grad_"]  # an operation that changes no value
CANNOT: Final = "the operation cannot be carried out"
OF_GRADIENTS: Final = ("gradient", "inputs")  # the tensor arguments of backward


class Store:
    """One worker's objects and tables; executes messages, and gives out only free objects.

    An object is free if it may be fetched, because no table of the site can have influenced it.
    """

    def __init__(self, tables: Mapping[str, torch.Tensor], offer: SiteLimits | None = None) -> None:
        self._trainee = None if offer is None else TrainingSite(tables, offer)
        self._tables = {f"{TABLE}{name}": held.detach().clone() for name, held in tables.items()}
        self._objects: dict[str, torch.Tensor] = {}
        self._free: set[str] = set()
        self.is_touched = False
        self._of_grads: set[int] = set()  # the memory (ids) that has held gradients
        self._labels = ObjectLabels()
        self.last = 0  # the number of the newest object

    def declare(self, name: str, shape: torch.Tensor) -> None:
        """Add a table of the site by its declared shape alone; its values are not in this store."""
        self._tables[TABLE + name] = shape

    def bytes_held(self) -> int:
        """Return the size of all objects and gradients, in bytes.

        Meta tensors count as if they had values.
        """
        held = [*self._objects.values(), *_gradients(self._objects.values())]
        memories = {_memory(one): one.untyped_storage().nbytes() for one in held}
        return sum(memories.values())

    def bytes_of(self, key: str) -> int:
        """Return the size of an object in bytes."""
        found = self._objects.get(key)
        return 0 if found is None else found.nbytes

    def sharing(self, key: str) -> list[str]:
        """Return the keys of all objects that share memory with this one.

        A write to one of them changes them all.
        """
        return self._sharing_with(self._find(key))

    def _sharing_with(self, found: torch.Tensor) -> list[str]:
        held = {**self._tables, **self._objects}
        return [one for one, value in held.items() if _memory(value) == _memory(found)]

    def handle(self, message: bytes) -> bytes:
        """Execute an encoded message of the client; return the answer or refusal, encoded."""
        try:
            return encode({"said": self.do(decode(message))})
        except Refused as refusal:
            return encode({"refused": [refusal.code, refusal.cause, refusal.next_step]})

    def do(self, words: Any) -> Any:  # Any: JSON
        """Execute one decoded request, or refuse."""
        match words:
            case {"do": "put", "value": torch.Tensor() as value}:
                return self._told(self._keep(value, is_free=True))
            case {"do": "call", "name": str(name), "args": tuple(args), "named": dict(named)}:
                return self._call(name, args, named)
            case {"do": "backward", "key": str(key), "args": tuple(args), "named": dict(named)}:
                return self._backward(key, args, named)
            case {"do": "grad", "key": str(key)}:
                return self._grad(key)
            case {"do": "set grad", "key": str(key), "to": Reference() | None as to}:
                self._set_grad(key, to)
                return None
            case {"do": "get", "key": str(key)}:
                return self._give(key)
            case {"do": "table", "name": str(name)}:
                return self._told(TABLE + name)
            case {"do": "drop", "key": str(key)}:
                self._forget(key)
                return None
            case {"do": "clear"}:
                self._clear()
                return None
            case {"do": "train", "stage": str(stage), "said": dict(said)}:
                return self._train(stage, said)
            case {"do": "list"}:
                return [*self._tables, *self._objects]
            case {"do": "label" | "labels" | "search"}:
                return self._labelled(words)
        raise malformed("it has no such request")

    def _labelled(self, words: Any) -> Any:  # Any: JSON
        """Set or return an object's labels, or find objects by their tags."""
        match words:
            case {"do": "label", "key": str(key), "tags": list(tags), "line": str() | None as line}:
                if key not in self._objects:
                    raise malformed("only objects that were sent or computed can be tagged")
                self._labels.put(key, tags, line)
                return None
            case {"do": "labels", "key": str(key)}:
                return self._labels.of(key)
            case {"do": "search", "tags": list(tags)}:
                return [self._told(key) for key in self._labels.with_all(tags)]
        raise malformed("it has no such request")

    def _clear(self) -> None:
        """Delete all objects.

        No result of a table is left, so `is_touched` (a table was used) becomes False.
        """
        self._objects.clear()
        self._free.clear()
        self._of_grads.clear()
        self._labels.clear()
        self.is_touched = False

    def _train(self, stage: str, said: dict[str, Any]) -> Any:
        if self._trainee is None:
            raise malformed("its owner offers no training")
        return self._trainee.do(stage, said)

    def _keep(self, value: torch.Tensor, is_free: bool) -> str:
        if len(self._objects) >= MAX_OBJECTS:
            raise malformed("it holds too many objects; clear some")
        self.last += 1
        key = f"{self.last}"
        self._objects[key] = value
        if is_free:
            self._free.add(key)
        return key

    def _told(self, key: str) -> Any:  # Any: JSON
        """Describe an object for a reply: key, shape, dtype, and whether it requires gradients.

        The client makes its reference from the description.
        """
        held = self._tables.get(key)
        held = self._find(key) if held is None else held
        return {
            "key": Reference(key),
            "shape": list(held.shape),
            "dtype": held.dtype,
            "needs_grad": held.requires_grad,
        }

    def _find(self, key: str) -> torch.Tensor:
        """Return the object or table with this key.

        If the key is of a table, `is_touched` (a table was used) becomes True: later results may
        depend on the table's values.
        """
        self.is_touched |= key in self._tables
        found = self._tables.get(key, self._objects.get(key))
        if found is None:
            raise Refused(
                "remote-unknown",
                "The worker holds no such object.",
                "It was fetched back, cleared or deleted. Send it again.",
            )
        return found

    def _grad(self, key: str) -> Any:
        grad = self._find(key).grad
        if grad is None:
            return None
        made = self._keep(grad, key in self._free and not self.is_touched)
        self._of_grads.add(_memory(grad))
        return self._told(made)

    def _set_grad(self, key: str, to: Reference | None) -> None:
        grad = None if to is None else self._find(to.key)
        if grad is not None and self._is_of_table(grad):
            # autograd adds the next gradient to this one in place, so never hand out the table
            # itself
            grad = grad.clone()
        try:
            self._find(key).grad = grad
        except (RuntimeError, TypeError):
            fits = False
        else:
            fits = True
        if not fits:
            raise malformed("a gradient must have the shape of its tensor")
        if grad is not None and to is not None and grad is self._objects.get(to.key):
            self._of_grads.add(_memory(grad))

    def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        operation = OPERATIONS.get(name)
        if operation is None:
            raise malformed(f"it has no operation {name!r}")
        used = [*_references(args), *_references(tuple(named.values()))]
        if WRITES & named.keys() or len(args) > SAFE_ARGS.get(name, len(args)):
            raise malformed("an operation may write to its first argument only")
        for key in used:
            self._find(key)
        is_free = not self.is_touched and all(key in self._free for key in used)
        if name in IN_PLACE:
            return self._write(operation, args, named, is_free)
        _check_index(name, args)
        made = self._computed(operation, self._held(args), self._held(named))
        if isinstance(made, torch.Tensor):
            return self._told(self._keep(made, is_free))
        if isinstance(made, tuple | list) and all(isinstance(m, torch.Tensor) for m in made):
            return [self._told(self._keep(part, is_free)) for part in made]
        raise malformed("the operation returns no tensor")

    def _write(self, operation: Any, args: Any, named: Any, is_free: bool) -> Any:
        """Run an in-place operation on an object; refuse to write to a table.

        If an input may depend on a table, no tensor that shares the memory can be fetched any more.
        """
        match args:
            case (Reference() as target, *_) if not self._is_of_table(self._find(target.key)):
                written = self._find(target.key)
            case _:
                raise malformed("a site's own table cannot be changed")
        if self.is_touched and operation is not GRAD and _is_of_a_leaf(written):
            raise malformed(CANNOT)
        self._computed(operation, self._held(args), self._held(named))
        if not is_free:
            self._keep_back({_memory(written)})
        return self._told(target.key)

    def _is_of_table(self, held: torch.Tensor) -> bool:
        """Return True if the tensor shares memory with a table of the site."""
        return _memory(held) in {_memory(table) for table in self._tables.values()}

    def _backward(self, key: str, args: Any, named: Any) -> None:
        """Run `backward` on an object, so that the tensors it was computed from get gradients.

        If a table was used before, memory that holds gradients can no longer be fetched. A gradient
        may be a view of the gradient that the caller passed, so that argument is copied.
        """
        if _references((args[1:], [named[one] for one in named if one not in OF_GRADIENTS])):
            raise malformed("a tensor can only decide about gradients here")
        loss = self._find(key)
        more, terms = _copied(self._held(args)), _copied(self._held(named))
        if self.is_touched:
            lie_in = {_memory(grad) for grad in _gradients(self._objects.values())}
            self._keep_back(self._of_grads | lie_in)
        self._run(torch.Tensor.backward, (loss, *more), terms)

    def _keep_back(self, memories: set[int]) -> None:
        self._free -= {key for key in self._free if _memory(self._objects[key]) in memories}

    def _computed(self, operation: Any, args: Any, named: Any) -> Any:
        """Run an operation so that neither its output shape nor a failure reveals a table's values.

        PyTorch accepts a one-element tensor as a size, so a table's value could become a shape. An
        operation whose output shape could depend on values is refused.

        Some operations fail on certain values (class labels, integer division by zero). A failure
        would reveal those values. So an operation that works on some values of these shapes returns
        zeros if it fails on the real ones.
        """
        if not self.is_touched:
            return self._run(operation, args, named)
        with torch.no_grad():
            shapes = self._run(operation, blank(args), blank(named))
            if not any(is_done(operation, filled(args, n), filled(named, n)) for n in (0, 1)):
                raise malformed(CANNOT)
        try:
            return operation(*args, **named)
        except FAILURES:
            pass
        return zeros_of(shapes, (args, named))

    def _run(self, operation: Any, args: Any, named: Any) -> Any:
        """Run an operation; if it fails, refuse.

        The refusal contains the reason only while no table was used, because it could reveal
        values.
        """
        try:
            return operation(*args, **named)
        except FAILURES as wrong:
            why = "" if self.is_touched else f": {f'{wrong} '.splitlines()[0][:300].rstrip()}"
        raise malformed(f"{CANNOT}{why}")

    def _held(self, words: Any) -> Any:
        """Return the arguments of a request, with the stored tensor in place of each reference."""
        match words:
            case Reference():
                return self._find(words.key)
            case torch.Tensor():
                raise malformed("a tensor must be sent before it is used")
            case tuple():
                return tuple(self._held(part) for part in words)
            case list():
                return [self._held(part) for part in words]
            case dict():
                return {key: self._held(part) for key, part in words.items()}
        return words

    def check_free(self, key: str) -> None:
        """Refuse to give out an object that may depend on a table of the site."""
        self._find(key)
        if key not in self._free:
            raise Refused(
                "remote-private",
                "This value was computed from a table of the site, so it cannot be fetched.",
                "Ask the site for a noisy release, with a price: .release(epsilon=...) of a sum "
                "or a mean of a table. Or let several sites train, and take only the secure sum "
                "of their updates.",
            )

    def _give(self, key: str) -> torch.Tensor:
        self.check_free(key)
        held = self._find(key)
        self._forget(key)
        return held.detach().requires_grad_(held.requires_grad and held.is_leaf)

    def _forget(self, key: str) -> None:
        gone = self._objects.pop(key, None)
        if gone is not None and _memory(gone) in self._of_grads and not self._sharing_with(gone):
            self._of_grads.discard(_memory(gone))  # the memory may be reused
        self._free.discard(key)
        self._labels.forget(key)


def _references(words: Any) -> list[str]:
    match words:
        case Reference():
            return [words.key]
        case tuple() | list():
            return [key for part in words for key in _references(part)]
        case slice():
            return []
        case dict():
            return _references(list(words.values()))
    return []


def _is_of_a_leaf(held: torch.Tensor) -> bool:
    """Return True if PyTorch forbids an in-place write to the tensor, to refuse it early.

    While gradients are enabled, autograd forbids writes to a leaf that requires gradients, and to
    its views.
    """
    both = [one for one in (held, held._base) if one is not None]
    return torch.is_grad_enabled() and any(one.is_leaf and one.requires_grad for one in both)


def _copied(words: Any) -> Any:
    """Return the arguments of a `backward` call with the gradient argument copied.

    The gradients that the call computes may be views of that argument.
    """
    match words:
        case (torch.Tensor() as gradient, *more):
            return (gradient.clone(), *more)
        case {"gradient": torch.Tensor() as gradient}:
            return {**words, "gradient": gradient.clone()}
    return words


def _check_index(name: str, args: tuple[Any, ...]) -> None:
    """Refuse an index that contains a tensor.

    The values of that tensor could decide the output shape, or a failure.
    """
    if name == "__getitem__" and _references(args[1:]):
        raise malformed("a tensor cannot be an index; use numbers and slices")


def _gradients(held: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    grads = (one.grad for one in held if one.is_leaf)
    return [grad for grad in grads if grad is not None]


def _memory(held: torch.Tensor) -> int:
    # views of one tensor share this id; it also exists for meta tensors
    return int(held.untyped_storage()._cdata)
