"""Manage the tensor processes of a site: one child process per token.

Only the child processes import PyTorch, so a service without tensors uses no more memory.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.features.federated.tensors.site_worker import LENGTHS
from sfumato.system.child_process import ChildProcess

MAX_REPLY: Final = 128 << 20
OF_ONE_USER: Final = 2
Caller = tuple[str, str]  # the user's name, and the id of their token


@dataclass(frozen=True)
class RoomLimits:
    """Limits on the memory, time and number of tensor processes."""

    rooms: int = 4
    memory_mb: int = 256
    idle_s: float = 1800.0
    answer_s: float = 60.0
    start_s: float = 300.0


class TensorProcesses:
    """The running tensor processes of a site: one for each user's token."""

    def __init__(self, limits: RoomLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._open: dict[Caller, _Room] = {}

    def say(self, caller: Caller, header: Mapping[str, Any], body: bytes) -> bytes:
        """Send a message to the caller's tensor process, and return the reply; or refuse.

        A caller without a process gets a new one, within the limits.
        """
        room = self._room(caller)
        with room.lock:
            answer = room.ask(header, body)
        if answer is None:
            self._close(caller, room)
            raise Refused(
                "remote-refused",
                "Your tensor worker was stopped, because it took too much time or memory. All "
                "its tensors are gone.",
                "Send your tensors again, and use smaller ones or fewer operations at once.",
            )
        return answer

    def close(self) -> None:
        """Terminate all tensor processes."""
        with self._lock:
            rooms, self._open = list(self._open.values()), {}
        for room in rooms:
            room.end()

    def _room(self, caller: Caller) -> _Room:
        with self._lock:
            for key in [key for key, room in self._open.items() if not room.is_alive()]:
                self._open.pop(key).end()
            found = self._open.get(caller)
            if found is None:
                own = sum(user == caller[0] for user, _ in self._open)
                if len(self._open) >= self._limits.rooms or own >= OF_ONE_USER:
                    raise Refused(
                        "too-many",
                        "The service or you have as many tensor workers at once as are allowed.",
                        "Try again when one of them has been idle for a while, or use a token "
                        "that already has a worker.",
                    )
                found = self._open[caller] = _Room(self._limits)
            return found

    def _close(self, caller: Caller, room: _Room) -> None:
        with self._lock:
            if self._open.get(caller) is room:
                del self._open[caller]
        room.end()


class _Room(ChildProcess):
    """One caller's tensor process at a site, and the two pipes to it."""

    def __init__(self, limits: RoomLimits) -> None:
        self.lock = threading.Lock()
        self._limits = limits
        self._has_begun = False
        super().__init__("features.federated.tensors.site_worker")

    def is_alive(self) -> bool:
        """Return True if the process still runs."""
        return self._process.poll() is None

    def ask(self, header: Mapping[str, Any], body: bytes) -> bytes | None:
        """Send a message to the tensor process, and return its reply.

        Returns None after a failure or timeout; then the process is unusable.
        """
        within = self._limits.answer_s if self._has_begun else self._limits.start_s
        until = time.monotonic() + within
        try:
            if not self._has_begun:
                limits = {"memory_mb": self._limits.memory_mb, "idle_s": self._limits.idle_s}
                self._send(limits, b"", until)
            self._send(header, body, until)
            answer = self._answer(until)
        except (OSError, ValueError, EOFError):
            return None
        self._has_begun = True
        return answer

    def end(self) -> None:
        """Kill the process and close the pipes."""
        self._process.kill()
        self._process.wait()
        self.let_go()

    def _send(self, header: Mapping[str, Any], body: bytes, until: float) -> None:
        text = json.dumps(header).encode()
        self.write(LENGTHS.pack(len(text), len(body)) + text + body, until)

    def _answer(self, until: float) -> bytes:
        header, body = LENGTHS.unpack(self.read(LENGTHS.size, until))
        if header + body > MAX_REPLY:
            raise ValueError
        return self.read(header + body, until)[header:]
