"""Run queued jobs in the vault process, alternating with questions; resume them after a crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.service import Job
from sfumato.server.dispatch import Dispatcher
from sfumato.server.ipc.fair_semaphore import FairSemaphore
from sfumato.server.ipc.worker_threads import Threads
from sfumato.server.job_work import refusal_of_job, run_job
from sfumato.wire.query_json import Json

T = TypeVar("T")
LOOK_S: Final = 0.25  # seconds between two searches for ready jobs
TRIES: Final = 3  # the most starts of a job that crashes the door
# the most queued jobs of a user, so that other users' questions get their turn
OF_ONE_USER: Final = 2


@dataclass(frozen=True)
class Room:
    """The semaphore and the threads that one kind of job uses, together with other work."""

    turns: FairSemaphore
    threads: Threads


class Runner:
    """Runs the queued jobs of a vault in this process."""

    def __init__(
        self, desk: Dispatcher, rooms: Mapping[str, Room], beat: Callable[[], Awaitable[None]]
    ) -> None:
        self._desk = desk
        self._rooms = rooms
        self._beat = beat
        self._name = desk.jobs.runner()
        # its threads run nothing else, so that no lease is renewed late
        self._looks = Threads(1, "jobs")
        self._mine: dict[str, tuple[tuple[str, str], asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Look for queued jobs that are ready, and start them, until cancelled.

        If the store of jobs cannot be reached, try again later.
        """
        while True:
            try:
                if self._mine:
                    await self._looks.done(self._desk.jobs.renew, self._name)
                for job in await self._looks.done(self._ready):
                    self._take(job)
            except Exception:  # noqa: BLE001, S110  # the next look tries again
                pass
            await asyncio.sleep(LOOK_S)

    def _ready(self) -> tuple[Job, ...]:
        """Return the queued jobs that are ready, and that this machine can run now."""
        return tuple(job for job in self._desk.jobs.ready() if self._desk.adding.is_workable(job))

    def _take(self, job: Job) -> None:
        held = Counter(of for of, _ in self._mine.values())
        of = (job.user, job.kind)
        if job.id in self._mine or held[of] >= OF_ONE_USER:
            return
        task = asyncio.create_task(self._worked_on(job, self._rooms[job.kind]))
        self._mine[job.id] = (of, task)
        task.add_done_callback(lambda _: self._mine.pop(job.id, None))

    async def _worked_on(self, job: Job, room: Room) -> None:
        """Run a job as soon as the semaphore allows it.

        If the queue is full, a later search finds the job again.
        """
        try:
            async with room.turns.turn(job.user):
                claimed = await self._looks.done(self._desk.jobs.claim, job, self._name)
                if claimed is None:
                    return
                refusal = await room.threads.done(self._done, claimed)
            await self._beat()
            await self._looks.done(self._desk.jobs.finish, claimed, self._name, refusal)
            if refusal is None:
                await self._looks.done(self._desk.adding.clear, claimed)
        except Refused:
            return
        except Exception:  # noqa: BLE001  # the lease expires, and another door resumes the job
            return

    def _done(self, job: Job) -> Json | None:
        """Run a job, if its user is still authorised. Return the refusal that ended it, or None."""
        try:
            if job.tries > TRIES:
                return refusal_of_job(fault())
            caller = self._desk.access.admission.caller_of_job(job.user, job.token)
            return run_job(self._desk, caller, job)
        except Refused as refused:
            return refusal_of_job(refused)
        except Exception:  # noqa: BLE001  # outermost: any other error is an internal fault
            return refusal_of_job(fault())


def fault() -> Refused:
    """Return the refusal of a request after an internal fault, without any detail."""
    return Refused(
        "fault",
        "sfumato failed because of a bug. This message contains nothing about the data.",
        "If it was a question, ask it again with the same operation id. It is charged only once.",
    )
