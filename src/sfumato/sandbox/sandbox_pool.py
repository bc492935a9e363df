"""Run untrusted programs in sandboxes: one sandbox and one block per processor at a time.

Blocks start on a fixed schedule, unless they are a batch (block_timing.py, block_batch.py).
Bubblewrap or a container runtime starts the sandboxes (container_runtimes.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import numpy as np

from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Refused
from sfumato.sandbox.base_environment import Environment, environment_digest, with_own
from sfumato.sandbox.block_batch import BlockBatch
from sfumato.sandbox.block_timing import batch_s, drop_s, slot_s, turn_s, write_s
from sfumato.sandbox.container_runtimes import APPTAINER, BUBBLEWRAP, DOCKER, Runtime
from sfumato.sandbox.control_group import GroupHome, find_home
from sfumato.sandbox.environment_store import Environments, missing_environment
from sfumato.sandbox.machine_resources import FOR_BLOCKS, is_too_old, memory_mb, one_by_one
from sfumato.sandbox.ports import (
    ENDS,
    BlockJob,
    SandboxLimits,
    SandboxStopped,
    TrialJob,
    TrialResult,
    Use,
    output_path,
)
from sfumato.sandbox.program_environment import IMAGE, OwnEnvironment, bound
from sfumato.sandbox.program_outputs import read_output
from sfumato.sandbox.program_traces import read_traces
from sfumato.sandbox.sandbox_process import (
    DONE,
    STALLED,
    BlockNotEnded,
    Ran,
    SandboxProcess,
    SandboxProcessEnded,
)
from sfumato.vault.sealed import Sealed

_RETRIES: Final = 3  # how often a whole job is run again after a failure of the host
_STALLED_RETRIES: Final = 10  # how often stalled trial blocks of one lane are run again, at most
_STALLED_S: Final = 20  # the most processor time of these retries; one is always allowed
_BUBBLEWRAP: Final = Runtime()
_ONE_PROCESSOR: Final = (DOCKER, APPTAINER)  # a container gets the time of one (their commands)
_OWN_MB: Final = 256  # memory of a sandbox itself: the libraries and the zygote


def _is_tree(own: str) -> bool:
    """Return True if a program with this environment is a process tree: if it has an image."""
    return own.startswith(IMAGE)


def _drop(job: BlockJob) -> None:
    """Delete a job's inputs within its fixed time, so that its end does not reveal their size."""
    for path in () if job.input_timing is None else job.inputs:
        with suppress(OSError):  # all that is left is deleted later, with the run's folder
            os.unlink(path)


class _LateEnd(Exception):
    """A block that had to be stopped ended after the start of the next one, or not at all."""


@contextmanager
def _in_memory(text: bytes) -> Iterator[int]:
    """Yield the descriptor of an anonymous file in memory with this content."""
    made = os.memfd_create("text", os.MFD_CLOEXEC)
    try:
        with open(os.dup(made), "wb") as file:
            file.write(text)
        os.lseek(made, 0, os.SEEK_SET)
        yield made
    finally:
        os.close(made)


