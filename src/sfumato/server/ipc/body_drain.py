"""What is left of a body that was refused: a little is read on, so that its sender hears why."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect

LISTENED: Final = 8 * 1024 * 1024


async def drain_body(parts: AsyncIterator[bytes]) -> None:
    """Read on for a while: to hang up on who still sends would lose the reply on its way."""
    size = 0
    with contextlib.suppress(ClientDisconnect, RuntimeError):
        async for part in parts:
            size += len(part)
            if size > LISTENED:
                return
