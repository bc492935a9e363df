"""Console sessions: the session cookie, CSRF tokens and origin checks."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sfumato.dp.refusal import Refused

# Browsers accept this prefix only from this host, for path / and over HTTPS.
COOKIE: Final = "__Host-sfumato"
DEVICE_COOKIE: Final = "__Host-sfumato-device"
HOURS_S: Final = 12 * 3600
YEAR_S: Final = 365 * 24 * 3600
_CSRF: Final = b"sfumato-csrf/1\n"
UNSAFE: Final = frozenset({"POST", "PUT", "DELETE", "PATCH"})


def token_of(request: Request) -> str:
    """Return the session token from the request's cookie, or ""."""
    return request.cookies.get(COOKIE, "")


def csrf_of(token: str) -> str:
    """Return the session's CSRF token: a hash, which does not reveal the session token."""
    return hashlib.sha256(_CSRF + token.encode()).hexdigest()


def check_csrf(token: str, sent: str) -> None:
    """Refuse a form whose CSRF token is not that of this session."""
    if not hmac.compare_digest(csrf_of(token).encode(), sent.encode()):
        raise from_elsewhere()


def check_origin(request: Request) -> None:
    """Refuse a request that another site's page sent (CSRF).

    `Sec-Fetch-Site` decides if the browser sends it: with `no-referrer`, even our own forms have
    `Origin: null`.
    """
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host')}"
    match request.headers.get("sec-fetch-site"):
        case None:
            is_ours = origin == own
        case "same-origin":
            is_ours = origin in (None, "null", own)
        case _:
            is_ours = False
    if not is_ours:
        raise from_elsewhere()


def from_elsewhere() -> Refused:
    """Return the refusal of a form that was not sent by a page of this session."""
    return Refused(
        "not-allowed",
        "This form did not come from a page of this session.",
        "Go back, reload the page, and send the form again.",
    )


def device_of(request: Request) -> str:
    """Return the cookie that proves an earlier sign-in from this browser, or ""."""
    return request.cookies.get(DEVICE_COOKIE, "")[:64]


def signed_in(reply: Response, token: str, device: str) -> Response:
    """Set the session cookie and the known-device cookie on the HTTP reply, and return it."""
    for name, value, age_s in ((COOKIE, token, HOURS_S), (DEVICE_COOKIE, device, YEAR_S)):
        reply.set_cookie(
            name, value, max_age=age_s, path="/", secure=True, httponly=True, samesite="strict"
        )
    return reply


def signed_out(reply: Response) -> Response:
    """Delete the session cookie, and tell the browser to clear its cache and storage."""
    reply.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    reply.headers["Clear-Site-Data"] = '"cache", "storage"'
    return reply
