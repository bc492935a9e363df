"""Who is at the browser: the session's cookie, and proof that a form came from a page of ours."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sfumato.dp.refusal import Refused

# The prefix makes browsers refuse it from any other host, path or unencrypted page.
COOKIE: Final = "__Host-sfumato"
DEVICE_COOKIE: Final = "__Host-sfumato-device"
HOURS_S: Final = 12 * 3600
YEAR_S: Final = 365 * 24 * 3600
_CSRF: Final = b"sfumato-csrf/1\n"
UNSAFE: Final = frozenset({"POST", "PUT", "DELETE", "PATCH"})


def token_of(request: Request) -> str:
    """Return the session's token, or nothing."""
    return request.cookies.get(COOKIE, "")


def csrf_of(token: str) -> str:
    """Return what every form of the session carries; it tells nothing of the token."""
    return hashlib.sha256(_CSRF + token.encode()).hexdigest()


def check_csrf(token: str, sent: str) -> None:
    """Refuse a form that was not made for this session."""
    if not hmac.compare_digest(csrf_of(token).encode(), sent.encode()):
        raise from_elsewhere()


def check_origin(request: Request) -> None:
    """Refuse what another site's page has sent; a browser says whose page it was.

    With `no-referrer` a form of our own says `Origin: null`, so `Sec-Fetch-Site` decides where
    there is one.
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
    """Return the refusal of a form that no page of ours has sent."""
    return Refused(
        "not-allowed",
        "This form did not come from a page of this session.",
        "Go back, load the page anew, and send it again.",
    )


def device_of(request: Request) -> str:
    """Return the proof that the browser has signed in before, or nothing."""
    return request.cookies.get(DEVICE_COOKIE, "")[:64]


def signed_in(reply: Response, token: str, device: str) -> Response:
    """Return the reply, which hands the browser its session and the proof of a known device."""
    for name, value, age_s in ((COOKIE, token, HOURS_S), (DEVICE_COOKIE, device, YEAR_S)):
        reply.set_cookie(
            name, value, max_age=age_s, path="/", secure=True, httponly=True, samesite="strict"
        )
    return reply


def signed_out(reply: Response) -> Response:
    """Return the reply, which takes the session away, and all that the browser has kept of it."""
    reply.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    reply.headers["Clear-Site-Data"] = '"cache", "storage"'
    return reply
