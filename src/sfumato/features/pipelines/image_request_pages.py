"""The console page of images: researchers ask for one by its digest, and operators decide."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit


async def images(visit: Visit) -> Response:
    """Show the requests for images: all to an operator, to anybody else their own."""
    return await _page(visit, None)


async def ask(visit: Visit) -> Response:
    """Ask for an image, and show the page again."""
    sent = visit.form
    body = {"image": sent.text("image"), "why": sent.text("why")}
    made, refused = await visit.tried("request-image", lambda: body)
    return visit.go("/images#requests") if made is not None else await _page(visit, refused)


async def decide(visit: Visit) -> Response:
    """Accept or decline a request as operator; nothing is pulled by it."""
    sent = visit.form
    body = {
        "request": visit.at("request"),
        "state": "accepted" if sent.text("do") == "accept" else "declined",
        "reason": sent.text("reason"),
    }
    made, refused = await visit.tried("decide-image-request", lambda: body)
    return visit.go("/images#requests") if made is not None else await _page(visit, refused)


async def _page(visit: Visit, refused: Refused | None) -> Response:
    found = (await visit.call("image-requests"))["requests"]
    return visit.page(
        "images.html",
        refused,
        requests=sorted(found, key=lambda one: one["state"] != "waiting"),
        form=visit.form,
    )


_SHOWN: Final = ("image-requests", "request-image", "decide-image-request")
PAGES: Final = (
    Page("GET", "/images", images, _SHOWN),
    Page("POST", "/images", ask, _SHOWN),
    Page("POST", "/images/{request}", decide, _SHOWN),
)
