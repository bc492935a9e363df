"""Open a Sealed value. Only the modules in `release/guarantees` import this function."""

from __future__ import annotations

from typing import TypeVar, cast

from sfumato.vault.sealed import Sealed

T = TypeVar("T")


def unseal(sealed: Sealed[T]) -> T:
    """Return the private value of a Sealed object; the caller must protect it before any other use.

    `central_dp` adds noise, and `secure_aggregation` adds masks. The other two guarantees label the
    value as not DP.
    """
    return cast(T, object.__getattribute__(sealed, "_Sealed__held"))
