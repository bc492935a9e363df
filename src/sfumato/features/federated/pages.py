"""Federations and lessons of a data set: how far each has come, while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from sfumato.server.console.live_updates import follow_state
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit

WIDE, HIGH, EDGE = 300, 120, 8  # of a picture
LEFT = 40  # of it, where the numbers stand


@dataclass(frozen=True)
class Curve:
    """One figure over the rounds, as a line and in words."""

    name: str
    points: str
    words: str
    marks: tuple[tuple[float, str], ...]  # how far down a number's rule lies, and the number


@dataclass(frozen=True)
class Paid:
    """What one site has paid for a lesson, and by whose word."""

    site: str
    epsilon: float | None
    word: str


async def lessons(visit: Visit) -> Response:
    """Show the federations that the data set takes part in, and its lessons round by round."""
    name = {"data_set": visit.at("data_set")}
    found, joined, card = await asyncio.gather(
        visit.call("lessons", name), visit.call("federations", name), visit.call("card", name)
    )
    own = {one["name"]: one["this_site"] for one in joined["federations"]}
    made = [
        {**one, "curves": curves_of(one["told"]), "paid": paid_of(one, own.get(one["federation"]))}
        for one in found["lessons"]
    ]
    return visit.page(
        "lessons.html",
        card=card,
        federations=joined["federations"],
        lessons=made,
        state=found["state"],
    )


def paid_of(lesson: Mapping[str, Any], own: str | None) -> list[Paid]:  # Any: JSON of the wire
    """Return what each site has paid: this one by its ledger, the others by the convener's word."""
    told: dict[str, Paid] = {}
    for one in lesson["told"]:
        for site, epsilon in one.get("paid", {}).items():
            told.setdefault(site, Paid(site, epsilon, f"told before round {one['round']}"))
    if own is not None:
        told[own] = Paid(own, lesson["epsilon"], "by this ledger")
    nothing = [Paid(site, None, "nothing told yet") for site in lesson["sites"] if site not in told]
    return sorted((*told.values(), *nothing), key=lambda one: one.site)


def curves_of(rounds: Sequence[Mapping[str, Any]]) -> list[Curve]:  # Any: JSON of the wire
    """Return the figures that were told in two rounds or more; loss from 0, accuracy to 1."""
    found = []
    for name in ("loss", "accuracy"):
        told = [(int(one["round"]), float(one[name])) for one in rounds if name in one]
        if len(told) > 1:
            found.append(_curve(name, told))
    return found


def _curve(name: str, told: Sequence[tuple[int, float]]) -> Curve:
    first, last = told[0], told[-1]
    most = 1.0 if name == "accuracy" else max(number for _, number in told) or 1.0
    across, up = (WIDE - LEFT - EDGE) / max(1, last[0] - first[0]), (HIGH - 2 * EDGE) / most
    points = " ".join(
        f"{LEFT + (at - first[0]) * across:.1f},{HIGH - EDGE - number * up:.1f}"
        for at, number in told
    )
    marks = tuple((HIGH - EDGE - part * most * up, f"{part * most:.2g}") for part in (0, 0.5, 1))
    began, ended = (f"{number:.3f} before round {at}" for at, number in (first, last))
    words = f"{name} from {began} to {ended}"
    return Curve(name, points, words, marks)


async def events(visit: Visit) -> Response:
    """Tell the script of the page when another round was used."""
    return await follow_state(visit, "lessons", {"data_set": visit.at("data_set")})


_AT: Final = "/data-sets/{data_set}/lessons"
_SHOWN: Final = ("lessons", "federations", "card")
PAGES: Final = (
    Page("GET", _AT, lessons, _SHOWN),
    Page("GET", f"{_AT}/events", events, _SHOWN, is_for_script=True),
)
