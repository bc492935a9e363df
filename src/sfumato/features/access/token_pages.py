"""The console's page of the user's own access tokens: list, make and revoke."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit


async def tokens(visit: Visit) -> Response:
    """Show the page with the user's own access tokens."""
    return await _page(visit, None, None)


async def make(visit: Visit) -> Response:
    """Make an access token, and show its secret once."""
    return await _page(visit, *await visit.tried("make-token", lambda: _wanted(visit.form)))


def _wanted(form: Form) -> dict[str, object]:
    body: dict[str, object] = {"label": form.text("label"), "actions": form.all("actions")}
    if form.text("reach") == "some":
        body["data_sets"] = form.all("data_sets")
    if (days := form.count("days")) is not None:
        body["days"] = days
    return body


async def revoke(visit: Visit) -> Response:
    """Revoke one of the user's own access tokens."""
    await visit.call("revoke-token", {"token": visit.form.text("token")})
    return visit.go("/tokens")


async def revoke_all(visit: Visit) -> Response:
    """Revoke all of the user's access tokens, including this session's."""
    await visit.call("revoke-tokens", {"user": visit.me["user"]})
    return visit.go("/sign-in")


async def _page(visit: Visit, made: Said | None, refused: Refused | None) -> Response:
    found = await visit.call("tokens")
    cards = (await visit.call("data-sets"))["data_sets"] if visit.may("read") else []
    shown = {"tokens": found["tokens"], "invitations": found["invitations"], "cards": cards}
    return visit.page("tokens.html", refused, **shown, made=made, form=visit.form)


PAGES: Final = (
    Page("GET", "/tokens", tokens, ("tokens",)),
    Page("POST", "/tokens", make, ("make-token",)),
    Page("POST", "/tokens/revoke", revoke, ("revoke-token",)),
    Page("POST", "/tokens/revoke-all", revoke_all, ("revoke-tokens",)),
)
