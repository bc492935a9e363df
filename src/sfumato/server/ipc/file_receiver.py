"""Receive uploaded files in the vault process, in chunks and never whole in memory.

A refusal may come at any time; later chunks are dropped. The HTTP process's side is in
`file_sender`, which imports nothing of the services, so that the HTTP process stays small.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from sfumato.features.data_sets.folder_upload_service import IncomingPart
from sfumato.features.data_sets.upload_service import Incoming, Upload
from sfumato.server.dispatch import Dispatcher, check
from sfumato.server.ipc.file_sender import Stream
from sfumato.server.ipc.ipc_frames import MAX_PART, Frame, read_frame
from sfumato.server.ipc.worker_threads import Threads
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json
from sfumato.wire.verb_table import BY_NAME

SILENT_S: Final = 120.0  # the longest pause between two parts, in seconds
DRAINED_S: Final = 10.0  # how long a refused sender may take to read the reply, in seconds
SWEEP_S: Final = 600.0


class Receiver:
    """Receives the files that owners upload."""

    def __init__(self, desk: Dispatcher) -> None:
        self._desk = desk
        self._threads = Threads(4, "files")

    async def sweep(self) -> None:
        """Delete old uploads periodically, until cancelled."""
        while True:
            with contextlib.suppress(OSError):
                await self._threads.done(self._desk.uploads.sweep)
                await self._threads.done(self._desk.folders.sweep)
                await self._threads.done(self._desk.adding.sources.repositories.sweep)
                await self._threads.done(self._desk.adding.sources.stores.sweep)
            await asyncio.sleep(SWEEP_S)

    async def received(self, token: str, params: Json, stream: Stream) -> Json:
        """Receive a whole uploaded file, or a part of a folder, and describe it.

        After a refusal, delete what was received.
        """
        reader, writer = stream
        caller = await self._threads.done(self._desk.admitted, "upload", token)
        if caller is None:
            raise bad_request("an upload of nobody's")
        check(caller, str(BY_NAME["upload"].action), None)
        name, size = params.get("name"), params.get("bytes")
        folder = params.get("folder")
        if not isinstance(name, str) or not isinstance(size, int | None):
            raise bad_request("a file is sent with its name")
        incoming: Incoming | IncomingPart
        if isinstance(folder, str):
            begin_part = self._desk.folders.begin_part
            incoming = await self._threads.done(begin_part, caller, folder, name, size)
        else:
            incoming = await self._threads.done(self._desk.uploads.begin, caller, name, size)
        kept: Upload | None = None
        try:
            writer.write(Frame({"go": True}).as_bytes())
            await self._taken(incoming, reader)
            # is the token still valid?
            await self._threads.done(self._desk.admitted, "upload", token)
            kept = await self._threads.done(incoming.kept)
        finally:
            incoming.end(is_kept=kept is not None)
        return {"upload": kept.id, "name": kept.name, "bytes": kept.size, "until": kept.until}

    async def _taken(self, incoming: Incoming | IncomingPart, reader: asyncio.StreamReader) -> None:
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
    """Read and drop the chunks of a file that still arrive after a refusal.

    So the sender can read the reply before the connection closes.
    """
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(DRAINED_S):
            while await reader.read(MAX_PART):
                pass
