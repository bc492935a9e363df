"""Whole numbers split among workers: each part alone is noise, and all together are the number.

Additive sharing over integers modulo 2^64, which is how machine words add up; all parts but one are
drawn by the operating system. So workers that do not put *all* of their parts together learn
nothing. Who shares knows the numbers, and draws what products need (the triples of Beaver 1991): a
dealer whom the workers need not trust with anything but the numbers that it shared itself.

No number ever wraps around unnoticed: beside the parts, here, stands how large the numbers may have
become, and what could pass 2^63 is refused. It says something of the numbers, and goes nowhere.
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
from sfumato.system.randomness import StretchedDice

PLACES: Final = 3
MOST: Final = (1 << 63) - 1
WHOLE: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_DICE: Final = StretchedDice()


class Uncompared:
    """What is added and multiplied alone, and says so rather than give a wrong answer."""

    def _refuse(self, *_: object) -> NoReturn:
        raise refused(
            "numbers that are shared or of a fixed precision are added, subtracted and multiplied,"
            " and not compared, divided, indexed or branched on; bring them back before, with"
            " .get() of what is shared and .float_precision()"
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
        """Refuse what a tensor has and these have not."""
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._refuse()

    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> NoReturn:
        """Refuse what PyTorch would do with them."""
        raise refused(
            "functions of PyTorch do not take numbers that are shared or of a fixed precision;"
            " write + - * between two of them, and x.fix_precision() of a tensor first"
        )


Fixable: TypeAlias = "FixedTensor | float"


@dataclass(frozen=True, eq=False, repr=False)
class FixedTensor(Uncompared):
    """Numbers as whole ones, which stand for so many decimal places."""

    child: LocalTensor
    places: int

    def __repr__(self) -> str:
        return f"(fixed, {self.places} places)>{self.child!r}"

    @property
    def shape(self) -> torch.Size:
        """Return the sides of the tensor."""
        return self.child.shape

    def float_precision(self) -> LocalTensor:
        """Return the numbers with their point."""
        return local((self.child.double() / 10**self.places).to(torch.get_default_dtype()))

    float_prec = float_precision

    def share(self, *workers: Worker, crypto_provider: object = None) -> SharedTensor:
        """Return the numbers split among workers; nobody but the caller draws anything."""
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
        """Return the product, which has the places of both and is not rounded."""
        met = _met(other)
        _check_size(_size(self.child) * _size(met.child))
        return FixedTensor(local(self.child * met.child), self.places + met.places)

    __rmul__ = __mul__

    __matmul__ = Uncompared._refuse

    def sum(self) -> FixedTensor:
        """Return the sum of all of the numbers."""
        _check_size(_size(self.child) * max(self.shape.numel(), 1))
        return replace(self, child=local(self.child.sum()))

    def _joined(self, how: Callable[..., Any], other: Fixable) -> FixedTensor:
        met = _met(other)
        places = max(self.places, met.places)
        one, two = self._raised(places), met._raised(places)
        _check_size(_size(one) + _size(two))
        return FixedTensor(local(how(one, two)), places)

    def _raised(self, places: int) -> LocalTensor:
        """Return the whole numbers that say the same with more places."""
        more: int = 10 ** (places - self.places)
        _check_size(max(_size(self.child), 1) * more)
        return local(self.child * more)


@dataclass(frozen=True, eq=False, repr=False)
class SharedTensor(Uncompared):
    """One part of each number at each of several workers."""

    parts: tuple[RemoteTensor, ...]
    places: int | None  # of numbers of a fixed precision
    most: int  # that any of the numbers may be, whatever its sign

    def __repr__(self) -> str:
        where = ", ".join(one.id for one in self.location)
        return f"[shared tensor {tuple(self.shape)} | {where}]"

    @property
    def location(self) -> tuple[Worker, ...]:
        """Return where the parts are."""
        return tuple(part.location for part in self.parts)

    @property
    def child(self) -> dict[str, RemoteTensor]:
        """Return the parts, by the names of their workers."""
        return {part.location.id: part for part in self.parts}

    @property
    def shape(self) -> torch.Size:
        """Return the sides of the tensor."""
        return self.parts[0].shape

    def get(self) -> Any:  # Any: a LocalTensor, or a FixedTensor where there are places
        """Return the numbers; no worker keeps its part."""
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
        parts = (first + more, *(part + 0 for part in others))  # a part is of one number alone
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
        """Return the product, which has the places of both and is not rounded."""
        if isinstance(other, SharedTensor):
            return self._product(torch.mul, other, 1)
        whole, places = self._said(other)
        made = self._each(lambda part: part * whole, max(self.most, 1) * abs(whole))
        return made if self.places is None else replace(made, places=self.places + places)

    __rmul__ = __mul__

    def _said(self, number: object) -> tuple[int, int]:
        """Return a number as whole steps and places, of which whole numbers have none."""
        whole, places = _steps(number)
        if places and self.places is None:
            raise refused("whole numbers are shared; write x.fix_precision().share(...)")
        return whole, places

    def _raised(self, places: int) -> SharedTensor:
        """Return the same numbers with so many places."""
        if places == _places(self):
            return self
        more: int = 10 ** (places - _places(self))
        made = self._each(lambda part: part * more, max(self.most, 1) * more)
        return replace(made, places=places)

    def __matmul__(self, other: SharedTensor) -> SharedTensor:
        if len(self.shape) != 2:  # rows and columns
            raise refused("shared matrices have two sides")
        return self._product(torch.mm, other, self.shape[1])

    mm = matmul = __matmul__

    def sum(self) -> SharedTensor:
        """Return the sum of all of the numbers, shared as they are."""
        return self._each(lambda part: part.sum(), self.most * self.shape.numel())

    def _each(self, how: Callable[[Any], RemoteTensor], most: int) -> SharedTensor:
        _check_size(most)
        return SharedTensor(tuple(how(part) for part in self.parts), self.places, most)

    def _joined(self, how: Callable[..., Any], other: SharedTensor) -> SharedTensor:
        are_whole = {self.places is None, other.places is None}
        if self.location != other.location or len(are_whole) > 1:
            raise refused("numbers are added that are shared among the same, all whole or none")
        one, two = (each._raised(max(_places(self), _places(other))) for each in (self, other))
        _check_size(one.most + two.most)
        parts = tuple(how(one, two) for one, two in zip(one.parts, two.parts, strict=True))
        return SharedTensor(parts, one.places, one.most + two.most)

    def _product(self, how: Callable[..., Any], other: SharedTensor, terms: int) -> SharedTensor:
        """Return the product by a triple: what is opened is the numbers under uniform masks."""
        most = self.most * other.most * terms
        _check_size(most)
        if not isinstance(other, SharedTensor) or self.location != other.location:
            raise refused("numbers are multiplied that are shared among the same workers")
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
    """Return the numbers rounded to so many decimal places."""
    if not 0 <= places <= 15:  # what a double has
        raise refused("a fixed precision has from none to 15 decimal places")
    if held.dtype in WHOLE:  # of which a double has not every one
        whole = held.detach().long()
        _check_size(_size(whole) * 10**places)
        return FixedTensor(local(whole * 10**places), places)
    scaled = (held.detach().double() * 10**places).round()
    if not bool((scaled.abs() < float(1 << 62)).all()):  # nor is what is no number
        raise refused(f"numbers of {places} places are below 2^62 in steps, and numbers")
    return FixedTensor(local(scaled.long()), places)


def shared(
    whole: torch.Tensor, workers: tuple[Worker, ...], places: int | None = None
) -> SharedTensor:
    """Return whole numbers split among the workers."""
    if whole.dtype not in WHOLE:
        raise refused("only whole numbers are shared; write x.fix_precision().share(...)")
    if len({id(worker) for worker in workers}) != len(workers) or len(workers) < 2:
        raise refused("numbers are shared among two workers or more, each once")
    held = whole.detach().long().as_subclass(torch.Tensor)
    _check_size(_size(held))
    return SharedTensor(tuple(_split(held, workers)), places, _size(held))


def _split(held: torch.Tensor, workers: tuple[Worker, ...]) -> list[RemoteTensor]:
    drawn = [_uniform(held.shape) for _ in workers[1:]]
    last = reduce(sub, drawn, held)
    return [put(worker, part) for worker, part in zip(workers, [*drawn, last], strict=True)]


def _uniform(shape: torch.Size) -> torch.Tensor:
    """Return numbers of 64 bits, each as likely as any."""
    many = shape.numel()
    drawn = bytearray(_DICE.draw(8 * many))
    flat = torch.frombuffer(drawn, dtype=torch.int64) if many else torch.empty(0).long()
    return flat.reshape(shape)


def _opened(one: SharedTensor) -> LocalTensor:
    return local(reduce(add, [part.get() for part in one.parts]))


def _masked(one: SharedTensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the numbers less a mask that no worker knows; the workers keep their parts."""
    masks = _split(mask, one.location)
    parts = [(part - part_of).get() for part, part_of in zip(one.parts, masks, strict=True)]
    return reduce(add, parts).as_subclass(torch.Tensor)


def _places(one: SharedTensor) -> int:
    return one.places or 0


def _size(held: torch.Tensor) -> int:
    """Return the largest of the numbers, whatever its sign."""
    return max(-int(held.min()), int(held.max())) if held.numel() else 0


def _check_size(most: int) -> None:
    if most > MOST:
        raise refused("a number could pass 2^63, and would come back as another one")


def _met(other: object) -> FixedTensor:
    """Return what fixed numbers are added to, or multiplied by, as fixed numbers."""
    if isinstance(other, FixedTensor):
        return other
    whole, places = _steps(other)
    _check_size(abs(whole))
    return FixedTensor(local(torch.tensor(whole)), places)


def _steps(number: object) -> tuple[int, int]:
    """Return a number as whole steps, and the decimal places that it has as it is written."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise refused(
            "fixed and shared numbers meet numbers, and others of their kind; write"
            " y.fix_precision() of a tensor, and share both"
        )
    if isinstance(number, int):
        return number, 0
    if not math.isfinite(number):
        raise refused("what is no number has no fixed precision")
    above, below = Decimal(repr(float(number))).as_integer_ratio()
    places = next(n for n in count() if 10**n % below == 0)
    return above * (10**places // below), places
