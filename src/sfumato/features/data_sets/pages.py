"""Console pages of data sets: the list, and each data set with its data card and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit, is_known

Shape = Mapping[str, Any]  # Any: JSON of the wire


@dataclass(frozen=True)
class Account:
    """One account of the privacy budget, for the page: its cap, spent and left."""

    name: str
    cap: Shape
    spent: Shape
    left: Shape

    @property
    def share(self) -> float:
        """Return how much of the account's epsilon cap is spent, in per cent."""
        cap = self.cap["epsilon"]
        return min(100.0, 100 * self.spent["epsilon"] / cap) if cap else 100.0


def accounts_of(budget: Shape) -> list[Account]:
    """Return all accounts that a query charges: the data set, its people, and the user's own."""
    people = budget["people"]
    found = [("Data set", budget), (f"People of {people['domain']}", people)]
    found += [(_whose(name), one) for name, one in budget["yours"].items()]
    return [Account(name, a["cap"], a["spent"], a["left"]) for name, a in found]


def _whose(name: str) -> str:
    kind, _, rest = name.partition(":")
    return "Yourself" if kind == "user" else f"{kind.capitalize()} {rest.rpartition('/')[2]}"


async def listed(visit: Visit) -> Response:
    """List the data sets that the visitor may query."""
    cards = (await visit.call("data-sets"))["data_sets"]
    return visit.page("data_sets.html", cards=cards)


async def one(visit: Visit) -> Response:
    """Show one data set with its data card and its privacy budget."""
    name = {"data_set": visit.at("data_set")}
    card, budget, is_own = await asyncio.gather(
        visit.call("card", name), visit.call("budget", name), _is_own(visit)
    )
    accounts = accounts_of(budget)
    return visit.page("data_set.html", card=card, budget=budget, accounts=accounts, is_own=is_own)


async def _is_own(visit: Visit) -> bool:
    """Return True if the visitor owns the data set."""
    if not (is_known("grants") and visit.may("own")):
        return False
    name = {"data_set": visit.at("data_set")}
    grants, _ = await visit.tried("grants", lambda: name)
    return grants is not None


PAGES: Final = (
    Page("GET", "/data-sets", listed, ("data-sets",)),
    Page("GET", "/data-sets/{data_set}", one, ("card", "budget")),
)
