"""A page of the console: its URL, its function, and the API verbs that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from sfumato.server.console.visit import Visit


@dataclass(frozen=True)
class Page:
    """One page or action of the console: an HTTP method and URL, and the function that replies."""

    method: str
    path: str
    shown: Callable[[Visit], Awaitable[Response]]
    verbs: tuple[str, ...] = ()
    is_open: bool = False  # no sign-in needed
    is_for_script: bool = False  # refusals are JSON
    takes_a_file: bool = False  # raw body; the CSRF token is in a header
