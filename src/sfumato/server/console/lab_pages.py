"""The console's lab pages: exhibits with sliders, plotted on the server from synthetic data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.server.console.answer_pictures import drawn_alone, looks, narrowed
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Visit, unknown_page, whole_number
from sfumato.server.ipc.fair_semaphore import FairSemaphore, Limit
from sfumato.wire.json_text import bad_request

if TYPE_CHECKING:  # the lab is imported when its pages are opened
    from sfumato.lab.exhibits import Exhibit

# Drawing uses the processor, and other pages wait meanwhile; so draw one picture at a time.
WIDTHS: Final[Mapping[str, Callable[[Json], Json]]] = {"wide": dict, "narrow": narrowed}
_TURNS: Final = FairSemaphore(Limit(at_once=1, of_one_user=1, waiting=20, waiting_of_one=4))


async def lab(visit: Visit) -> Response:
    """Show the page with the list of the lab's exhibits."""
    from sfumato.lab.exhibits import EXHIBITS

    return visit.page("lab.html", exhibits=EXHIBITS)


async def show(visit: Visit) -> Response:
    """Show the page of one lab exhibit, with the slider positions of its URL."""
    found, places, seed = _asked(visit)
    plot = await _drawn(visit, found, places, seed)
    view = _view(visit, plot)
    return visit.page("exhibit.html", None, exhibit=found, places=places, seed=seed, **view)


async def live(visit: Visit) -> Response:
    """Return the exhibit's plot for the URL's slider positions as JSON, for the page's script."""
    return JSONResponse(_view(visit, await _drawn(visit, *_asked(visit))))


async def picture(visit: Visit) -> Response:
    """Return the exhibit's plot as SVG: light or dark, wide or for a phone."""
    query = visit.request.query_params
    look, width = query.get("look", ""), query.get("width", "wide")
    if look not in looks() or width not in WIDTHS:
        raise unknown_page()
    plot = await _drawn(visit, *_asked(visit))
    async with _TURNS.turn(str(visit.me["user"])):
        svg = await run_in_threadpool(drawn_alone, WIDTHS[width](plot.spec), look)
    return Response(svg, media_type="image/svg+xml", headers={"Cache-Control": "max-age=3600"})


async def _drawn(visit: Visit, found: Exhibit, places: Mapping[str, int], seed: int) -> Plot:
    async with _TURNS.turn(str(visit.me["user"])):
        return await run_in_threadpool(found.shown, places, seed)


def _asked(visit: Visit) -> tuple[Exhibit, dict[str, int], int]:
    from sfumato.lab.exhibits import exhibit

    query = visit.request.query_params
    found = exhibit(visit.at("exhibit"))
    known = {*(slider.name for slider in found.sliders), "seed", "look", "width"}
    if set(query) - known:
        raise bad_request("the address has a part that no slider has")
    seed = whole_number(query.get("seed", "0"))
    if seed is None:
        raise bad_request("the seed is a whole number")
    return found, found.places(query), seed


def _view(visit: Visit, plot: Plot) -> dict[str, object]:
    """Return what a lab page shows of a plot: URL of the picture, summary, notes and table."""
    found, places, seed = _asked(visit)
    address = f"/lab/{found.name}/picture.svg?" + urlencode({**places, "seed": seed})
    return {
        "picture": address,
        "summary": plot.summary,
        "notes": _notes(plot),
        "head": list(plot.columns),
        "rows": [list(row) for row in plot.cells],
        "values": {slider.name: slider.text(places[slider.name]) for slider in found.sliders},
    }


def _notes(plot: Plot) -> str:
    """Return the subtitle of the plot's title, or "" if the summary contains it already."""
    title: Any = plot.spec.get("title")  # Any: a Vega-Lite spec
    words = " ".join(title.get("subtitle", ())) if isinstance(title, dict) else ""
    return "" if words in plot.summary else words


PAGES: Final = (
    Page("GET", "/lab", lab),
    Page("GET", "/lab/{exhibit}", show),
    Page("GET", "/lab/{exhibit}/live", live, is_for_script=True),
    Page("GET", "/lab/{exhibit}/picture.svg", picture),
)
