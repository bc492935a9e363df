"""Read rows for one charge; whatever goes wrong is None, and later one code.

What the host ended is read again under the same charge, by a rule that is public and fixed
(decision 0010).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sfumato.dp.json_values import Json
from sfumato.release.ledger_guard import Ledger, question_failed
from sfumato.vault.engine_port import MEMORY, SIGNAL, START, EngineLost, EngineStopped
from sfumato.vault.ledger_entries import Charge
from sfumato.vault.ports import LedgerStore

T = TypeVar("T")
_SAYS: Final = {
    START: "no process that reads rows could be started",
    SIGNAL: "another process ended the one that reads rows",
    MEMORY: "the machine had no memory left for the process that reads rows",
}
LOST: Final = "engine-lost"  # the kind of a ledger entry: the host ended a process that read
PAUSES_S: Final = (0.1, 0.5, 2.0)  # before each time that one charge's rows are read again
MEMORY_DEATHS: Final = 3  # of one shape, for want of memory, after which they are its own doing


@dataclass
class RowReader:
    """Reads rows for one charge, and reads again what the host ended; has state.

    Each reading gives the same numbers, and noise that is drawn between two readings stays as it
    was drawn: what is read again is the reading alone.
    """

    ledger: Ledger
    data_set: str
    shape: str
    _deaths: list[str] = field(default_factory=list)

    @staticmethod
    def of(ledger: Ledger, charge: Charge) -> RowReader:
        """Return what reads for the charge."""
        return RowReader(ledger, str(charge.body["data_set"]), charge.shape)

    def read(self, once: Callable[[], T]) -> T:
        """Return what one reading gives; what the host has ended is read again, a few times.

        Args:
            once: reads rows, and changes nothing.

        Raises:
            EngineStopped: a limit of its own has stopped it, or the host too often.
            EngineLost: no process could be started, and no row was read.
        """
        while True:
            try:
                return once()
            except EngineLost as error:
                cause = error.cause
            note_lost(self.ledger, self.data_set, self.shape, cause)
            self._deaths.append(cause)
            if len(self._deaths) > len(PAUSES_S) or self._is_its_own(cause):
                break
            time.sleep(PAUSES_S[len(self._deaths) - 1])
        raise EngineLost(START) if set(self._deaths) == {START} else EngineStopped

    def _is_its_own(self, cause: str) -> bool:
        """Say whether its shape has died of want of memory too often since it was thawed."""
        return cause == MEMORY and _memory_deaths(self.ledger.store, self.shape) > MEMORY_DEATHS


def note_lost(ledger: Ledger, data_set: str, shape: str | None, cause: str) -> None:
    """Write down, for the owner, that the host ended a reading; of several there is no shape."""
    ledger.note(LOST, {"data_set": data_set, "shape": shape, "cause": cause})


def note_lost_pass(
    ledger: Ledger, data_set: str, shapes: Sequence[str], cause: str
) -> frozenset[str]:
    """Write down that the host ended one pass for several; return whose doing it counts as.

    Want of memory counts for every shape in the pass: together they may need what none does alone.
    """
    if cause != MEMORY:
        note_lost(ledger, data_set, None, cause)
        return frozenset()
    for shape in shapes:
        note_lost(ledger, data_set, shape, cause)
    return frozenset(s for s in shapes if _memory_deaths(ledger.store, s) > MEMORY_DEATHS)


def losses(store: LedgerStore, data_set: str | None = None, since: str = "") -> list[Json]:
    """Return how often the host ended a reading of the data set, or of any; an owner's to see.

    Args:
        store: the ledger's entries.
        data_set: the data set that was read; None is every one.
        since: a moment before which nothing is counted.

    Returns:
        For each cause: what it was, in words, how often, and when the last time.
    """
    found: dict[str, Json] = {}
    for entry in store.notes(LOST):
        if entry.at >= since and data_set in {None, _of(entry.body, "data_set")}:
            cause = str(_of(entry.body, "cause"))
            times = int(str(found.get(cause, {}).get("times", 0))) + 1
            words = {"cause": cause, "says": _SAYS.get(cause, cause)}
            found[cause] = {**words, "times": times, "last": entry.at}
    return list(found.values())


def _memory_deaths(store: LedgerStore, shape: str) -> int:
    thawed = [one.seq for one in store.notes("shape-thawed") if _of(one.body, "shape") == shape]
    lost = store.notes(LOST, max(thawed, default=0))
    return sum((_of(one.body, "shape"), _of(one.body, "cause")) == (shape, MEMORY) for one in lost)


def _of(body: str, name: str) -> object:
    return json.loads(body).get(name)


def attempt_read(look: Callable[[], T]) -> tuple[T | None, bool]:
    """Return what the look gives, or None; and whether a limit of the engine has stopped it.

    The except blocks are left before anybody raises, so that no error that has touched a row
    hangs on ours as its context.
    """
    try:
        return look(), False
    except EngineLost as error:
        is_stopped = error.cause != START  # where nothing was read, nothing of it was stopped
    except EngineStopped:
        is_stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        is_stopped = False
    return None, is_stopped


def read_for_charge(ledger: Ledger, charge: Charge, look: Callable[[RowReader], T]) -> T:
    """Return what the paid look gives; or refuse, once that is written down.

    A shape of question that a limit has stopped is frozen (soundness rule 13).
    """
    reader = RowReader.of(ledger, charge)
    found, is_stopped = attempt_read(lambda: look(reader))
    if found is None:
        ledger.fail(charge.user, charge.op, charge.shape if is_stopped else None)
        raise question_failed()
    return found