class SandboxPool:
    """Sandbox implementation: a pool of preloaded sandbox processes, one pinned to each processor.

    A lane is one processor with its sandbox. Block b runs on lane b mod lanes. Its start time is
    fixed before any block runs. So a program that reads its lane or the clock learns nothing about
    other blocks (soundness rule 27).

    A single block is never retried. If the host fails one block, the whole job runs again. If a
    block that had to be stopped ends late, the job fails: its program could cause a second run,
    whose blocks would read a later clock. In a batch, none of this holds: each lane takes the next
    block as soon as it is free.
    """

    def __init__(
        self,
        made: Callable[[], Environment],
        dice: RandomSource,
        *,
        own: Environments | None = None,
        sleep: Callable[[float], None] = time.sleep,
        runtime: Runtime = _BUBBLEWRAP,
    ) -> None:
        """Store the settings of the pool; sandboxes start later, with this runtime only."""
        self.stalled_retries = _STALLED_RETRIES
        self.find_home: Callable[[], GroupHome | None] = find_home  # for control groups of blocks
        self._runtime = runtime
        self._made, self._dice, self._sleep = made, dice, sleep
        self._job = threading.Lock()
        self._sandboxes: list[SandboxProcess] = []
        self._own = own or Environments()
        self._warm_with = ""  # name of the own environment that the running sandboxes have
        self._is_for_batch = False  # True if they run an image's programs in batches
        self._warm_environment: Environment | None = None
        self._own_environment: OwnEnvironment | None = (
            None  # the stored record of that environment, even if it was removed since
        )
        self._checked: dict[str, str] = {}  # content digest of each environment at its last check

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Return how many blocks can run in parallel, at most one on each processor.

        Their memory limits together fit the machine. Beside an image's program, which is a process
        tree, runs no other block, except in a batch. Its keeper needs a processor of its own, so
        that a block of many processes cannot starve it.
        """
        if not _is_tree(own):
            return self._room(limits, own)
        if limits.is_batch:  # a container's /proc is not whole, so no block can have its own there
            return self._room(limits, own) if self._runtime.name == BUBBLEWRAP else 0
        if len(os.sched_getaffinity(0)) < 2 or self._runtime.name in _ONE_PROCESSOR:
            return 0
        return min(1, self._room(limits, own))

    def _room(self, limits: SandboxLimits, own: str) -> int:
        """Return for how many blocks this machine has processors and memory."""
        found = self._found(own)
        each = limits.memory_mb + limits.disk_mb + _OWN_MB + (found.megabytes if found else 0)
        fitting = int(FOR_BLOCKS * memory_mb()) // each
        release = os.uname().release
        most = 1 if one_by_one(release) else len(os.sched_getaffinity(0))
        return 0 if is_too_old(release) else min(most, fitting)

    def environment(self, own: str = "") -> str:
        """Return the digest of the base environment and of the program's own, with its name.

        The digest covers the contents of the program's own environment. The name alone is not
        enough: for example, a lock file may allow two different wheels.
        """
        found = self._stored_environment(own)
        if found is None:
            return environment_digest()
        both = f"{environment_digest()} {found.contents}"
        return bound(hashlib.sha256(both.encode()).hexdigest(), own)

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise `SandboxStopped` unless all sandboxes are ready and a block fits into memory."""
        with self._job:
            self._stop_outdated(own)
            if self.lanes(limits, own) < 1 or not self._is_warm(limits, own):
                raise SandboxStopped

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        """Run all blocks; return their outputs, sealed, after a time that only the limits set."""
        with self._job:
            ran = self._run_blocks(job)
            if ran is None:
                raise SandboxStopped
            began, said = ran
            steps = [
                read_output(said[block].output if block in said else b"", job.outputs)
                for block in range(len(job.inputs))
            ]
            files = len({output.path for output in job.outputs})
            _drop(job)
            self._wait_out(began, self._slot_s(job, files) + drop_s(job.input_timing))
            shape = len(job.inputs), sum(output.count for output in job.outputs)
            return Sealed(np.array(steps, dtype=np.int64).reshape(shape))

    def run_each(self, job: BlockJob) -> None:
        """Run the program once for each person's input file; write each result next to the file.

        An empty input gets no result. A run that was stopped gets none either: the host may have
        stopped it, so its result is not stored.
        """
        with self._job:
            ran = self._run_blocks(job)
            if ran is None:
                raise SandboxStopped
            began, said = ran
            for turn, one in said.items():
                if one.ended == DONE and os.path.getsize(job.inputs[turn]) > 0:
                    with open(output_path(job.inputs[turn]), "wb") as file:
                        file.write(one.output)
            self._wait_out(began, self._slot_s(job, files=1))

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        """Run a program on synthetic rows, and return each block's full result.

        There is no fixed schedule: a processor starts its next block as soon as it is free.
        """
        with self._job:
            self._stop_outdated(job.own)
            lanes = self._room(job.limits, job.own)
            if lanes < 1 or not self._is_warm(job.limits, job.own):
                raise SandboxStopped
            with ThreadPoolExecutor(lanes) as threads:
                begun = [threads.submit(self._run_trial, job, lane, lanes) for lane in range(lanes)]
            heard = [lane.result() for lane in begun]
            said: dict[int, TrialResult] = {}
            for one in heard:
                if one is None:
                    self._end()
                    raise SandboxStopped
                said |= one
            return tuple(said[block] for block in range(len(job.texts)))

    def _run_trial(self, job: TrialJob, lane: int, lanes: int) -> dict[int, TrialResult] | None:
        """Run the trial blocks of one processor's sandbox; return None if the host failed.

        A block that the host stalled runs again, because its rows are synthetic.
        """
        said: dict[int, TrialResult] = {}
        # a trial in a batch waits for nobody, and others wait for it
        limits = replace(job.limits, most_wall_s=1.5 * job.limits.cpu_s + 1)
        left = list(reversed(range(lane, len(job.texts), lanes)))
        again = min(self.stalled_retries, max(1, int(_STALLED_S / job.limits.cpu_s)))
        before: dict[int, float] = {}  # how long the stalled runs of a block took
        with _in_memory(self._program_message(job)) as program:
            while left:
                block = left.pop()
                began = time.monotonic()
                try:
                    with _in_memory(job.texts[block]) as rows:
                        ran, end = self._sandboxes[lane].try_out(program, rows, limits)
                except (SandboxProcessEnded, OSError):
                    return None
                took = time.monotonic() - began + before.get(block, 0.0)
                # safe to run again, because the rows are synthetic
                if ran.ended == STALLED and again > 0:
                    again -= 1
                    left.append(block)
                    before[block] = took
                use = Use(ran.used_us / 1e6, end.memory, end.processes, took)
                traces = read_traces(end.observed)
                said[block] = TrialResult(
                    ran.output, ENDS[ran.ended], end.status, end.printed, use, traces
                )
        return said

    def _wait_out(self, began: float, slot: float) -> None:
        """Wait until `slot` seconds have passed since `began`, so the duration reveals nothing.

        If the host was late, wait until a multiple of `slot`.
        """
        taken = time.monotonic() - began
        self._sleep(max(1, -(-taken // slot)) * slot - taken)

    def close(self) -> None:
        """Stop all sandbox processes."""
        with self._job:
            self._end()

    def group_home(self) -> GroupHome | None:
        """Start a sandbox to find out where blocks of images get control groups, if at all."""
        home = self.find_home()
        cpu = min(os.sched_getaffinity(0))
        made = SandboxProcess(self._made(), cpu, self._dice, self._runtime, home)
        made.kill()
        return home if made.has_groups else None

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the sandboxes' launchers."""
        return tuple(sandbox.pid for sandbox in self._sandboxes)

    def _slot_s(self, job: BlockJob, files: int) -> float:
        """Return the fixed duration of a job, in seconds, from public numbers only."""
        lanes = self.lanes(job.limits, job.own)
        return slot_s(len(job.inputs), lanes, job.limits, files, is_tree=_is_tree(job.own))

    def _is_warm(self, limits: SandboxLimits, own: str) -> bool:
        """Return True if all sandboxes have loaded this program environment.

        Restart them first if they run with another one, or if one has ended. Return False if the
        environment is missing or has changed, or if a sandbox does not start.
        """
        cpus = sorted(os.sched_getaffinity(0))
        is_there = len(self._sandboxes) == len(cpus) and all(b.is_alive() for b in self._sandboxes)
        is_batch = limits.is_batch and _is_tree(own)  # of other programs, both are the same
        if is_there and (self._warm_with, self._is_for_batch) == (own, is_batch):
            return True
        self._end()
        made, found = self._made(), self._own.find(own)
        if own:
            if found is None or self._checked.get(own, found.contents) != found.contents:
                return False
            made = with_own(made, self._own.files(own), is_image=_is_tree(own))
            made = replace(made, is_batch=is_batch)
        self._warm_with, self._is_for_batch, self._own_environment = own, is_batch, found
        self._warm_environment = made
        try:
            for cpu in cpus:
                self._sandboxes.append(self._started(made, cpu))
        except SandboxProcessEnded:
            self._end()
            return False
        return True

    def _restart(self, lane: int) -> SandboxProcess:
        """Replace the sandbox of one lane, which has ended, with the same environment."""
        self._sandboxes[lane].kill()
        cpu = sorted(os.sched_getaffinity(0))[lane]
        made = self._warm_environment
        if made is None:
            raise SandboxProcessEnded
        self._sandboxes[lane] = self._started(made, cpu)
        return self._sandboxes[lane]

    def _started(self, made: Environment, cpu: int) -> SandboxProcess:
        """Start a sandbox; a block that may be a process tree gets a control group, if possible."""
        home = self.find_home() if made.is_image else None
        return SandboxProcess(made, cpu, self._dice, self._runtime, home)

    def _is_still_warm(self, limits: SandboxLimits, own: str) -> bool:
        """Check the sandboxes by `_is_warm`, for a job that is already paid.

        If the files of the program's environment have changed, `_is_warm` refuses. The refusal then
        counts as a failure of the host (False).
        """
        try:
            return self._is_warm(limits, own)
        except Refused:
            return False

    def _stored_environment(self, own: str) -> OwnEnvironment | None:
        """Return a program's own environment, or None for an empty name; refuse an unknown name."""
        found = self._own.find(own)
        if own and found is None:
            raise missing_environment()
        return found

    def _stop_outdated(self, own: str) -> None:
        """Stop the sandboxes before a new job if their environment was removed or replaced."""
        found = self._stored_environment(own)
        if own == self._warm_with and found != self._own_environment:
            self._end()
        if found is not None:
            self._checked[own] = found.contents

    def _found(self, own: str) -> OwnEnvironment | None:
        """Return a program's own environment: as sandboxes have loaded it, or as it is on disk."""
        held = self._own_environment
        return held if held is not None and held.name == own else self._own.find(own)

    def _program_message(self, job: BlockJob | TrialJob) -> bytes:
        """Return a job's program as JSON for the sandbox, with its image's start settings."""
        found = self._found(job.own)
        if job.own and found is None:
            raise SandboxStopped
        keys = ("entry", "settings", "through", "folder")
        image = {key: getattr(found, key) for key in keys} if found else {}
        return json.dumps({**job.program, **image}).encode()

    def _end(self) -> None:
        for sandbox in self._sandboxes:
            sandbox.kill()
        self._sandboxes.clear()
        self._own_environment = None

    def _run_blocks(self, job: BlockJob) -> tuple[float, dict[int, Ran]] | None:
        """Run all blocks, with retries; return the start time and the results, or None on failure.

        Blocks start at the engine's fixed deadline, not when the engine is done. Programs can read
        the clock, so an earlier start would reveal how long the engine took.
        """
        if job.input_timing is not None:
            self._wait_out(job.input_timing.since, write_s(job.input_timing))
        with _in_memory(self._program_message(job)) as program:
            for _ in range(_RETRIES + 1):
                lanes = self.lanes(job.limits, job.own)
                if lanes < 1 or not self._is_still_warm(job.limits, job.own):
                    return None
                began = time.monotonic()
                try:
                    said = self._run_once(job, program, lanes, began)
                except _LateEnd:
                    self._end()
                    return None
                if said is not None:
                    return began, said
                self._end()
            return None

    def _run_once(
        self, job: BlockJob, program: int, lanes: int, began: float
    ) -> dict[int, Ran] | None:
        """Run every block of a job once, in parallel lanes; return None if the host failed one."""
        if job.limits.is_batch:
            until = began + batch_s(len(job.inputs), lanes, job.limits)
            return BlockBatch(job, program, until, self._restart).run(self._sandboxes[:lanes])
        with ThreadPoolExecutor(lanes) as threads:
            begun = [
                threads.submit(
                    self._run_lane, job, program, range(lane, len(job.inputs), lanes), began
                )
                for lane in range(lanes)
            ]
        heard = [lane.result() for lane in begun]
        said: dict[int, Ran] = {}
        for one in heard:
            if one is None:
                return None
            said |= one
        return said

    def _run_lane(
        self, job: BlockJob, program: int, blocks: range, began: float
    ) -> dict[int, Ran] | None:
        """Run the blocks of one processor, each at its fixed start time.

        Return None if the host failed a block or was late. Raise `_LateEnd` if a block that had to
        be stopped is the reason.
        """
        said: dict[int, Ran] = {}
        each = turn_s(job.limits, is_tree=_is_tree(job.own))
        for turn, block in enumerate(blocks):
            wait = began + turn * each - time.monotonic()
            if turn > 0 and wait < 0:
                if said[blocks[turn - 1]].ended != DONE:
                    raise _LateEnd
                return None
            self._sleep(max(0.0, wait))
            try:
                said[block] = self._run_block(blocks.start, program, job.inputs[block], job.limits)
            except BlockNotEnded:
                raise _LateEnd from None
            except (SandboxProcessEnded, OSError):
                return None
        return said

    def _run_block(self, lane: int, program: int, rows_path: str, limits: SandboxLimits) -> Ran:
        """Run one block, even with an empty input; kernel counters would reveal a skipped block."""
        rows = os.open(rows_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._sandboxes[lane].run(program, rows, limits)
        finally:
            os.close(rows)
