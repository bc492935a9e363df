"""Files over the line: each on a connection of its own, part by part, never whole in memory.

The door says first whether it wants the file. A refusal comes at any time; what is sent after it
is thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from sfumato.faces.desk import Desk, check
from sfumato.faces.line.edge_end import Answered, service_down
from sfumato.faces.line.frames import MAX_PART, Frame, read_frame
from sfumato.faces.line.threads import Threads
from sfumato.services.uploads import Incoming, Upload
from sfumato.wire import BY_VERB, Json, bad_request

SILENT_S: Final = 120.0  # between two parts
DRAINED_S: Final = 10.0  # that whoever was refused has to hear of it
SWEEP_S: Final = 600.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Receiver:
    """The door's side: takes files for owners."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._threads = Threads(4, "files")

    async def sweep(self) -> None:
        """Remove what is too old, again and again, until cancelled."""
        while True:
            with contextlib.suppress(OSError):
                await self._threads.done(self._desk.uploads.sweep)
            await asyncio.sleep(SWEEP_S)

    async def received(self, token: str, params: Json, stream: Stream) -> Json:
        """Return what became of the file, once it is here whole; or refuse, and keep nothing."""
        reader, writer = stream
        caller = await self._threads.done(self._desk.admitted, "upload", token)
        if caller is None:
            raise bad_request("an upload of nobody's")
        check(caller, str(BY_VERB["upload"].action), None)
        name, size = params.get("name"), params.get("bytes")
        if not isinstance(name, str) or not isinstance(size, int | None):
            raise bad_request("a file is sent with its name")
        incoming = await self._threads.done(self._desk.uploads.begin, caller, name, size)
        kept: Upload | None = None
        try:
            writer.write(Frame({"go": True}).as_bytes())
            await self._taken(incoming, reader)
            await self._threads.done(self._desk.admitted, "upload", token)  # it is still good
            kept = await self._threads.done(incoming.kept)
        finally:
            incoming.end(is_kept=kept is not None)
        return {"upload": kept.id, "name": kept.name, "bytes": kept.size, "until": kept.until}

    async def _taken(self, incoming: Incoming, reader: asyncio.StreamReader) -> None:
        while True:
            part = None
            with contextlib.suppress(TimeoutError):
                part = await asyncio.wait_for(read_frame(reader, MAX_PART), SILENT_S)
            if part is None:
                raise bad_request("the file broke off before its end")
            if part.header.get("end"):
                return
            await self._threads.done(incoming.take, part.body)


async def drained(reader: asyncio.StreamReader) -> None:
    """Throw away what still comes, so that the answer is heard before the line is closed."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(DRAINED_S):
            while await reader.read(MAX_PART):
                pass


async def send_file(path: Path, header: Json, parts: AsyncIterator[bytes]) -> Answered:
    """Return the door's answer to a file; the edge's side. It keeps no part of it."""
    stream: Stream | None = None
    with contextlib.suppress(OSError):
        stream = await asyncio.open_unix_connection(path)
    if stream is None:
        raise service_down()
    reader, writer = stream
    try:
        return await _sent(reader, writer, header, parts)
    finally:
        writer.close()


async def _sent(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    header: Json,
    parts: AsyncIterator[bytes],
) -> Answered:
    writer.write(Frame({**header, "verb": "upload"}).as_bytes())
    first = await read_frame(reader)
    if first is None or "go" not in first.header:
        return _answered(first)
    answer = asyncio.create_task(read_frame(reader))
    try:
        with contextlib.suppress(ConnectionError):
            await _all_sent(writer, parts, answer.done)
        return _answered(await answer)
    finally:
        answer.cancel()


async def _all_sent(
    writer: asyncio.StreamWriter, parts: AsyncIterator[bytes], is_refused: Callable[[], bool]
) -> None:
    async for part in parts:
        for begin in range(0, len(part), MAX_PART):
            writer.write(Frame({}, part[begin : begin + MAX_PART]).as_bytes())
        await writer.drain()
        if is_refused():
            return
    writer.write(Frame({"end": True}).as_bytes())
    await writer.drain()


def _answered(frame: Frame | None) -> Answered:
    if frame is None:
        raise service_down()
    code = frame.header.get("code")
    return Answered(None if code is None else str(code), frame.body)
