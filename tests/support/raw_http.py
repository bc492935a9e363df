"""Requests byte by byte, as no decent client sends them."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from support.served_vault import Service


@dataclass
class Raw:
    """One connection."""

    link: socket.socket

    def send(self, data: bytes) -> None:
        """Send bytes; that the other end hung up shows when reading."""
        with suppress(OSError):
            self.link.sendall(data)

    def rest(self, timeout_s: float = 10) -> bytes:
        """Return everything until the other end hangs up or says nothing more."""
        self.link.settimeout(timeout_s)
        parts = []
        try:
            while part := self.link.recv(65536):
                parts.append(part)
        except OSError:
            pass
        return b"".join(parts)

    def is_open(self) -> bool:
        """Say whether the other end has not hung up yet, whatever it has said."""
        poll = select.poll()
        poll.register(self.link, select.POLLRDHUP)
        return not poll.poll(0)

    def ended_within(self, seconds: float) -> float | None:
        """Return after how long the other end hung up, or None."""
        begun = time.monotonic()
        self.rest(seconds)
        passed = time.monotonic() - begun
        return passed if passed < seconds else None


@contextmanager
def raw(service: Service) -> Iterator[Raw]:
    """Open a connection to the service."""
    port = urlsplit(service.url).port
    with socket.create_connection(("127.0.0.1", port or 80), timeout=10) as link:
        yield Raw(link)


def replies(service: Service, data: bytes, timeout_s: float = 10) -> list[int]:
    """Return the statuses of all replies to these bytes, until the other end hangs up."""
    with raw(service) as opened:
        opened.send(data)
        return statuses(opened.rest(timeout_s))


def statuses(said: bytes) -> list[int]:
    """Return the status of every reply in what was said."""
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", said)]


def request(
    method: str, target: str, *headers: str, body: bytes = b"", host: str = "localhost"
) -> bytes:
    """Return a request; a body has its length, unless a header says it otherwise."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    if not any(header.startswith("Connection:") for header in headers):
        lines.append("Connection: close")
    if body and not any("-length" in h.lower() or "-encoding" in h.lower() for h in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
