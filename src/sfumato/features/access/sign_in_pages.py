"""The console's pages to sign in, accept an invitation, and sign out."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.page import Page
from sfumato.server.console.session import device_of, signed_in, signed_out
from sfumato.server.console.visit import Visit, safe_path

HOMES: Final = (("read", "/data-sets"), ("operate", "/users"), ("audit", "/releases"))


async def first(visit: Visit) -> Response:
    """Redirect a signed-in user to the first page that their permissions allow."""
    known = [path for action, path in HOMES if visit.may(action)]
    if known[1:] and await _has_nothing_to_ask(visit):
        known = [path for path in known if path != "/data-sets"]
    return visit.go(known[0] if known else "/tokens")


async def _has_nothing_to_ask(visit: Visit) -> bool:
    """Return True if the user has no data sets of their own, and may query nobody else's."""
    if visit.may("own") or not visit.may("read"):
        return False
    return not (await visit.call("data-sets"))["data_sets"]


async def sign_in_form(visit: Visit) -> Response:
    """Show the form to sign in with a name and a password."""
    wanted = safe_path(visit.request.query_params.get("next", "/"))
    return visit.page("sign_in.html", wanted=wanted, user="")


async def sign_in(visit: Visit) -> Response:
    """Sign a user in by password, and redirect to the page that the user wanted."""
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
    """Show an invited user the password form; the invitation isn't checked yet."""
    return visit.page("welcome.html", invitation=visit.at("invitation"))


async def welcome(visit: Visit) -> Response:
    """Accept an invitation: set the chosen password, and sign the user in."""
    invitation, password = visit.at("invitation"), visit.form.raw("password")
    if password != visit.form.raw("again"):
        differ = Refused(
            "bad-request", "The two passwords differ.", "Type the same password into both fields."
        )
        return visit.page("welcome.html", differ, invitation=invitation)
    body = {"invitation": invitation, "password": password}
    said, refused = await visit.tried("take-up", lambda: body)
    if said is not None:  # a user with earlier invitations first sees who made them, and when
        begin = "/tokens" if said["invitations"][1:] else "/"
        return signed_in(visit.go(begin), said["token"], said["device"])
    return visit.page("welcome.html", refused, invitation=invitation)


async def sign_out(visit: Visit) -> Response:
    """Sign out: revoke the session's token, and delete its cookie."""
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
