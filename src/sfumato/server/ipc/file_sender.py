"""Send uploaded files from the HTTP process to the vault process, in chunks.

Each file has a connection of its own. The vault process first says whether it accepts the file
(`file_receiver`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from sfumato.server.ipc.edge_client import Answered, service_down
from sfumato.server.ipc.ipc_frames import MAX_PART, Frame, read_frame
from sfumato.wire.query_json import Json

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def send_file(path: Path, header: Json, parts: AsyncIterator[bytes]) -> Answered:
    """Send an uploaded file to the vault process in chunks, storing none; return the reply."""
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
