"""Whole numbers split among workers: each part alone is noise, and all together are the number.

Additive sharing over integers modulo 2^64, which is how machine words add up; all parts but one are
drawn by the operating system. So workers that do not put *all* of their parts together learn
nothing. Who shares knows the numbers, and draws what products need (the triples of Beaver 1991): a
dealer whom the workers need not trust with anything but the numbers that it shared itself.

No number ever wraps around unnoticed: beside the parts, here, stands how large the numbers may have
become, and what could pass 2^63 is refused. It says something of the numbers, and goes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, sub
from typing import Any, Final, NoReturn

import torch

from sfumato.dice import StretchedDice
from sfumato.federated.local import LocalTensor, local
from sfumato.federated.remote import RemoteTensor, put, refused
from sfumato.federated.worker import Worker

PLACES: Final = 3
MOST: Final = (1 << 63) - 1
WHOLE: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_DICE: Final = StretchedDice()


class Uncompared:
    """What is neither compared nor divided, and says so rather than give a wrong answer."""

    def _refuse(self, *_: object) -> NoReturn:
        raise refused(
            "numbers that are shared or of a fixed precision are not compared, divided or branched"
            " on; bring them back with .get() and .float_precision() before"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __truediv__ = __floordiv__ = __mod__ = __bool__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


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

    def __add__(self, other: FixedTensor) -> FixedTensor:
        return self._joined(add, other, _size(self.child) + _size(other.child))

    def __sub__(self, other: FixedTensor) -> FixedTensor:
        return self._joined(sub, other, _size(self.child) + _size(other.child))

    def __mul__(self, factor: int) -> FixedTensor:
        _check_whole(factor)
        _check_size(_size(self.child) * abs(factor))
        return replace(self, child=local(self.child * factor))

    __rmul__ = __mul__

    def _joined(self, how: Callable[..., Any], other: FixedTensor, most: int) -> FixedTensor:
        _check_size(most)
        if other.places != self.places:
            raise refused(f"numbers of {self.places} and of {other.places} places are not added")
        return replace(self, child=local(how(self.child, other.child)))


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

    def __add__(self, other: SharedTensor | int) -> SharedTensor:
        if isinstance(other, SharedTensor):
            return self._joined(add, other)
        _check_whole(other)
        more = other * 10 ** (self.places or 0)
        _check_size(self.most + abs(more))
        first, *others = self.parts
        parts = (first + more, *(part + 0 for part in others))  # a part is of one number alone
        return SharedTensor(parts, self.places, self.most + abs(more))

    __radd__ = __add__

    def __sub__(self, other: SharedTensor | int) -> SharedTensor:
        return self._joined(sub, other) if isinstance(other, SharedTensor) else self + -other

    def __neg__(self) -> SharedTensor:
        return self * -1

    def __rsub__(self, other: int) -> SharedTensor:
        return -self + other

    def __mul__(self, other: SharedTensor | int) -> SharedTensor:
        if isinstance(other, SharedTensor):
            return self._product(torch.mul, other, 1)
        _check_whole(other)
        return self._each(lambda part: part * other, self.most * abs(other))

    __rmul__ = __mul__

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
        _check_size(self.most + other.most)
        if (self.location, self.places) != (other.location, other.places):
            raise refused("numbers are added that are shared among the same, at the same precision")
        parts = tuple(how(one, two) for one, two in zip(self.parts, other.parts, strict=True))
        return SharedTensor(parts, self.places, self.most + other.most)

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
    count = shape.numel()
    drawn = bytearray(_DICE.draw(8 * count))
    flat = torch.frombuffer(drawn, dtype=torch.int64) if count else torch.empty(0).long()
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


def _check_whole(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise refused("shared and fixed numbers are multiplied by whole ones; fix the precision")
