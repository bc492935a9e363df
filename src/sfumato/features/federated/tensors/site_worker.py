"""A process that computes with tensors for one caller of a site, over two pipes.

It has no row of the site and no key, and opens no file after startup. It exits when the parent
closes the pipe, or after a long idle time. Frame format: eight bytes with the lengths of a JSON
header and a body, then both.
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
MAX_SESSIONS: Final = 64
MAX_HEADER: Final = 1 << 20


class Pipes:
    """The two pipes to the parent process: for requests and for replies."""

    def __init__(self) -> None:
        self._read, self._write = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)

    def heard(self, idle_s: float) -> tuple[dict[str, Any], bytes]:
        """Return the next request, header and body; exit if the pipe closes or the time is over."""
        signal.alarm(max(1, int(idle_s)))  # ends the process; polling needs a descriptor
        header, body = LENGTHS.unpack(self._exactly(LENGTHS.size))
        if header > MAX_HEADER:
            sys.exit(1)
        frame = json.loads(self._exactly(header)), self._exactly(body)
        signal.alarm(0)
        return frame

    def say(self, body: bytes) -> None:
        """Send the body of a reply to the parent process."""
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
    """The message state of each client connection: its partial message, last number and last reply.

    A client resends a message with the same number if its reply was lost. The message is executed
    once.
    """

    def __init__(self, store: Any, most_bytes: int) -> None:  # Any: a SiteStore
        self._store = store
        self._most_bytes = most_bytes
        self._parts: dict[str, bytearray] = {}
        self._last: OrderedDict[str, tuple[int, bytes | None]] = OrderedDict()

    def answer(self, header: dict[str, Any], body: bytes) -> bytes:
        """Return the reply to a message; a repeated number gets the stored reply."""
        session, number = str(header["session"]), int(header["number"])
        last, kept = self._last.get(session, (0, b""))
        if number < last or (number == last and kept is None):
            return _late()
        if number == last:
            return kept or b""
        del kept
        # the client sends a higher number only after it has received the last reply
        self._last[session] = last, None
        reply = self._said(session, header, body)
        self._last[session] = (number, reply)
        self._last.move_to_end(session)
        while len(self._last) > MAX_SESSIONS:
            gone, _ = self._last.popitem(last=False)
            self._parts.pop(gone, None)
        self._keep_few()
        return reply

    def _keep_few(self) -> None:
        """Drop the oldest stored replies until all of them together fit the memory limit."""
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
            body, header = b"", {"more": False}  # an empty message is refused
        else:
            parts += body
        if header.get("more"):
            return b""
        whole = bytes(self._parts.pop(session, b""))
        return bytes(self._store.handle(whole))


def _late() -> bytes:
    """Return the refusal for a repeated message whose stored reply was dropped."""
    from sfumato.features.federated.tensors.tensor_messages import encode, malformed

    refusal = malformed("it has already answered this message, and answers only once")
    return encode({"refused": [refusal.code, refusal.cause, refusal.next_step]})


def main() -> None:
    """Serve requests until the parent closes the pipe, or the idle time is over."""
    voice = Pipes()
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
    """Make PyTorch load its lazy modules while files can still be opened."""
    import torch

    torch.set_num_threads(1)
    for device in ("cpu", "meta"):
        x = torch.ones(4, 4, device=device, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(x @ x, (x.detach()[:, 0] * 0).long())
        loss.backward()


def _space() -> int:
    """Return the process's current address space in bytes, to which its memory limit is added."""
    with open("/proc/self/statm", encoding="ascii") as told:
        return int(told.read().split()[0]) * resource.getpagesize()


def _seclude(most: int) -> None:
    """Confine this process: limit its memory; forbid new processes, file writes and descriptors."""
    os.nice(10)  # give queries to the site a higher priority
    space = most * _OVER + _space()
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


_OVER: Final = 3  # the temporary memory of an operation, as a multiple of its result
