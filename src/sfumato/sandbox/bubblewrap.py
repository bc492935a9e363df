"""Strangers' programs in bubbles: one processor, one bubble, one block at a time."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np

from sfumato.dp.ports import Dice, IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.sandbox.base_environment import Environment, environment_digest, with_own
from sfumato.sandbox.container_runtimes import Runtime
from sfumato.sandbox.environment_store import Environments, missing_environment
from sfumato.sandbox.machine_resources import FOR_BLOCKS, is_too_old, memory_mb, one_by_one
from sfumato.sandbox.ports import (
    ENDS,
    MOST_KEPT,
    BlockJob,
    Laid,
    SandboxLimits,
    SandboxStopped,
    TrialJob,
    TrialResult,
    said_path,
)
from sfumato.sandbox.program_environment import IMAGE, OwnEnvironment, bound
from sfumato.sandbox.program_outputs import read_said
from sfumato.sandbox.sandbox_process import DONE, STALLED, Ran, SandboxProcess, SandboxProcessEnded
from sfumato.vault.sealed import Sealed

_AGAIN: Final = 3  # times that a whole job is run again because the host failed it
_STALLED_AGAIN: Final = 10  # blocks of made-up rows that each lane runs again
_BUBBLEWRAP: Final = Runtime()
_OWN_MB: Final = 256  # of a bubble itself: the libraries, and the zygote
_REST_S: Final = 0.3  # between a block's last moment and the next one's start,
_CLEAR_S: Final = 0.1  # and for each gigabyte of its that the kernel takes back
_READ_S: Final = 0.02  # for reading a file that one block said, at worst
_LAY_S: Final = 2.0  # for the engine, to lay out what is run,
_KEPT_MB: Final = MOST_KEPT / (1 << 20)  # of a turn
_KEPT_S: Final = 0.02  # for what it keeps of each turn, at worst,
_COPY_S: Final = 0.02  # and for a megabyte of people's files, read twice and written
_DROP_S: Final = 0.005  # and for taking a megabyte of what was laid out off the disk again


def turn_s(limits: SandboxLimits) -> float:
    """Return the time from one start on a lane to the next, whatever the programs do."""
    gigabytes = (limits.memory_mb + limits.disk_mb) / 1024
    return limits.wall_s + _REST_S + _CLEAR_S * gigabytes


def slot_s(blocks: int, bubbles: int, limits: SandboxLimits, files: int = 1) -> float:
    """Return how long a job takes, whatever the programs do: a function of public numbers."""
    return -(-blocks // bubbles) * turn_s(limits) + blocks * files * _READ_S


def lay_s(laid: Laid) -> float:
    """Return how long an engine has to lay out what is run, whatever is kept of earlier runs."""
    return _LAY_S + laid.turns * _KEPT_S + laid.megabytes * _COPY_S


def drop_s(laid: Laid | None) -> float:
    """Return how long removing what an engine has laid out may take: of public numbers as well."""
    return 0.0 if laid is None else _DROP_S * (laid.megabytes + laid.turns * _KEPT_MB)


def _drop(job: BlockJob) -> None:
    """Remove what was laid out, within the slot: how much it was is not told by when it ends."""
    for path in () if job.laid is None else job.inputs:
        with suppress(OSError):  # the run's folder goes with all that is left in it
            os.unlink(path)


@contextmanager
def _in_memory(text: bytes) -> Iterator[int]:
    """Hold the text as a file that lies nowhere."""
    made = os.memfd_create("text", os.MFD_CLOEXEC)
    try:
        with open(os.dup(made), "wb") as file:
            file.write(text)
        os.lseek(made, 0, os.SEEK_SET)
        yield made
    finally:
        os.close(made)


class Bubblewrap:
    """A Sandbox: warm bubbles that are kept between jobs, each on a processor of its own.

    Block b runs on lane b mod lanes and starts at a moment that is fixed before any block runs, so
    that a program that looks at lane or clock sees nothing of what another block did (soundness
    rule 27). A block is never run again by itself: where the host fails one, the whole job starts
    anew.
    """

    def __init__(
        self,
        made: Callable[[], Environment],
        dice: Dice,
        *,
        own: Environments | None = None,
        sleep: Callable[[float], None] = time.sleep,
        runtime: Runtime = _BUBBLEWRAP,
    ) -> None:
        """Start nothing yet; bubbles will be started with that runtime, and with no other."""
        self._runtime = runtime
        self._made, self._dice, self._sleep = made, dice, sleep
        self._job = threading.Lock()
        self._bubbles: list[SandboxProcess] = []
        self._own = own or Environments()
        self._warm_with = ""  # the name of what those bubbles have of a program's own,
        self._held: OwnEnvironment | None = None  # and what it is, even if it is removed meanwhile
        self._checked: dict[str, str] = {}  # the contents of each when it was checked last

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Return how many blocks run at once: what they may use sums to less than the machine."""
        found = self._found(own)
        each = limits.memory_mb + limits.disk_mb + _OWN_MB + (found.megabytes if found else 0)
        fitting = int(FOR_BLOCKS * memory_mb()) // each
        release = os.uname().release
        most = 1 if one_by_one(release) else len(os.sched_getaffinity(0))
        return 0 if is_too_old(release) else min(most, fitting)

    def environment(self, own: str = "") -> str:
        """Return the digest of what programs run with here, and with it the name of their own.

        Their own files are in the digest: a name can stand for several contents, as where a lock
        allows two wheels.
        """
        found = self._there(own)
        if found is None:
            return environment_digest()
        both = f"{environment_digest()} {found.contents}"
        return bound(hashlib.sha256(both.encode()).hexdigest(), own)

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise unless every bubble is warm and there is room for a block."""
        with self._job:
            self._look_again(own)
            if self.lanes(limits, own) < 1 or not self._is_warm(own):
                raise SandboxStopped

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        """Return what each block says of each output, after exactly as long as the limits say."""
        with self._job:
            ran = self._said(job)
            if ran is None:
                raise SandboxStopped
            began, said = ran
            steps = [read_said(said[block].said, job.outputs) for block in range(len(job.inputs))]
            files = len({output.path for output in job.outputs})
            lanes = self.lanes(job.limits, job.own)
            _drop(job)
            slot = slot_s(len(job.inputs), lanes, job.limits, files) + drop_s(job.laid)
            self._wait_out(began, slot)
            shape = len(job.inputs), sum(output.count for output in job.outputs)
            return Sealed(np.array(steps, dtype=np.int64).reshape(shape))

    def run_each(self, job: BlockJob) -> None:
        """Run the program on every turn; leave what it says beside the turn, unless that is empty.

        Whoever is stopped leaves nothing: the host may be at fault, so their run is not kept.
        """
        with self._job:
            ran = self._said(job)
            if ran is None:
                raise SandboxStopped
            began, said = ran
            for turn, one in said.items():
                if one.ended == DONE and os.path.getsize(job.inputs[turn]) > 0:
                    with open(said_path(job.inputs[turn]), "wb") as file:
                        file.write(one.said)
            lanes = self.lanes(job.limits, job.own)
            self._wait_out(began, slot_s(len(said), lanes, job.limits))

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        """Return what each block of made-up rows does, as soon as it is done."""
        with self._job:
            self._look_again(job.own)
            lanes = self.lanes(job.limits, job.own)
            if lanes < 1 or not self._is_warm(job.own):
                raise SandboxStopped
            with ThreadPoolExecutor(lanes) as threads:
                begun = [threads.submit(self._tried, job, lane, lanes) for lane in range(lanes)]
            heard = [lane.result() for lane in begun]
            said: dict[int, TrialResult] = {}
            for one in heard:
                if one is None:
                    self._end()
                    raise SandboxStopped
                said |= one
            return tuple(said[block] for block in range(len(job.texts)))

    def _tried(self, job: TrialJob, lane: int, lanes: int) -> dict[int, TrialResult] | None:
        """Return what the blocks of one lane do on made-up rows; None where the host failed."""
        said: dict[int, TrialResult] = {}
        left = list(reversed(range(lane, len(job.texts), lanes)))
        again = _STALLED_AGAIN
        with _in_memory(self._told(job)) as program:
            while left:
                block = left.pop()
                try:
                    with _in_memory(job.texts[block]) as rows:
                        ran, end = self._bubbles[lane].try_out(program, rows, job.limits)
                except (SandboxProcessEnded, OSError):
                    return None
                if ran.ended == STALLED and again > 0:  # the machine, perhaps; these are nobody's
                    again -= 1
                    left.append(block)
                said[block] = TrialResult(ran.said, ENDS[ran.ended], end.status, end.printed)
        return said

    def _wait_out(self, began: float, slot: float) -> None:
        """Wait until the slot is over; where the host was slow, until the next one is."""
        taken = time.monotonic() - began
        self._sleep(max(1, -(-taken // slot)) * slot - taken)

    def close(self) -> None:
        """Let every process go."""
        with self._job:
            self._end()

    def pids(self) -> tuple[int, ...]:
        """Return the launchers' process ids."""
        return tuple(bubble.pid for bubble in self._bubbles)

    def _is_warm(self, own: str) -> bool:
        """Say whether there are bubbles with just that of a program's own; start them if not."""
        cpus = sorted(os.sched_getaffinity(0))
        is_there = len(self._bubbles) == len(cpus) and all(b.is_alive() for b in self._bubbles)
        if is_there and self._warm_with == own:
            return True
        self._end()
        made, found = self._made(), self._own.find(own)
        if own:
            if found is None or self._checked.get(own, found.contents) != found.contents:
                return False
            made = with_own(made, self._own.files(own), is_image=own.startswith(IMAGE))
        self._warm_with, self._held = own, found
        try:
            for cpu in cpus:
                self._bubbles.append(SandboxProcess(made, cpu, self._dice, self._runtime))
        except SandboxProcessEnded:
            self._end()
            return False
        return True

    def _is_still_warm(self, own: str) -> bool:
        """Say whether it is, of a job that is paid: changed files are the host's fault by then."""
        try:
            return self._is_warm(own)
        except Refused:
            return False

    def _there(self, own: str) -> OwnEnvironment | None:
        """Return what lies there by that name, None if it names none; or refuse."""
        found = self._own.find(own)
        if own and found is None:
            raise missing_environment()
        return found

    def _look_again(self, own: str) -> None:
        """Let go of bubbles with what is not there any more: a job is about to be begun."""
        found = self._there(own)
        if own == self._warm_with and found != self._held:
            self._end()
        if found is not None:
            self._checked[own] = found.contents

    def _found(self, own: str) -> OwnEnvironment | None:
        """Return what bubbles have of a program's own; if they are not there, what lies there."""
        held = self._held
        return held if held is not None and held.name == own else self._own.find(own)

    def _told(self, job: BlockJob | TrialJob) -> bytes:
        """Return what the inside is told; of an image, what its makers say, too."""
        found = self._found(job.own)
        if job.own and found is None:
            raise SandboxStopped
        keys = ("entry", "settings", "through")
        image = {key: getattr(found, key) for key in keys} if found else {}
        return json.dumps({**job.program, **image}).encode()

    def _end(self) -> None:
        for bubble in self._bubbles:
            bubble.kill()
        self._bubbles.clear()
        self._held = None

    def _said(self, job: BlockJob) -> tuple[float, dict[int, Ran]] | None:
        """Return when the blocks began and what each said, or None where there is no sandbox.

        They begin when an engine must be done, not when it is: they can look at the clock.
        """
        if job.laid is not None:
            self._wait_out(job.laid.since, lay_s(job.laid))
        with _in_memory(self._told(job)) as program:
            for _ in range(_AGAIN + 1):
                lanes = self.lanes(job.limits, job.own)
                if lanes < 1 or not self._is_still_warm(job.own):
                    return None
                began = time.monotonic()
                said = self._once(job, program, lanes, began)
                if said is not None:
                    return began, said
                self._end()
            return None

    def _once(self, job: BlockJob, program: int, lanes: int, began: float) -> dict[int, Ran] | None:
        """Run every block once, or return None where the host failed one."""
        with ThreadPoolExecutor(lanes) as threads:
            begun = [
                threads.submit(self._lane, job, program, range(lane, len(job.inputs), lanes), began)
                for lane in range(lanes)
            ]
        heard = [lane.result() for lane in begun]
        said: dict[int, Ran] = {}
        for one in heard:
            if one is None:
                return None
            said |= one
        return said

    def _lane(
        self, job: BlockJob, program: int, blocks: range, began: float
    ) -> dict[int, Ran] | None:
        """Run the blocks of one lane, each at its fixed start; None where the host was not able."""
        said: dict[int, Ran] = {}
        for turn, block in enumerate(blocks):
            wait = began + turn * turn_s(job.limits) - time.monotonic()
            if turn > 0 and wait < 0:
                return None
            self._sleep(max(0.0, wait))
            try:
                said[block] = self._ran(blocks.start, program, job.inputs[block], job.limits)
            except (SandboxProcessEnded, OSError):
                return None
        return said

    def _ran(self, lane: int, program: int, rows_path: str, limits: SandboxLimits) -> Ran:
        """Run it, on nothing too: what the kernel counts would tell others of a turn left out."""
        rows = os.open(rows_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._bubbles[lane].run(program, rows, limits)
        finally:
            os.close(rows)
