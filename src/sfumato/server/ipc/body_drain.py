"""Read and drop a refused request body, so that the client receives the refusal."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect

LISTENED: Final = 8 * 1024 * 1024


async def drain_body(parts: AsyncIterator[bytes]) -> None:
    """Read and drop up to 8 MB of a request body, so that the client receives the refusal.

    If the server closed while the client still sends, the reply would be lost.
    """
    size = 0
    with contextlib.suppress(ClientDisconnect, RuntimeError):
        async for part in parts:
            size += len(part)
            if size > LISTENED:
                return
