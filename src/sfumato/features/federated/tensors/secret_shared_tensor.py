"""Secret-shared integers: each worker holds one additive share modulo 2^64.

All shares but one are random: from the operating system, or by AES-256-CTR with a fresh key. So
workers learn nothing unless they combine *all* of their shares. The caller knows the numbers, and
acts as the dealer of multiplication triples (Beaver 1991). The workers need to trust this dealer
only with the numbers that it shared itself.

No number wraps around unnoticed. The client keeps an upper bound on the numbers, and refuses an
operation that could pass 2^63. The bound reveals something about the numbers, so it stays at the
client.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from itertools import count
from operator import add, sub
from typing import Any, Final, NoReturn, TypeAlias

import torch

from sfumato.features.federated.tensors.local_tensor import LocalTensor, local
from sfumato.features.federated.tensors.remote_tensor import RemoteTensor, put, refused
from sfumato.features.federated.tensors.worker import Worker
from sfumato.system.randomness import BulkRandomSource

PLACES: Final = 3
MOST: Final = (1 << 63) - 1
WHOLE: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_DICE: Final = BulkRandomSource()


class Uncompared:
    """A base of shared and fixed-point tensors that refuses comparison, division and indexing.

    Python's defaults would give wrong results without an error.
    """

    def _refuse(self, *_: object) -> NoReturn:
        raise refused(
            "shared and fixed-precision numbers can be added, subtracted and multiplied, but not "
            "compared, divided, indexed or branched on; bring them back first, with .get() for "
            "shared and .float_precision() for fixed-precision numbers"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = _refuse
    __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __rpow__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __invert__ = _refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _refuse
    __bool__ = __int__ = __float__ = __index__ = __round__ = __abs__ = _refuse
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = _refuse
    __rmatmul__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse tensor attributes that these classes do not have."""
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._refuse()

    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> NoReturn:
        """Refuse PyTorch functions, which do not take shared or fixed-point numbers."""
        raise refused(
            "functions of PyTorch do not take shared or fixed-precision numbers; write + - * "
            "between two of them, and x.fix_precision() of a tensor first"
        )


Fixable: TypeAlias = "FixedTensor | float"


