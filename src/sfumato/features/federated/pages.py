"""Console page of federations and training runs, with live progress of each run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from sfumato.server.console.live_updates import follow_state
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit

WIDE, HIGH, EDGE = 300, 120, 8  # of a chart, in pixels
LEFT = 40  # width of the axis labels


@dataclass(frozen=True)
class Curve:
    """One metric over the rounds of a training run, as an SVG polyline and as text."""

    name: str
    points: str
    words: str
    marks: tuple[tuple[float, str], ...]  # y position and label of each grid line


@dataclass(frozen=True)
class Paid:
    """The epsilon that one site has paid for a training run, and a text on who states it."""

    site: str
    epsilon: float | None
    word: str


async def lessons(visit: Visit) -> Response:
    """Show the federations of a data set, and its training runs round by round."""
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
    """Return the epsilon that each site has paid for a training run, in order of site names.

    This site's figure comes from its ledger. The convener reports the figures of other sites.
    """
    told: dict[str, Paid] = {}
    for one in lesson["told"]:
        for site, epsilon in one.get("paid", {}).items():
            told.setdefault(
                site, Paid(site, epsilon, f"reported by the convener, before round {one['round']}")
            )
    if own is not None:
        told[own] = Paid(own, lesson["epsilon"], "this site’s ledger")
    nothing = [Paid(site, None, "not reported yet") for site in lesson["sites"] if site not in told]
    return sorted((*told.values(), *nothing), key=lambda one: one.site)


def curves_of(rounds: Sequence[Mapping[str, Any]]) -> list[Curve]:  # Any: JSON of the wire
    """Return a training run's curves of loss and accuracy, each if two or more rounds report it."""
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
    """Send the page's script a server-sent event whenever a training run has used another round."""
    return await follow_state(visit, "lessons", {"data_set": visit.at("data_set")})


_AT: Final = "/data-sets/{data_set}/lessons"
_SHOWN: Final = ("lessons", "federations", "card")
PAGES: Final = (
    Page("GET", _AT, lessons, _SHOWN),
    Page("GET", f"{_AT}/events", events, _SHOWN, is_for_script=True),
)
