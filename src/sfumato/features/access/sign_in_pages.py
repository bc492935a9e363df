"""Coming in and going out: the sign-in form, the welcome link, signing out."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.page import Page
from sfumato.server.console.session import device_of, signed_in, signed_out
from sfumato.server.console.visit import Visit, safe_path

HOMES: Final = (("read", "/data-sets"), ("operate", "/users"), ("audit", "/releases"))


async def first(visit: Visit) -> Response:
    """Send whoever is signed in to where their work begins."""
    known = [path for action, path in HOMES if visit.may(action)]
    if known[1:] and await _has_nothing_to_ask(visit):
        known = [path for path in known if path != "/data-sets"]
    return visit.go(known[0] if known else "/tokens")


async def _has_nothing_to_ask(visit: Visit) -> bool:
    """Say whether somebody who may ask, and may add none, has no data set to ask."""
    if visit.may("own") or not visit.may("read"):
        return False
    return not (await visit.call("data-sets"))["data_sets"]


async def sign_in_form(visit: Visit) -> Response:
    """Show the form."""
    wanted = safe_path(visit.request.query_params.get("next", "/"))
    return visit.page("sign_in.html", wanted=wanted, user="")


async def sign_in(visit: Visit) -> Response:
    """Let in who knows the password, and send them to where they wanted to go."""
    user, wanted = visit.form.text("user"), safe_path(visit.form.text("next"))
    body = {
        "user": user,
        "password": visit.form.raw("password"),
        "device": device_of(visit.request),
    }
    said, refused = await visit.tried("sign-in", lambda: body)
    if said is not None:
        return signed_in(visit.go(wanted), said["token"], said["device"])
    return visit.page("sign_in.html", refused, wanted=wanted, user=user)


async def welcome_form(visit: Visit) -> Response:
    """Show who was invited the form for their password; the invitation is not looked at yet."""
    return visit.page("welcome.html", invitation=visit.at("invitation"))


async def welcome(visit: Visit) -> Response:
    """Take the invitation up."""
    invitation, password = visit.at("invitation"), visit.form.raw("password")
    if password != visit.form.raw("again"):
        differ = Refused("bad-request", "The two passwords differ.", "Type both again.")
        return visit.page("welcome.html", differ, invitation=invitation)
    body = {"invitation": invitation, "password": password}
    said, refused = await visit.tried("take-up", lambda: body)
    if said is not None:  # whoever was invited before is shown by whom, and when
        begin = "/tokens" if said["invitations"][1:] else "/"
        return signed_in(visit.go(begin), said["token"], said["device"])
    return visit.page("welcome.html", refused, invitation=invitation)


async def sign_out(visit: Visit) -> Response:
    """End the session, here and at the door."""
    await visit.call("sign-out", {})
    return signed_out(visit.go("/sign-in"))


PAGES: Final = (
    Page("GET", "/", first),
    Page("GET", "/sign-in", sign_in_form, is_open=True),
    Page("POST", "/sign-in", sign_in, ("sign-in",), is_open=True),
    Page("GET", "/welcome/{invitation}", welcome_form, is_open=True),
    Page("POST", "/welcome/{invitation}", welcome, ("take-up",), is_open=True),
    Page("POST", "/sign-out", sign_out, ("sign-out",)),
)