@dataclass(frozen=True, eq=False, repr=False)
class FixedTensor(Uncompared):
    """A tensor of fixed-point numbers: integers that stand for decimals with `places` places."""

    child: LocalTensor
    places: int

    def __repr__(self) -> str:
        return f"(fixed, {self.places} places)>{self.child!r}"

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor."""
        return self.child.shape

    def float_precision(self) -> LocalTensor:
        """Convert the fixed-point numbers to floats."""
        return local((self.child.double() / 10**self.places).to(torch.get_default_dtype()))

    float_prec = float_precision

    def share(self, *workers: Worker, crypto_provider: object = None) -> SharedTensor:
        """Secret-share the numbers among workers; only the caller draws random numbers."""
        del crypto_provider
        return shared(self.child, workers, self.places)

    def __add__(self, other: Fixable) -> FixedTensor:
        return self._joined(add, other)

    __radd__ = __add__

    def __sub__(self, other: Fixable) -> FixedTensor:
        return self._joined(sub, other)

    def __rsub__(self, other: Fixable) -> FixedTensor:
        return -self + other

    def __neg__(self) -> FixedTensor:
        return self * -1

    def __pos__(self) -> FixedTensor:
        return self

    def __mul__(self, other: Fixable) -> FixedTensor:
        """Return the exact product; it has the decimal places of both factors together."""
        met = _met(other)
        _check_size(_size(self.child) * _size(met.child))
        return FixedTensor(local(self.child * met.child), self.places + met.places)

    __rmul__ = __mul__

    __matmul__ = Uncompared._refuse

    def sum(self) -> FixedTensor:
        """Return the sum of all numbers in the tensor."""
        _check_size(_size(self.child) * max(self.shape.numel(), 1))
        return replace(self, child=local(self.child.sum()))

    def _joined(self, how: Callable[..., Any], other: Fixable) -> FixedTensor:
        met = _met(other)
        places = max(self.places, met.places)
        one, two = self._raised(places), met._raised(places)
        _check_size(_size(one) + _size(two))
        return FixedTensor(local(how(one, two)), places)

    def _raised(self, places: int) -> LocalTensor:
        """Return the integers rescaled to `places` decimal places, so that tensors can be added."""
        more: int = 10 ** (places - self.places)
        _check_size(max(_size(self.child), 1) * more)
        return local(self.child * more)


@dataclass(frozen=True, eq=False, repr=False)
class SharedTensor(Uncompared):
    """A secret-shared tensor: each worker holds one random-looking share of every number."""

    parts: tuple[RemoteTensor, ...]
    places: int | None  # decimal places; None for integers
    most: int  # upper bound on the absolute values

    def __repr__(self) -> str:
        where = ", ".join(one.id for one in self.location)
        return f"[shared tensor {tuple(self.shape)} | {where}]"

    @property
    def location(self) -> tuple[Worker, ...]:
        """Return the workers that hold the shares."""
        return tuple(part.location for part in self.parts)

    @property
    def child(self) -> dict[str, RemoteTensor]:
        """Return each worker's share by the worker's name; PySyft 0.2 calls this `child`."""
        return {part.location.id: part for part in self.parts}

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor."""
        return self.parts[0].shape

    def get(self) -> Any:  # Any: a LocalTensor, or a FixedTensor with places
        """Fetch all shares and return the numbers; no worker keeps its share."""
        whole = _opened(self)
        return whole if self.places is None else FixedTensor(whole, self.places)

    def __add__(self, other: SharedTensor | float) -> SharedTensor:
        if isinstance(other, SharedTensor):
            return self._joined(add, other)
        whole, places = self._said(other)
        one = self._raised(max(_places(self), places))
        more = whole * 10 ** (_places(one) - places)
        _check_size(one.most + abs(more))
        first, *others = one.parts
        parts = (first + more, *(part + 0 for part in others))  # every share must be a new object
        return SharedTensor(parts, one.places, one.most + abs(more))

    __radd__ = __add__

    def __sub__(self, other: SharedTensor | float) -> SharedTensor:
        return self._joined(sub, other) if isinstance(other, SharedTensor) else -(-self + other)

    def __neg__(self) -> SharedTensor:
        return self * -1

    def __pos__(self) -> SharedTensor:
        return self

    def __rsub__(self, other: float) -> SharedTensor:
        return -self + other

    def __mul__(self, other: SharedTensor | float) -> SharedTensor:
        """Return the exact product; it has the decimal places of both factors together."""
        if isinstance(other, SharedTensor):
            return self._product(torch.mul, other, 1)
        whole, places = self._said(other)
        made = self._each(lambda part: part * whole, max(self.most, 1) * abs(whole))
        return made if self.places is None else replace(made, places=self.places + places)

    __rmul__ = __mul__

    def _said(self, number: object) -> tuple[int, int]:
        """Return a plain number as an integer and its decimal places (0 for whole numbers).

        Refuse a fraction if the shared numbers are integers.
        """
        whole, places = _steps(number)
        if places and self.places is None:
            raise refused("only whole numbers can be shared; write x.fix_precision().share(...)")
        return whole, places

    def _raised(self, places: int) -> SharedTensor:
        """Return the shared numbers rescaled to `places` decimal places, to add them to others."""
        if places == _places(self):
            return self
        more: int = 10 ** (places - _places(self))
        made = self._each(lambda part: part * more, max(self.most, 1) * more)
        return replace(made, places=places)

    def __matmul__(self, other: SharedTensor) -> SharedTensor:
        if len(self.shape) != 2:  # rows and columns
            raise refused("shared matrices must have two dimensions")
        return self._product(torch.mm, other, self.shape[1])

    mm = matmul = __matmul__

    def sum(self) -> SharedTensor:
        """Return the sum of all numbers, secret-shared."""
        return self._each(lambda part: part.sum(), self.most * self.shape.numel())

    def _each(self, how: Callable[[Any], RemoteTensor], most: int) -> SharedTensor:
        _check_size(most)
        return SharedTensor(tuple(how(part) for part in self.parts), self.places, most)

    def _joined(self, how: Callable[..., Any], other: SharedTensor) -> SharedTensor:
        are_whole = {self.places is None, other.places is None}
        if self.location != other.location or len(are_whole) > 1:
            raise refused(
                "an addition needs numbers shared among the same workers, all whole or none"
            )
        one, two = (each._raised(max(_places(self), _places(other))) for each in (self, other))
        _check_size(one.most + two.most)
        parts = tuple(how(one, two) for one, two in zip(one.parts, two.parts, strict=True))
        return SharedTensor(parts, one.places, one.most + two.most)

    def _product(self, how: Callable[..., Any], other: SharedTensor, terms: int) -> SharedTensor:
        """Multiply two secret-shared tensors by `how`, such as an element-wise or matrix product.

        It uses a Beaver triple: shares of random a, b and how(a, b). Only the numbers minus a and b
        are opened, and these are uniformly random. `terms` is how many products each result sums
        up.
        """
        most = self.most * other.most * terms
        _check_size(most)
        if not isinstance(other, SharedTensor) or self.location != other.location:
            raise refused("a multiplication needs numbers shared among the same workers")
        a, b = _uniform(self.shape), _uniform(other.shape)
        triple = zip(*(_split(one, self.location) for one in (a, b, how(a, b))), strict=True)
        off, far = _masked(self, a), _masked(other, b)
        parts: list[RemoteTensor] = []
        for worker, (a_part, b_part, ab_part) in zip(self.location, triple, strict=True):
            d, e = put(worker, off), put(worker, far)
            part = ab_part + how(d, b_part) + how(a_part, e)
            parts.append(part if parts else part + how(d, e))
        both = None if self.places is other.places is None else _places(self) + _places(other)
        return SharedTensor(tuple(parts), both, most)


