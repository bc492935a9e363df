"""The pages of a stored answer: table, plots, receipt, and CSV and JSON files."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sfumato.client.answer import Answer
from sfumato.client.answer_table import cell_text
from sfumato.dp.refusal import Refused
from sfumato.server.console.answer_pictures import drawn, looks, pictured
from sfumato.server.console.number_text import harmless_cell, key_text
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit, unknown_page

SHOWN: Final = 500  # the most rows on the page; the files have all rows
MAX_PICTURES: Final = 4


@dataclass(frozen=True)
class Cell:
    """One table cell of the answer page: a number with its confidence interval, or a group key."""

    text: str
    bar: str
    is_number: bool


async def answer(visit: Visit) -> Response:
    """Show the page of one of the user's stored answers: table, plots and receipt."""
    said = await _said(visit)
    found = Answer.of(said)
    numbers = [n for n in found.columns if "key" not in found.output_of_column(n)]
    pictures = [pictured(found, name) for name in numbers[:MAX_PICTURES]]
    return visit.page(
        "answer.html",
        answer=found,
        receipt=found.receipt,
        said=said,
        cells=cells_of(found),
        numbers=numbers,
        pictures=[one for one in pictures if one is not None],
        raw=json.dumps(found.receipt, indent=2, ensure_ascii=False),
        SHOWN=SHOWN,
    )


async def picture(visit: Visit) -> Response:
    """Return the plot of one column of a stored answer as SVG, in light or dark colours."""
    asked = visit.request.query_params
    plot = pictured(Answer.of(await _said(visit)), asked.get("y", ""))
    if plot is None or asked.get("look") not in looks():
        raise unknown_page()
    svg = await run_in_threadpool(drawn, plot, asked["look"])
    return Response(svg, media_type="image/svg+xml")


async def as_csv(visit: Visit) -> Response:
    """Return a stored answer with its confidence intervals as a CSV file to download."""
    found = Answer.of(await _said(visit))
    return _file(csv_of(found), "text/csv; charset=utf-8", _name(found, "csv"))


async def as_json(visit: Visit) -> Response:
    """Return a stored answer and its receipt as a JSON file to download, unchanged."""
    said = await _said(visit)
    text = json.dumps(said, indent=2, ensure_ascii=False)
    return _file(text, "application/json", _name(Answer.of(said), "json"))


def cells_of(found: Answer) -> list[list[Cell]]:
    """Return the formatted table cells of an answer's first 500 rows, row by row."""
    keys = ["key" in found.output_of_column(name) for name in found.columns]
    pairs = zip(found.rows[:SHOWN], found.interval[:SHOWN], strict=True)
    return [list(map(_cell, row, bars, keys)) for row, bars in pairs]


def _cell(value: object, bar: tuple[float, float] | None, is_key: bool) -> Cell:
    if is_key:
        return Cell(key_text(value), "", False)
    text, _, rest = cell_text(value, bar).partition(" ")
    return Cell(text, rest, True)


def csv_of(found: Answer) -> str:
    """Return an answer and its confidence intervals as CSV text.

    A quote mark precedes each text that a spreadsheet would run as a formula.
    """
    frame = found.frame()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([harmless_cell(name) for name in frame])
    for row in zip(*frame.values(), strict=True):
        writer.writerow([harmless_cell(value) for value in row])
    return text.getvalue()


async def _said(visit: Visit) -> Said:
    op = visit.request.query_params.get("op", "")
    if not op:
        raise Refused(
            "answer-unknown",
            "The address of this page names no answer.",
            "Open an answer from the page History.",
        )
    return await visit.call("answer", {"op": op})


def _file(text: str, kind: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Type": kind}
    return Response(text.encode(), headers=headers)


def _name(found: Answer, suffix: str) -> str:
    stem = f"{found.receipt['data_set']}-{str(found.receipt['op'])[:8]}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem) + f".{suffix}"


PAGES: Final = (
    Page("GET", "/answer", answer, ("answer",)),
    Page("GET", "/answer/picture.svg", picture, ("answer",)),
    Page("GET", "/answer/table.csv", as_csv, ("answer",)),
    Page("GET", "/answer/answer.json", as_json, ("answer",)),
)
