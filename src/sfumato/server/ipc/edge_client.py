"""The client in the HTTP process ("edge"): concurrent calls to the vault process ("door")."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path

from sfumato.dp.refusal import Refused
from sfumato.server.ipc.ipc_frames import MAX_HEADER, MAX_REQUEST, Frame, read_frame
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json


@dataclass(frozen=True)
class Answered:
    """A reply of the vault process: a refusal code or None, the raw JSON, and the user."""

    code: str | None
    body: bytes
    user: str = ""  # the token's user; "" without one


class DoorConnection:
    """A connection to the vault process ("door"), shared by all requests of this HTTP process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ids = itertools.count(1)
        self._waiting: dict[object, asyncio.Future[Answered]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._making = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def call(
        self, verb: str, *, token: str = "", place: str = "", params: Json, body: bytes = b""
    ) -> Answered:
        """Call an API verb in the vault process and return its reply.

        Refuse at once if it is down.
        """
        number = next(self._ids)
        header: Json = {
            "id": number, "verb": verb, "token": token, "place": place, "params": params,
        }  # fmt: skip
        frame = Frame(header, body).as_bytes()
        # refuse it here, because the door would close the connection for all users
        if len(frame) - len(body) > MAX_HEADER:
            raise bad_request("its address is too long")
        if len(body) > MAX_REQUEST:  # a form can grow beyond this as JSON
            raise Refused(
                "too-large",
                "The request is larger than 1 MB as JSON.",
                "Send a smaller request. Large data can be uploaded as a file.",
            )
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        try:
            writer = await self._connected()
            self._waiting[number] = future
            writer.write(frame)
            await writer.drain()
            return await future
        except OSError:
            pass
        finally:
            self._waiting.pop(number, None)
        raise service_down()

    def close(self) -> None:
        """Close the connection to the vault process."""
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._making:
            if self._writer is None or self._writer.is_closing():
                reader, self._writer = await asyncio.open_unix_connection(self.path)
                self._reading = asyncio.create_task(self._read(reader, self._writer))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await read_frame(reader)) is not None:
            future = self._waiting.pop(frame.header.get("id"), None)
            code = frame.header.get("code")
            if future is not None and not future.done():
                user = str(frame.header.get("user", ""))
                future.set_result(Answered(None if code is None else str(code), frame.body, user))
        writer.close()
        lost, self._waiting = self._waiting, {}
        for future in lost.values():
            if not future.done():
                future.set_exception(ConnectionResetError())


def service_down() -> Refused:
    """Return the refusal of a call while the vault process is down or starting."""
    return Refused(
        "service-down",
        "The service is starting, or was stopped while it handled your request.",
        "Ask again in a minute with the same operation id. A question is then charged only once.",
    )