def fixed(held: torch.Tensor, places: int) -> FixedTensor:
    """Convert a tensor to fixed-point numbers, rounded to this number of decimal places."""
    if not 0 <= places <= 15:  # digits of a double
        raise refused("a fixed precision must have 0 to 15 decimal places")
    if held.dtype in WHOLE:  # a double cannot hold every int64
        whole = held.detach().long()
        _check_size(_size(whole) * 10**places)
        return FixedTensor(local(whole * 10**places), places)
    scaled = (held.detach().double() * 10**places).round()
    if not bool((scaled.abs() < float(1 << 62)).all()):  # also refuses NaN and infinity
        raise refused(f"numbers of {places} places must be below 2^62 in steps, and finite")
    return FixedTensor(local(scaled.long()), places)


def shared(
    whole: torch.Tensor, workers: tuple[Worker, ...], places: int | None = None
) -> SharedTensor:
    """Split a tensor of integers into random shares that sum to it; send one to each worker."""
    if whole.dtype not in WHOLE:
        raise refused("only whole numbers can be shared; write x.fix_precision().share(...)")
    if len({id(worker) for worker in workers}) != len(workers) or len(workers) < 2:
        raise refused("sharing needs two or more different workers")
    held = whole.detach().long().as_subclass(torch.Tensor)
    _check_size(_size(held))
    return SharedTensor(tuple(_split(held, workers)), places, _size(held))


def _split(held: torch.Tensor, workers: tuple[Worker, ...]) -> list[RemoteTensor]:
    drawn = [_uniform(held.shape) for _ in workers[1:]]
    last = reduce(sub, drawn, held)
    return [put(worker, part) for worker, part in zip(workers, [*drawn, last], strict=True)]


def _uniform(shape: torch.Size) -> torch.Tensor:
    """Return a tensor of uniformly random 64-bit integers, which serve as shares and masks."""
    many = shape.numel()
    drawn = bytearray(_DICE.draw(8 * many))
    flat = torch.frombuffer(drawn, dtype=torch.int64) if many else torch.empty(0).long()
    return flat.reshape(shape)


def _opened(one: SharedTensor) -> LocalTensor:
    return local(reduce(add, [part.get() for part in one.parts]))


def _masked(one: SharedTensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the secret-shared numbers minus a random mask that no worker knows.

    The result reveals nothing about the numbers. The workers keep their shares.
    """
    masks = _split(mask, one.location)
    parts = [(part - part_of).get() for part, part_of in zip(one.parts, masks, strict=True)]
    return reduce(add, parts).as_subclass(torch.Tensor)


def _places(one: SharedTensor) -> int:
    return one.places or 0


def _size(held: torch.Tensor) -> int:
    """Return the largest absolute value in a tensor of integers, to check it for overflow."""
    return max(-int(held.min()), int(held.max())) if held.numel() else 0


def _check_size(most: int) -> None:
    if most > MOST:
        raise refused("a number could exceed 2^63 and come back wrong")


def _met(other: object) -> FixedTensor:
    """Convert the other operand (a number or a tensor) to fixed-point numbers, for an operation."""
    if isinstance(other, FixedTensor):
        return other
    whole, places = _steps(other)
    _check_size(abs(whole))
    return FixedTensor(local(torch.tensor(whole)), places)


def _steps(number: object) -> tuple[int, int]:
    """Return a number as an integer and a number of decimal places: 1.25 becomes (125, 2).

    The places are those of the number's shortest decimal text.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise refused(
            "fixed and shared numbers only combine with numbers, and others of their kind; write "
            "y.fix_precision() of a tensor, and share both"
        )
    if isinstance(number, int):
        return number, 0
    if not math.isfinite(number):
        raise refused("only numbers have a fixed precision")
    above, below = Decimal(repr(float(number))).as_integer_ratio()
    places = next(n for n in count() if 10**n % below == 0)
    return above * (10**places // below), places
