"""A relay in front of a service, which records the parts of uploads and can stop in the middle."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PART = re.compile(rb"PUT /(?:v1/)?uploads\?name=([0-9a-f]{64})&folder=")


@dataclass
class Relay:
    """Passes bytes on between clients and a service, until `most` bytes have gone to the service.

    Then it is stuck: connections stay open, and nothing more goes through. `is_stuck` is set.
    """

    target: str  # the service's address
    most: int | None = None
    parts: list[str] = field(default_factory=list)  # the names of parts, as their requests began
    is_stuck: threading.Event = field(default_factory=threading.Event)
    passed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def url(self) -> str:
        """Return the address for clients."""
        return f"http://localhost:{self.port}"

    def take(self, client: socket.socket) -> None:
        """Serve one connection."""
        place = urlsplit(self.target)
        service = socket.socket()
        with suppress(OSError), client, service:
            service.connect((place.hostname or "", place.port or 0))
            back = threading.Thread(target=self._back, args=(service, client), daemon=True)
            back.start()
            while piece := client.recv(1 << 16):
                if not self._may_pass(piece):
                    self.is_stuck.set()
                    back.join()
                    return
                service.sendall(piece)

    def _may_pass(self, piece: bytes) -> bool:
        with self.lock:
            self.parts += [found.decode() for found in _PART.findall(piece)]
            self.passed += len(piece)
            return self.most is None or self.passed <= self.most

    def _back(self, service: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := service.recv(1 << 16):
                client.sendall(piece)
        for one in (client, service):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(target: str, most: int | None = None) -> Iterator[Relay]:
    """Run a relay until the block ends."""
    relay = Relay(target, most)
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay.port = server.getsockname()[1]

        def listen() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=relay.take, args=(client,), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield relay
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
