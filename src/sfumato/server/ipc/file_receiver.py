"""Files over the line, as the door takes them in: part by part, never whole in memory.

A refusal comes at any time; what is sent after it is thrown away. What the edge sends is in
`files`, which knows nothing of a desk: an edge holds no more of us than it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from sfumato.features.data_sets.upload_service import Incoming, Upload
from sfumato.server.dispatch import Dispatcher, check
from sfumato.server.ipc.file_sender import Stream
from sfumato.server.ipc.ipc_frames import MAX_PART, Frame, read_frame
from sfumato.server.ipc.worker_threads import Threads
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json
from sfumato.wire.verb_table import BY_VERB

SILENT_S: Final = 120.0  # between two parts
DRAINED_S: Final = 10.0  # that whoever was refused has to hear of it
SWEEP_S: Final = 600.0


class Receiver:
    """The door's side: takes files for owners."""

    def __init__(self, desk: Dispatcher) -> None:
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
