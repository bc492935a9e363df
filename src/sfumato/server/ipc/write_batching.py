"""What goes out over one connection: all that is told in one turn of the loop goes in one call."""

from __future__ import annotations

import asyncio

from sfumato.server.ipc.ipc_frames import Frame


class WriteBatch:
    """The messages of one connection; used on the loop alone.

    Questions of one go end at once. A call of the system for each would wake the other end as often
    and hand the interpreter to another thread each time.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._parts: list[bytes] = []

    async def tell(self, frame: Frame) -> None:
        """Send the message, after those before it; wait while the other end takes none."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._send)
        self._parts.append(frame.as_bytes())
        await self._writer.drain()

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        self._writer.write(b"".join(parts))
