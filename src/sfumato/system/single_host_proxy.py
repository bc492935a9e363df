"""An HTTP proxy on this machine that connects to one server only.

A client library that follows redirects sends every request through it, so no answer of the server
can lead it to another host. The server's name is resolved once. Addresses of the local network
segment, where clouds hand out credentials, are not used unless the server is named by one.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import re
import socket
import threading
from dataclasses import dataclass, field
from typing import Final

from sfumato.system.randomness import SystemRandomSource

CONNECT_S: Final = 15.0
_MAX_HEAD: Final = 1 << 16
_PIECE: Final = 1 << 16
_AUTHORIZATION: Final = b"proxy-authorization:"
_OWN: Final = re.compile(rb"(?i)(?:proxy-[a-z-]+|connection):")  # headers that are not passed on
# where Amazon's machines get credentials by IPv6; its address by IPv4 is link-local
_METADATA: Final = frozenset({ipaddress.ip_address("fd00:ec2::254")})


def usable_addresses(host: str, *, is_local: bool) -> tuple[str, ...]:
    """Return the IP addresses of a server that may be contacted.

    Args:
        host: Its name or IP address.
        is_local: True for a server that has to be on this machine.
    """
    found: list[str] = []
    with contextlib.suppress(OSError, UnicodeError):
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = [str(info[4][0]) for info in infos]
    return tuple(dict.fromkeys(one for one in found if _is_usable(one, host, is_local=is_local)))


def _is_usable(address: str, host: str, *, is_local: bool) -> bool:
    read = ipaddress.ip_address(address)
    mapped = getattr(read, "ipv4_mapped", None)
    read = mapped if mapped is not None else read
    if is_local:
        return read.is_loopback
    is_odd = read.is_link_local or read.is_multicast or read.is_unspecified or read in _METADATA
    return address == host or not is_odd


@dataclass
class SingleHostProxy:
    """The proxy: the server that it connects to, and what went wrong."""

    scheme: str
    host: str
    port: int
    password: str = field(default_factory=lambda: SystemRandomSource().draw(16).hex(), repr=False)
    is_led_away: bool = False  # True: a request for another host was refused
    is_unreachable: bool = False
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Listen on a free port of this machine."""
        self.addresses = usable_addresses(self.host, is_local=self.scheme == "http")
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def options(self) -> dict[str, object]:
        """Return the address and the password of the proxy, as PyArrow takes them."""
        port = self._listening.getsockname()[1]
        named = {"username": "sfumato", "password": self.password}
        return {"scheme": "http", "host": "127.0.0.1", "port": port, **named}

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head, rest = _head_of(client)
            begin = self._begin(head)
            server = None if begin is None else self._connected()
            if server is None or begin is None:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            with server:
                if begin:
                    server.sendall(begin + rest)
                else:  # a tunnel, in which the client talks TLS to the server itself
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()

    def _begin(self, head: bytes) -> bytes | None:
        """Return the head to send to the server, empty for a tunnel; None for another host."""
        line, *headers = head.split(b"\r\n")
        method, target, version = (*line.split(b" "), b"", b"")[:3]
        if not self._is_ours(headers):
            return None
        if self.scheme == "https":
            is_right = method == b"CONNECT" and target.lower() == self._named(is_full=True)
            self.is_led_away |= not is_right
            return b"" if is_right else None
        for named in (self._named(is_full=True), self._named(is_full=False)):
            before = b"http://" + named
            if target.lower().startswith(before + b"/"):
                kept = [one for one in headers if not _OWN.match(one)]
                line = b" ".join((method, target[len(before) :], version))
                return b"\r\n".join((line, b"Connection: close", *kept)) + b"\r\n\r\n"
        self.is_led_away = True
        return None

    def _is_ours(self, headers: list[bytes]) -> bool:
        """Return True if the client knows the password: others on this machine do not."""
        known = base64.b64encode(f"sfumato:{self.password}".encode())
        found = [one for one in headers if one.lower().startswith(_AUTHORIZATION)]
        sent = [one.partition(b":")[2].strip() for one in found]
        return len(sent) == 1 and hmac.compare_digest(sent[0], b"Basic " + known)

    def _named(self, *, is_full: bool) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default = self.port == (443 if self.scheme == "https" else 80)
        text = f"{host}:{self.port}" if is_full or not is_default else host
        return text.lower().encode()

    def _connected(self) -> socket.socket | None:
        for address in self.addresses:
            with contextlib.suppress(OSError):
                made = socket.create_connection((address, self.port), CONNECT_S)
                made.settimeout(None)
                return made
        self.is_unreachable = True
        return None


def _head_of(client: socket.socket) -> tuple[bytes, bytes]:
    """Read the head of a request; return it and the bytes behind it."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = client.recv(_PIECE)
        if not piece or len(text) > _MAX_HEAD:
            raise ConnectionResetError
        text += piece
    head, _, rest = text.partition(b"\r\n\r\n")
    return head, rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side ends, and end the other."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
