"""Works on the jobs that are ready: in turns with whoever asks and waits, and after a crash too."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.upload_verbs import cleared, is_workable
from sfumato.features.jobs.service import Job
from sfumato.features.jobs.verbs import worked_on
from sfumato.server.dispatch import Dispatcher
from sfumato.server.ipc.fair_semaphore import FairSemaphore
from sfumato.server.ipc.worker_threads import Threads
from sfumato.wire.query_json import Json, refusal_shape

T = TypeVar("T")
LOOK_S: Final = 0.25  # between two looks at what is ready
TRIES: Final = 3  # of a job by which doors die
OF_ONE_USER: Final = 2  # jobs that stand in the queue at once, so that others' questions get in


@dataclass(frozen=True)
class Room:
    """Where work of a kind is done: its turns, and its threads."""

    turns: FairSemaphore
    threads: Threads


class Runner:
    """The jobs that this door works on."""

    def __init__(
        self, desk: Dispatcher, rooms: Mapping[str, Room], beat: Callable[[], Awaitable[None]]
    ) -> None:
        self._desk = desk
        self._rooms = rooms
        self._beat = beat
        self._name = desk.jobs.runner()
        self._looks = Threads(1, "jobs")  # so that nothing holds up the sign of life
        self._mine: dict[str, tuple[tuple[str, str], asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Look for what is ready until cancelled; a store out of reach is looked at again."""
        while True:
            try:
                if self._mine:
                    await self._looks.done(self._desk.jobs.renew, self._name)
                for job in await self._looks.done(self._ready):
                    self._take(job)
            except Exception:  # noqa: BLE001, S110  # a face: the next look may find it well again
                pass
            await asyncio.sleep(LOOK_S)

    def _ready(self) -> tuple[Job, ...]:
        """Return the jobs that can be worked on here and now."""
        return tuple(job for job in self._desk.jobs.ready() if is_workable(self._desk, job))

    def _take(self, job: Job) -> None:
        held = Counter(of for of, _ in self._mine.values())
        of = (job.user, job.kind)
        if job.id in self._mine or held[of] >= OF_ONE_USER:
            return
        task = asyncio.create_task(self._worked_on(job, self._rooms[job.kind]))
        self._mine[job.id] = (of, task)
        task.add_done_callback(lambda _: self._mine.pop(job.id, None))

    async def _worked_on(self, job: Job, room: Room) -> None:
        """Work on the job in its turn; where the queue is full, it waits for another look."""
        try:
            async with room.turns.turn(job.user):
                claimed = await self._looks.done(self._desk.jobs.claim, job, self._name)
                if claimed is None:
                    return
                refusal = await room.threads.done(self._done, claimed)
            await self._beat()
            await self._looks.done(self._desk.jobs.finish, claimed, self._name, refusal)
            if refusal is None:
                await self._looks.done(cleared, self._desk, claimed)
        except Refused:
            return
        except Exception:  # noqa: BLE001  # a face: its lease ends, and somebody goes on with it
            return

    def _done(self, job: Job) -> Json | None:
        """Return why the work was not done, or None; whoever began it must still be let in."""
        try:
            if job.tries > TRIES:
                return _inner(fault())
            caller = self._desk.access.admission.returned(job.user, job.token)
            return worked_on(self._desk, caller, job)
        except Refused as refused:
            return _inner(refused)
        except Exception:  # noqa: BLE001  # a face: whatever else happens is our fault
            return _inner(fault())


def _inner(refused: Refused) -> Json:
    shape = refusal_shape(refused)["refused"]
    return dict(shape) if isinstance(shape, dict) else {}


def fault() -> Refused:
    """Return what is said of a fault of ours: nothing but that it is one."""
    return Refused(
        "fault",
        "A fault of ours. Nothing of the data is in this message.",
        "If it was a question, ask it again with the same operation id: it pays once.",
    )
