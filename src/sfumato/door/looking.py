"""The stretch in which rows are read: whatever goes wrong in it is None, and later one code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sfumato.core.account import Charge
from sfumato.core.ports import EngineStopped
from sfumato.door.ledger import Ledger, question_failed

T = TypeVar("T")


def tried(look: Callable[[], T]) -> tuple[T | None, bool]:
    """Return what the look gives, or None; and whether a limit of the engine has stopped it.

    The except blocks are left before anybody raises, so that no error that has touched a row
    hangs on ours as its context.
    """
    try:
        return look(), False
    except EngineStopped:
        is_stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        is_stopped = False
    return None, is_stopped


def looked_at(ledger: Ledger, charge: Charge, look: Callable[[], T]) -> T:
    """Return what the paid look gives; or refuse, once that is written down.

    A shape of question that a limit has stopped is frozen (rules.md, 13).
    """
    found, is_stopped = tried(look)
    if found is None:
        ledger.fail(charge.user, charge.op, charge.shape if is_stopped else None)
        raise question_failed()
    return found
