"""A sealed value, Sealed[T]: a wrapper that hides a value computed from rows.

Only the modules in `release/guarantees` can open it, so it can't leave by accident.
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from sfumato.dp.refusal import Bug

T = TypeVar("T")


def _closed(*_args: object, **_kwargs: object) -> NoReturn:
    raise Bug("a sealed value was used outside the door")


class Sealed(Generic[T]):
    """A private value computed from rows.

    It can't be printed, compared, iterated, copied or pickled.
    """

    __slots__ = ("__held",)

    def __init__(self, value: T) -> None:
        self.__held = value

    __str__ = __format__ = __bytes__ = _closed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _closed
    __hash__ = _closed
    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = _closed
    __int__ = __float__ = __index__ = __complex__ = __round__ = _closed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _closed
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _closed

    def __repr__(self) -> str:
        return "Sealed(...)"  # the same text for every value

    def __init_subclass__(cls) -> NoReturn:
        raise Bug("Sealed has no kinds: a kind could open it")
