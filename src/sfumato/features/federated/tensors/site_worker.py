"""A process that computes with tensors for one caller of a site: two pipes, and nothing else.

It has no row of the site and no key, opens no file once it has begun, and ends when nobody holds
the other end of its pipe, or nothing was asked for long. Frames: eight bytes with the lengths of a
header (JSON) and of a body, then both.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from collections import OrderedDict
from typing import Any, Final

LENGTHS: Final = struct.Struct("<II")
MOST_SESSIONS: Final = 64
MOST_HEADER: Final = 1 << 20


class Voice:
    """The two pipes; has state."""

    def __init__(self) -> None:
        self._read, self._write = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)

    def heard(self, idle_s: float) -> tuple[dict[str, Any], bytes]:
        """Return the next frame; end where there is none, or it takes too long to come."""
        signal.alarm(max(1, int(idle_s)))  # which ends the process; to poll needs a descriptor
        header, body = LENGTHS.unpack(self._exactly(LENGTHS.size))
        if header > MOST_HEADER:
            sys.exit(1)
        frame = json.loads(self._exactly(header)), self._exactly(body)
        signal.alarm(0)
        return frame

    def say(self, body: bytes) -> None:
        """Send an answer."""
        for part in (LENGTHS.pack(2, len(body)) + b"{}", body):
            view = memoryview(part)
            while view:
                view = view[os.write(self._write, view) :]

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            part = os.read(self._read, min(count, 1 << 20))
            if not part:
                sys.exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Sessions:
    """What each of a caller's connections has sent so far, and was told last; has state.

    A message whose reply was lost is sent again under its number, and done once.
    """

    def __init__(self, store: Any, most_bytes: int) -> None:  # Any: a SiteStore
        self._store = store
        self._most_bytes = most_bytes
        self._parts: dict[str, bytearray] = {}
        self._last: OrderedDict[str, tuple[int, bytes | None]] = OrderedDict()

    def answer(self, header: dict[str, Any], body: bytes) -> bytes:
        """Return what a message is answered with."""
        session, number = str(header["session"]), int(header["number"])
        last, kept = self._last.get(session, (0, b""))
        if number < last or (number == last and kept is None):
            return _late()
        if number == last:
            return kept or b""
        del kept
        self._last[session] = last, None  # whoever goes on has heard it
        reply = self._said(session, header, body)
        self._last[session] = (number, reply)
        self._last.move_to_end(session)
        while len(self._last) > MOST_SESSIONS:
            gone, _ = self._last.popitem(last=False)
            self._parts.pop(gone, None)
        self._keep_few()
        return reply

    def _keep_few(self) -> None:
        """Let go of the oldest replies where all together are too large."""
        held = sum(len(reply or b"") for _, reply in self._last.values())
        for session, (number, reply) in list(self._last.items()):
            if held <= self._most_bytes:
                break
            held -= len(reply or b"")
            self._last[session] = (number, None)

    def _said(self, session: str, header: dict[str, Any], body: bytes) -> bytes:
        if header.get("table") is not None:
            name, rows, columns = header["table"]
            return bytes(self._store.declare(str(name), int(rows), tuple(map(str, columns))))
        parts = self._parts.setdefault(session, bytearray())
        if sum(map(len, self._parts.values())) + len(body) > self._most_bytes:
            self._parts.clear()
            body, header = b"", {"more": False}  # which is answered as no message
        else:
            parts += body
        if header.get("more"):
            return b""
        whole = bytes(self._parts.pop(session, b""))
        return bytes(self._store.handle(whole))


def _late() -> bytes:
    """Return the refusal of a message that was answered, and whose reply is not kept."""
    from sfumato.features.federated.tensors.tensor_messages import encode, malformed

    refusal = malformed("it has answered the message before, and does it once")
    return encode({"refused": [refusal.code, refusal.cause, refusal.next_step]})


def main() -> None:
    """Serve until the parent hangs up."""
    voice = Voice()
    start, _ = voice.heard(60.0)
    most = int(start["memory_mb"]) << 20
    from sfumato.features.federated.tensors.site_store import SiteStore

    _warm()
    _seclude(most)
    sessions = Sessions(SiteStore(most), most)
    while True:
        header, body = voice.heard(float(start["idle_s"]))
        voice.say(sessions.answer(header, body))


def _warm() -> None:
    """Let PyTorch bring in what it brings in late, while files can still be opened."""
    import torch

    torch.set_num_threads(1)
    for device in ("cpu", "meta"):
        x = torch.ones(4, 4, device=device, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(x @ x, (x.detach()[:, 0] * 0).long())
        loss.backward()


def _space() -> int:
    """Return the address space that the interpreter and PyTorch take, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as told:
        return int(told.read().split()[0]) * resource.getpagesize()


def _seclude(most: int) -> None:
    """Let it have so much memory, start nothing, and open nothing any more."""
    os.nice(10)  # whoever asks the site a question goes first
    space = most * _OVER + _space()
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


_OVER: Final = 3  # what an operation needs beside what it leaves
