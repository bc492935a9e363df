"""Run the blocks of a batch side by side, until all have ended or the job's time is over.

Nothing is fixed about a single block: when it starts and what runs beside it depend on the other
blocks. So a batch is only for programs that an owner has reviewed (soundness rule 27).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from sfumato.sandbox.ports import BlockJob
from sfumato.sandbox.sandbox_process import STALLED, Ran, SandboxProcess, SandboxProcessEnded

_RESTARTS: Final = 3  # how often a sandbox that ended is started again, in all lanes together


class BlockBatch:
    """One run of a job's blocks on several sandboxes."""

    def __init__(
        self,
        job: BlockJob,
        program: int,
        until: float,
        restart: Callable[[int], SandboxProcess],
    ) -> None:
        """Prepare the run; `restart` replaces the sandbox of a lane that the host has ended."""
        self._job, self._program, self._until, self._restart = job, program, until, restart
        self._waiting = deque((block, True) for block in range(len(job.inputs)))
        self._said: dict[int, Ran] = {}
        self._restarts, self._failed = _RESTARTS, False
        self._lock = threading.Lock()

    def run(self, sandboxes: Sequence[SandboxProcess]) -> dict[int, Ran] | None:
        """Return the results of the blocks that ended in time; None if the host failed the job."""
        with ThreadPoolExecutor(len(sandboxes)) as threads:
            lanes = [
                threads.submit(self._run_lane, lane, one) for lane, one in enumerate(sandboxes)
            ]
        for lane in lanes:
            lane.result()
        return None if self._failed else self._said

    def _run_lane(self, lane: int, sandbox: SandboxProcess) -> None:
        while (taken := self._next()) is not None:
            block, may_repeat = taken
            try:
                ran = self._run_block(sandbox, block)
            except (SandboxProcessEnded, OSError):
                with self._lock:  # the block runs again, on this lane or another
                    self._waiting.appendleft((block, may_repeat))
                    self._restarts -= 1
                    self._failed = self._failed or self._restarts < 0
                    if self._failed:
                        return
                try:
                    sandbox = self._restart(lane)
                except (SandboxProcessEnded, OSError):
                    with self._lock:
                        self._failed = True
                    return
                continue
            with self._lock:
                self._said[block] = ran
                if ran.ended == STALLED and may_repeat:  # the machine may have been too busy
                    self._waiting.append((block, False))

    def _next(self) -> tuple[int, bool] | None:
        with self._lock:
            if self._failed or time.monotonic() >= self._until or not self._waiting:
                return None
            return self._waiting.popleft()

    def _run_block(self, sandbox: SandboxProcess, block: int) -> Ran:
        """Run one block, which ends with the job at the latest."""
        left = max(0.0, self._until - time.monotonic())
        rows = os.open(self._job.inputs[block], os.O_RDONLY | os.O_CLOEXEC)
        try:
            return sandbox.run(self._program, rows, replace(self._job.limits, most_wall_s=left))
        finally:
            os.close(rows)
