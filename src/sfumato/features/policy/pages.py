"""Console pages for owners: grants, spending, caps, freezes, and approvals by a second person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from sfumato.client.display import AddReport
from sfumato.dp.refusal import Refused
from sfumato.server.console.forms import Form
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit

KINDS: Final = {
    "data-set": "Data set", "people": "People of", "group": "Group", "user": "User",
}  # fmt: skip


async def manage(visit: Visit) -> Response:
    """Show the page on which the owner manages a data set: grants, caps, freezes."""
    return await _page(visit, None)


async def grant(visit: Visit) -> Response:
    """Grant a user the right to query the data set."""
    body: dict[str, object] = {"user": visit.form.text("user")}
    if visit.form.text("group"):
        body["group"] = visit.form.raw("group")
    return await _done(visit, "grant", lambda: body)


async def revoke(visit: Visit) -> Response:
    """Revoke a user's grants on the data set."""
    return await _done(visit, "revoke-grant", lambda: {"user": visit.form.raw("user")})


async def set_cap(visit: Visit) -> Response:
    """Set a budget cap; a raise may need a second person's approval."""
    return await _done(visit, "set-cap", lambda: _cap(visit.form))


def _cap(form: Form) -> dict[str, object]:
    of, _, name = form.raw("account").partition(":")
    body: dict[str, object] = {"of": of, "epsilon": form.number("epsilon")}
    if of in ("group", "user"):
        body["name"] = name
    if form.text("delta"):
        body["delta"] = form.number("delta")
    return {**body, "why": form.text("why")} if form.text("why") else body


async def freeze(visit: Visit) -> Response:
    """Block all queries on the data set (freeze), or allow them again (thaw)."""
    return await _done(visit, "thaw" if visit.form.text("do") == "thaw" else "freeze", dict)


async def thaw_question(visit: Visit) -> Response:
    """Allow a blocked question shape (a question without its constants) again."""
    return await _done(visit, "thaw-question", lambda: {"shape": visit.form.raw("shape")})


async def approvals(visit: Visit) -> Response:
    """Show the requests that need a second person, waiting and decided."""
    found = (await visit.call("approvals"))["approvals"]
    return visit.page("approvals.html", approvals=found)


async def decide(visit: Visit) -> Response:
    """Approve or decline a request as its second person."""
    approve = visit.form.text("do") == "approve"
    body = {"approval": visit.form.raw("approval"), "approve": approve}
    said, refused = await visit.tried("decide", lambda: body)
    if said is not None:
        return visit.go("/approvals")
    found = (await visit.call("approvals"))["approvals"]
    return visit.page("approvals.html", refused, approvals=found)


async def _done(visit: Visit, verb: str, body: Callable[[], dict[str, object]]) -> Response:
    name = visit.at("data_set")
    said, refused = await visit.tried(verb, lambda: {**body(), "data_set": name})
    if said is None:
        return await _page(visit, refused)
    if said.get("approval"):  # the raise waits for a second person
        return visit.go("/approvals")
    return visit.go(f"{visit.request.url.path.rpartition('/manage')[0]}/manage")


async def _page(visit: Visit, refused: Refused | None) -> Response:
    name = {"data_set": visit.at("data_set")}
    verbs = ("spending", "grants", "frozen-questions", "card", "add-report")
    spending, grants, stopped, card, report = await asyncio.gather(
        *(visit.call(verb, name) for verb in verbs)
    )
    return visit.page(
        "manage.html",
        refused,
        card=card,
        accounts=spending["accounts"],
        questions=spending["questions"],
        grants=grants["grants"],
        enrolled=grants["enrolled"],
        stopped=stopped["questions"],
        lost=stopped.get("lost", []),
        frozen=spending["frozen"],
        report=AddReport(report) if report["tables"] else None,
        kinds=KINDS,
        form=visit.form,
    )


_AT: Final = "/data-sets/{data_set}/manage"
_SHOWN: Final = ("spending", "grants", "frozen-questions", "add-report")
PAGES: Final = (
    Page("GET", _AT, manage, _SHOWN),
    Page("POST", f"{_AT}/grants", grant, (*_SHOWN, "grant")),
    Page("POST", f"{_AT}/grants/revoke", revoke, (*_SHOWN, "revoke-grant")),
    Page("POST", f"{_AT}/caps", set_cap, (*_SHOWN, "set-cap")),
    Page("POST", f"{_AT}/freeze", freeze, (*_SHOWN, "freeze", "thaw")),
    Page("POST", f"{_AT}/questions", thaw_question, (*_SHOWN, "thaw-question")),
    Page("GET", "/approvals", approvals, ("approvals",)),
    Page("POST", "/approvals", decide, ("approvals", "decide")),
)
