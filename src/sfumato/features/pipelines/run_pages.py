"""Console pages of runs: begin one as a job, and show its answer with pictures and its receipt."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any, Final

from starlette.responses import Response

from sfumato.features.pipelines.pages import program_page, run_terms
from sfumato.server.console.number_text import harmless_cell, margin
from sfumato.server.console.page import Page
from sfumato.server.console.visit import Said, Visit

Shape = Mapping[str, Any]  # Any: JSON of the wire
WIDTH, HEIGHT, LEFT = 320, 140, 44  # of the picture of a row of numbers, and where its axis begins
MAX_CELLS: Final = 400  # the most numbers of an array in the page's table; the file has all


@dataclass(frozen=True)
class Scalar:
    """One number of an answer: its texts, and its place in its range from 0 to 100."""

    name: str
    value: str
    error: str
    lower: str
    upper: str
    at: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Cell:
    """One number of an array: its index, its name, its text, and its share of its range."""

    index: tuple[int, ...]
    name: str  # the row and the column of a table, or the index
    text: str
    share: float
    error: str  # its interval; "" for a median


@dataclass(frozen=True)
class Array:
    """An array of an answer, as a table and as a picture of one or two dimensions."""

    name: str
    shape: tuple[int, ...]
    error: str
    cells: tuple[Cell, ...]
    lower: str
    upper: str
    line: str  # the points of its line, if it has one dimension
    band: str  # the points of its interval, if it has one dimension
    words: str

    @property
    def is_map(self) -> bool:
        """Return True if the array is drawn as a map of squares."""
        return len(self.shape) == 2

    @property
    def head(self) -> tuple[Cell, ...]:
        """Return the first numbers, which the page's table shows."""
        return self.cells[:MAX_CELLS]


async def run(visit: Visit) -> Response:
    """Begin the run as a job, and go to the job's page; or show the program with a refusal."""
    job, refused = await visit.tried("begin-pipeline-run", lambda: _run_body(visit))
    if job is not None:
        return visit.go(f"/jobs/{job['job']}")
    return await program_page(visit, refused)


async def answer(visit: Visit) -> Response:
    """Show the stored answer of one of the visitor's runs: pictures, numbers, receipt."""
    said = await _said(visit)
    receipt = said["receipt"]
    return visit.page(
        "program_answer.html",
        data_set=visit.at("data_set"),
        receipt=receipt,
        warnings=said.get("warnings", []),
        scalars=scalars_of(said),
        arrays=arrays_of(said),
        rank_error=receipt.get("rank_error", {}),
        raw=json.dumps(receipt, indent=2, ensure_ascii=False),
        MAX_CELLS=MAX_CELLS,
    )


async def as_csv(visit: Visit) -> Response:
    """Return all numbers of a run's answer as a CSV file, one number a line."""
    said = await _said(visit)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("output", "index", "value", "lower_95", "upper_95"))
    for name, value, ends in _scalar_values(said):
        writer.writerow((harmless_cell(name), "", value, *(ends or ("", ""))))
    for name, array in said["arrays"].items():
        ends = None if array["margin"] is None else array["interval"]
        for index, value in _indexed(array["values"]):
            place = _cell_name(array, index)
            around = ("", "") if ends is None else _ends_at(ends, index)
            writer.writerow((harmless_cell(name), harmless_cell(place), value, *around))
    return _file(text.getvalue(), "text/csv; charset=utf-8", said, "csv")


async def as_json(visit: Visit) -> Response:
    """Return a run's stored answer and its receipt as a JSON file, unchanged."""
    said = await _said(visit)
    text = json.dumps(said, indent=2, ensure_ascii=False)
    return _file(text, "application/json", said, "json")


def scalars_of(said: Shape) -> list[Scalar]:
    """Return the single numbers of an answer, with what their pictures need."""
    ranges = _ranges(said)
    return [_scalar(name, value, ends, *ranges[name]) for name, value, ends in _scalar_values(said)]


def arrays_of(said: Shape) -> list[Array]:
    """Return the arrays of an answer, with what their pictures need."""
    ranges = _ranges(said)
    return [_array(name, one, *ranges[name]) for name, one in said["arrays"].items()]


def _scalar_values(said: Shape) -> Iterator[tuple[str, float, Sequence[float] | None]]:
    yield from zip(said["columns"], said["rows"][0], said["interval"][0], strict=True)


def _ranges(said: Shape) -> dict[str, tuple[float, float]]:
    outputs = said["receipt"]["pipeline"]["outputs"]
    return {o["name"]: (float(Fraction(o["lower"])), float(Fraction(o["upper"]))) for o in outputs}


