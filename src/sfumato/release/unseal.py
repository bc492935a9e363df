"""The only hand that opens a Sealed value; imported by the locks and by nobody else."""

from __future__ import annotations

from typing import TypeVar, cast

from sfumato.vault.sealed import Sealed

T = TypeVar("T")


def unseal(sealed: Sealed[T]) -> T:
    """Return the private value; the caller puts noise on it before anything else happens."""
    return cast(T, object.__getattribute__(sealed, "_Sealed__held"))
