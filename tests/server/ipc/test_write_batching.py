"""What ends at once goes out in one call, whole and in order."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from sfumato.server.ipc.door_server import WriteBatch
from sfumato.server.ipc.ipc_frames import Frame, read_frame

WAIT_S = 60


async def over_a_line(folder: Path, told: list[list[Frame]], writes: list[int]) -> list[Frame]:
    """Return what is heard of groups of messages, each group told at once; note the calls."""

    async def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.write

        def noted(data: Any) -> None:  # Any: whatever a writer takes
            writes.append(len(data))
            plain(data)

        writer.write = noted  # type: ignore[method-assign]  # the real one is called
        outgoing = WriteBatch(writer)
        for some in told:
            await asyncio.gather(*map(outgoing.tell, some))
            await asyncio.sleep(0)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(tell, folder / "line")
    async with server:
        reader, writer = await asyncio.open_unix_connection(folder / "line")
        heard = []
        while (frame := await read_frame(reader)) is not None:
            heard.append(frame)
        writer.close()
        return heard


def test_what_is_told_at_once_is_one_call(tmp_path: Path) -> None:
    writes: list[int] = []
    groups = [[Frame({"id": 3 * g + n}, b"x" * n) for n in range(3)] for g in range(2)]
    heard = asyncio.run(asyncio.wait_for(over_a_line(tmp_path, groups, writes), WAIT_S))
    assert heard == [one for some in groups for one in some]
    assert writes == [sum(len(one.as_bytes()) for one in some) for some in groups]


def test_large_messages_arrive_whole(tmp_path: Path) -> None:
    groups = [[Frame({"id": n}, bytes([n]) * 3_000_000) for n in range(4)]]
    heard = asyncio.run(asyncio.wait_for(over_a_line(tmp_path, groups, []), WAIT_S))
    assert heard == groups[0]


@pytest.mark.parametrize("told", [1, 20])
def test_who_hangs_up_is_told_nothing_and_nobody_is_hurt(tmp_path: Path, told: int) -> None:
    async def run() -> int:
        ended = asyncio.Event()
        calls = 0

        async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            outgoing = WriteBatch(writer)
            assert await read_frame(reader) is None
            for n in range(told):
                with contextlib.suppress(ConnectionError):
                    await outgoing.tell(Frame({"id": n}, b"late"))
                calls += 1
                await asyncio.sleep(0)
            writer.close()
            ended.set()

        server = await asyncio.start_unix_server(tell, tmp_path / "line")
        async with server:
            _, writer = await asyncio.open_unix_connection(tmp_path / "line")
            writer.close()
            await asyncio.wait_for(ended.wait(), WAIT_S)
        return calls

    assert asyncio.run(run()) == told
