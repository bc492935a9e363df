"""Console pages of twins: download a free schema twin, or price and buy a synthetic DP twin."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response

from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.client import archive
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit

METHODS: Final = ("mst", "aim", "independent")


async def taken(visit: Visit) -> Response:
    """Send a free schema twin (synthetic data from the card) as a zip archive."""
    return _archive(await visit.call("twin", {"data_set": visit.at("data_set")}))


async def form(visit: Visit) -> Response:
    """Show the form to buy a DP twin (synthetic data from private counts)."""
    return await _page(visit)


async def priced(visit: Visit) -> Response:
    """Show the price of a DP twin (synthetic data) and what it measures; this spends nothing."""
    price, refused = await visit.tried("dp-twin-price", lambda: _price_body(visit))
    return await _page(visit, price, refused)


async def bought(visit: Visit) -> Response:
    """Buy a DP twin (synthetic data) and send it as a zip archive; the same form again is free."""
    made, refused = await visit.tried("dp-twin", lambda: _body(visit))
    return await _page(visit, None, refused) if made is None else _archive(made)


def _archive(made: Said) -> Response:
    name = json.dumps(f"{made['name']}.zip")
    headers = {"Content-Disposition": f"attachment; filename={name}"}
    return Response(archive(made), media_type="application/zip", headers=headers)


def _price_body(visit: Visit) -> dict[str, object]:
    sent = visit.form
    bins = [name.strip() for name in sent.text("private_bins").split(",") if name.strip()]
    named = {
        "delta": sent.number("delta"),
        "method": sent.text("method") or None,
        "private_bins": bins or None,
        "error_epsilon": sent.number("error_epsilon"),
    }
    body = {"data_set": visit.at("data_set"), "epsilon": sent.number("epsilon")}
    return {**body, **{name: value for name, value in named.items() if value is not None}}


def _body(visit: Visit) -> dict[str, object]:
    rows, op = visit.form.count("rows"), visit.form.text("op")
    more = {"rows": rows, "op": op or None}
    return _price_body(visit) | {name: value for name, value in more.items() if value is not None}


async def _page(
    visit: Visit, price: Said | None = None, refused: Refused | None = None
) -> Response:
    return visit.page(
        "twin.html",
        refused,
        card=await visit.call("card", {"data_set": visit.at("data_set")}),
        price=price,
        form=visit.form,
        methods=METHODS,
        op=visit.form.text("op") or visit.draw(16).hex(),
    )


_AT: Final = "/data-sets/{data_set}/dp-twin"
PAGES: Final = (
    Page("GET", "/data-sets/{data_set}/twin", taken, ("twin",)),
    Page("GET", _AT, form, ("dp-twin", "dp-twin-price")),
    Page("POST", _AT, bought, ("dp-twin", "dp-twin-price")),
    Page("POST", f"{_AT}/price", priced, ("dp-twin", "dp-twin-price")),
)
