"""The operator's console page of users: their roles, invitations and blocks."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit

ROLES: Final = (
    ("owner", "adds data sets, signs cards, grants access, and asks"),
    ("operator", "invites people and gives them roles"),
    ("researcher", "asks"),
    ("auditor", "reads the ledger; cannot ask"),
)


async def users(visit: Visit) -> Response:
    """Show the page with all users and their roles."""
    return await _page(visit, None, None)


async def invite(visit: Visit) -> Response:
    """Invite a user, and show once the link with which they set a password."""
    body = {"user": visit.form.text("user"), "roles": visit.form.all("roles")}
    return await _page(visit, *await visit.tried("invite", lambda: body))


async def change(visit: Visit) -> Response:
    """Change a user's roles, and block or unblock the user."""
    form = visit.form
    body = {"user": form.raw("user"), "roles": form.all("roles"), "blocked": form.has("blocked")}
    changed, refused = await visit.tried("change-user", lambda: body)
    return await _page(visit, None, refused) if changed is None else visit.go("/users")


async def revoke(visit: Visit) -> Response:
    """Revoke all access tokens of a user who has lost a device."""
    await visit.call("revoke-tokens", {"user": visit.form.raw("user")})
    return visit.go("/users")


async def _page(visit: Visit, made: Said | None, refused: Refused | None) -> Response:
    found = (await visit.call("users"))["users"]
    url = visit.request.url
    link = "" if made is None else f"{url.scheme}://{url.netloc}/welcome/{made['invitation']}"
    values = {"made": made, "link": link, "form": visit.form}
    return visit.page("users.html", refused, users=found, roles=ROLES, **values)


PAGES: Final = (
    Page("GET", "/users", users, ("users",)),
    Page("POST", "/users", invite, ("invite",)),
    Page("POST", "/users/change", change, ("change-user",)),
    Page("POST", "/users/revoke-tokens", revoke, ("revoke-tokens",)),
)
