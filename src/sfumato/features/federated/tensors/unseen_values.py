"""Run operations on private numbers so that a failure does not depend on the numbers.

An operation is first tried on tensors of the same shapes, without values or filled with one number.
If these tries succeed but the real values fail, the result is zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

FAILURES: Final = (  # errors of an invalid operation, or of missing memory
    RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError,
    AssertionError,
)  # fmt: skip


def blank(words: Any) -> Any:
    """Return an operation's arguments with each tensor replaced by a meta tensor of equal shape.

    A meta tensor has no values, so a trial of the operation can't depend on any.
    """
    return _each(
        lambda held: torch.empty_strided(
            held.size(), held.stride(), dtype=held.dtype, device="meta"
        ),
        words,
    )


def filled(words: Any, number: int) -> Any:
    """Return an operation's arguments with every number in their tensors replaced by `number`.

    A trial with them does not depend on private values. Shapes and strides stay the same.
    """

    def like(held: torch.Tensor) -> torch.Tensor:
        sides = zip(held.size(), held.stride(), strict=True)
        room = 1 + sum(max(side - 1, 0) * step for side, step in sides)
        full = torch.full((room,), number, dtype=held.dtype, device=held.device)
        return full.as_strided(held.size(), held.stride())

    return _each(like, words)


def is_done(operation: Any, args: Any, named: Any) -> bool:
    """Try an operation on stand-in arguments; return True if it succeeds."""
    try:
        operation(*args, **named)
    except FAILURES:
        return False
    return True


def zeros_of(shapes: Any, words: Any) -> Any:
    """Return zeros of these shapes, as the result of an operation that failed.

    In autograd the zeros depend on the inputs, with zero gradient.
    """
    given: list[torch.Tensor] = []
    _each(given.append, words)
    needing = [held for held in given if held.requires_grad]
    where = given[0].device if given else None  # if the inputs are meta tensors, the zeros are, too

    def zeros(shape: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(shape.size(), dtype=shape.dtype, device=where)
        if not (needing and made.is_floating_point() and torch.is_grad_enabled()):
            return made
        return sum((_nothing_of(held) for held in needing), made).to(made.dtype)

    return _each(zeros, shapes)


def _nothing_of(held: torch.Tensor) -> torch.Tensor:
    """Return a zero computed from the tensor, so that autograd sees a dependence with gradient 0.

    This holds for any values, also infinite ones.
    """
    return held.masked_fill(torch.ones_like(held, dtype=torch.bool), 0).sum()


def _each(how: Callable[[torch.Tensor], Any], words: Any) -> Any:
    """Return a nested structure with the function `how` applied to each of its tensors."""
    match words:
        case torch.Tensor():
            return how(words)
        case tuple():
            return tuple(_each(how, part) for part in words)
        case list():
            return [_each(how, part) for part in words]
        case dict():
            return {key: _each(how, part) for key, part in words.items()}
    return words
