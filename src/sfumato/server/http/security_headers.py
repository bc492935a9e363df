"""Security headers on every reply, and a check of the request's host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.dp.refusal import Refused
from sfumato.server.http.json_replies import not_there, refusal_reply
from sfumato.wire.http_status import RETRY_AFTER_S

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
ALWAYS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
HSTS: Final = "max-age=31536000"
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]]+)(?::[0-9]{1,5})?")
_SLASH: Final = re.compile(rb"%(2f|00)", re.IGNORECASE)  # proxies parse these differently


class SecurityHeaders:
    """ASGI middleware that adds security headers, and refuses requests for other hosts."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], *, is_secure: bool) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)
        always = {**ALWAYS, "Strict-Transport-Security": HSTS} if is_secure else ALWAYS
        self._always = [(name.lower().encode(), value.encode()) for name, value in always.items()]
        self._names = frozenset(name for name, _ in self._always)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request if its host and path are allowed.

        Add security headers to the reply.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [pair for pair in message["headers"] if pair[0] not in self._names]
                message["headers"] = [*own, *self._always]
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                if message["status"] in RETRY_AFTER_S:  # for pages too
                    headers.setdefault("Retry-After", str(RETRY_AFTER_S[message["status"]]))
            await send(message)

        hosts = Headers(scope=scope).getlist("host")
        if _SLASH.search(scope["raw_path"]):
            await refusal_reply(not_there())(scope, receive, headed)
            return
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._hosts:
            await refusal_reply(_another_host())(scope, receive, headed)
            return
        await self._app(scope, receive, headed)


def _another_host() -> Refused:
    return Refused(
        "bad-request",
        "The request is addressed to a host name that this service does not accept.",
        "Use a host name of this service. Its operator adds one with `sfumato serve --name NAME`.",
    )


def _name_of(host: str) -> str:
    """Return the host name of a Host header in lower case, without the port.

    "" if it is invalid.
    """
    found = _HOST.fullmatch(host.casefold())
    return "" if found is None else found[1]


def is_loopback(host: str) -> bool:
    """Return True if the address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
