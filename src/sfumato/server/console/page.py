"""A page: its address, the function that makes it, and the verbs without which it is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from sfumato.server.console.visit import Visit


@dataclass(frozen=True)
class Page:
    """One address of the console."""

    method: str
    path: str
    shown: Callable[[Visit], Awaitable[Response]]
    verbs: tuple[str, ...] = ()
    is_open: bool = False  # nobody is asked who they are
    is_for_script: bool = False  # its refusals are JSON
    takes_a_file: bool = False  # as it is, with the session's mark in a header