def _scalar(
    name: str, value: float, ends: Sequence[float] | None, lower: float, upper: float
) -> Scalar:
    low, high = (value, value) if ends is None else ends
    said = "" if ends is None else f", 95 % interval from {low:.6g} to {high:.6g}"
    words = f"{name}: {value:.6g}{said}, in the declared range from {lower:g} to {upper:g}"
    at, left, right = (
        round(100 * (one - lower) / (upper - lower), 3) for one in (value, low, high)
    )
    error = "" if ends is None else f"{low:.6g} to {high:.6g}"
    return Scalar(name, f"{value:.6g}", error, f"{lower:g}", f"{upper:g}", at, left, right, words)


def _array(name: str, array: Shape, lower: float, upper: float) -> Array:
    cells = [
        Cell(
            index,
            _cell_name(array, index),
            f"{value:.6g}",
            (value - lower) / (upper - lower),
            _interval_text(array, index),
        )
        for index, value in _indexed(array["values"])
    ]
    shape = tuple(place + 1 for place in cells[-1].index)
    by = array["margin"]
    error = "" if by is None else f"± {margin(by)}"
    shares = [one.share for one in cells]
    spread = 0.0 if by is None else by / (upper - lower)
    is_row = len(shape) == 1
    return Array(
        name,
        shape,
        error,
        tuple(cells),
        f"{lower:g}",
        f"{upper:g}",
        line=_points(shares) if is_row else "",
        band=_band(shares, spread) if is_row else "",
        words=_array_words(name, cells, shape),
    )


def _array_words(name: str, cells: Sequence[Cell], shape: Sequence[int]) -> str:
    least, most = (pick(cells, key=lambda one: one.share) for pick in (min, max))
    sizes = " by ".join(map(str, shape))
    return (
        f"{name}, {sizes} numbers, the smallest {least.text} at {least.name}, the largest "
        f"{most.text} at {most.name}; the table has all"
    )


def _cell_name(array: Shape, index: tuple[int, ...]) -> str:
    """Return the row and the column that a table's declaration names, or the index."""
    if "rows" in array:
        row, column = index
        return f"{array['rows'][row]}, {array['columns'][column]}"
    return ", ".join(map(str, index))


def _interval_text(array: Shape, index: tuple[int, ...]) -> str:
    if array["margin"] is None:
        return ""
    low, high = _ends_at(array["interval"], index)
    return f"{low:.6g} to {high:.6g}"


def _points(shares: Sequence[float]) -> str:
    return " ".join(
        f"{x:g},{_down(share):g}" for x, share in zip(_across(shares), shares, strict=True)
    )


def _band(shares: Sequence[float], by: float) -> str:
    """Return the points around the interval: above from left to right, and below back."""
    across = _across(shares)
    above = [f"{x:g},{_down(min(1, s + by)):g}" for x, s in zip(across, shares, strict=True)]
    below = [f"{x:g},{_down(max(0, s - by)):g}" for x, s in zip(across, shares, strict=True)]
    return " ".join([*above, *below[::-1]])


def _across(shares: Sequence[float]) -> list[float]:
    step = (WIDTH - LEFT - 8) / max(1, len(shares) - 1)
    return [round(LEFT + 4 + step * place, 2) for place in range(len(shares))]


def _down(share: float) -> float:
    return round(HEIGHT - 16 - (HEIGHT - 28) * share, 2)


def _ends_at(ends: Shape, index: tuple[int, ...]) -> tuple[float, float]:
    """Return the interval of one number of an array."""
    low, high = (reduce(getitem, index, ends[end]) for end in ("lower", "upper"))
    return low, high


def _indexed(values: Any) -> Iterator[tuple[tuple[int, ...], float]]:  # Any: nested JSON lists
    shape, inner = [], values
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0]
    for index in product(*map(range, shape)):
        found = values
        for place in index:
            found = found[place]
        yield index, found


def _run_body(visit: Visit) -> dict[str, object]:
    op = visit.form.text("op")
    return {**run_terms(visit), **({"op": op} if op else {})}


async def _said(visit: Visit) -> Said:
    op = visit.request.query_params.get("op", "")
    return await visit.call("pipeline-answer", {"data_set": visit.at("data_set"), "op": op})


def _file(text: str, kind: str, said: Shape, suffix: str) -> Response:
    receipt = said["receipt"]
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", f"{receipt['data_set']}-{str(receipt['op'])[:8]}")
    headers = {"Content-Disposition": f'attachment; filename="{stem}.{suffix}"'}
    return Response(text.encode(), headers={**headers, "Content-Type": kind})


_ANSWER: Final = "/data-sets/{data_set}/program-answer"
PAGES: Final = (
    Page("POST", "/data-sets/{data_set}/programs/{pipeline}/run", run,
         ("begin-pipeline-run", "job", "pipeline", "budget", "card")),
    Page("GET", _ANSWER, answer, ("pipeline-answer",)),
    Page("GET", f"{_ANSWER}/numbers.csv", as_csv, ("pipeline-answer",)),
    Page("GET", f"{_ANSWER}/answer.json", as_json, ("pipeline-answer",)),
)  # fmt: skip
