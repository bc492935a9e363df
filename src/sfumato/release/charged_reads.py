"""Read rows for one charge, retry if the host ends the engine, and hide every other error.

The host is the machine that runs the engine. Retries follow a fixed public rule and use the same
charge (decision 0010). Inside this module an error becomes None, and outside it becomes one refusal
code. So no error message depends on a row.
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
    SIGNAL: "another process ended the process that reads rows",
    MEMORY: "the machine had no memory left for the process that reads rows",
}
LOST: Final = "engine-lost"  # the kind of a ledger entry: the host ended a process that read rows
PAUSES_S: Final = (0.1, 0.5, 2.0)  # before each retry of one charge's read
# out-of-memory ends of one question shape; after more, the shape counts as the cause
MEMORY_DEATHS: Final = 3


@dataclass
class RowReader:
    """Reader of rows for one charge; it repeats a read whose engine process the host ended.

    A retry repeats only the read. It finds the same numbers, and keeps the noise that was drawn
    before the retry.
    """

    ledger: Ledger
    data_set: str
    shape: str
    _deaths: list[str] = field(default_factory=list)

    @staticmethod
    def of(ledger: Ledger, charge: Charge) -> RowReader:
        """Return the reader of rows for a charge: for its data set and its question shape."""
        return RowReader(ledger, str(charge.body["data_set"]), charge.shape)

    def read(self, once: Callable[[], T]) -> T:
        """Read the rows; retry a few times if the host ends the read.

        Args:
            once: Reads rows, and changes nothing.

        Raises:
            EngineStopped: A limit of the engine stopped the read, or the host ended it too often.
            EngineLost: No process could be started, and no row was read.
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
        """Say whether this question shape is itself the cause of reads that ran out of memory.

        The shape is the question without its constants. It counts as the cause after more than 3
        such reads (MEMORY_DEATHS) since the owner last unfroze it.
        """
        return cause == MEMORY and _memory_deaths(self.ledger.store, self.shape) > MEMORY_DEATHS


def note_lost(ledger: Ledger, data_set: str, shape: str | None, cause: str) -> None:
    """Record in the ledger, for the owner, that the host ended a process that read rows.

    `shape` is the question shape that was read; it is None for a batch.
    """
    ledger.note(LOST, {"data_set": data_set, "shape": shape, "cause": cause})


def note_lost_pass(
    ledger: Ledger, data_set: str, shapes: Sequence[str], cause: str
) -> frozenset[str]:
    """Record that the host ended a batched read; return the question shapes that are the cause.

    Running out of memory counts against every question shape in the batch. Together they may need
    memory that none of them needs alone.
    """
    if cause != MEMORY:
        note_lost(ledger, data_set, None, cause)
        return frozenset()
    for shape in shapes:
        note_lost(ledger, data_set, shape, cause)
    return frozenset(s for s in shapes if _memory_deaths(ledger.store, s) > MEMORY_DEATHS)


def losses(store: LedgerStore, data_set: str | None = None, since: str = "") -> list[Json]:
    """Count the reads that the host ended, by cause; the caller may show them only to owners.

    Args:
        store: The ledger's entries.
        data_set: The data set that was read; None counts every data set.
        since: Reads before this time are not counted.

    Returns:
        For each cause: the cause in words, how often, and when last.
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
    """Return the result of a read (None if it failed), and whether an engine limit stopped it.

    Each `except` block ends before the caller raises its refusal. So an error that has touched a
    row never becomes the `__context__` of the refusal.
    """
    try:
        return look(), False
    except EngineLost as error:
        is_stopped = error.cause != START  # no process started, so no read was stopped
    except EngineStopped:
        is_stopped = True
    except Exception:  # noqa: BLE001  # the door is where everything else is caught
        is_stopped = False
    return None, is_stopped


def read_for_charge(ledger: Ledger, charge: Charge, look: Callable[[RowReader], T]) -> T:
    """Return the result of a paid read; if the read fails, record that in the ledger and refuse.

    If a limit of the engine stopped the read, its question shape is frozen: it is refused until the
    owner unfreezes it (soundness rule 13).
    """
    reader = RowReader.of(ledger, charge)
    found, is_stopped = attempt_read(lambda: look(reader))
    if found is None:
        ledger.fail(charge.user, charge.op, charge.shape if is_stopped else None)
        raise question_failed()
    return found
