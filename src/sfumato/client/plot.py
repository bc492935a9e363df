"""A picture of an answer: Vega-Lite with error bars, a summary in words and a table; offline.

Everything is drawn from released numbers and the receipt. Names and keys are other people's text:
the spec holds them as data and titles, never as field names or expressions, and pages escape them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any, Final, cast

from sfumato.client.answer_chart import Cell, View, plain, spec_of, view_of
from sfumato.client.answer_values import (
    AnswerValues,
    advice_lines,
    chosen_lines,
    may_be_cut,
    why_free,
)
from sfumato.client.ask_terms import Json
from sfumato.client.text_tables import table_html, table_text
from sfumato.dp.refusal import Refused
from sfumato.system.optional_packages import extra_module

MOST_COMPARED: Final = 300  # cells of which every pair is compared
NAMED: Final = 5  # cells that the summary names before it counts the rest


@dataclass(frozen=True)
class Plot:
    """A picture as a Vega-Lite spec, with a summary and a table for who cannot see it."""

    spec: Json
    title: str
    summary: str
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def table(self) -> str:
        """Return every number that is drawn, as text."""
        return "\n".join(table_text(self.columns, self.cells))

    def save(self, path: str | Path) -> Path:
        """Write the picture as its suffix says (.svg, .png, .html or .json), without a network."""
        path = Path(path)
        _check_folder(path)
        match path.suffix.lower():
            case ".svg":
                path.write_text(self._svg(), "utf-8")
            case ".png":
                path.write_bytes(_converter().vegalite_to_png(self.spec, scale=2))
            case ".html":
                path.write_text(self._page(), "utf-8")
            case ".json":
                path.write_text(json.dumps(self.spec, indent=2), "utf-8")
            case other:
                raise _no_such_picture(other)
        return path

    def __repr__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        try:
            picture = self._svg()
        except Refused as refused:  # the words and numbers are worth showing all the same
            picture = f"<p>{escape(f'{refused.cause} {refused.next_step}')}</p>"
        return f"<figure>{self._image(picture)}{self._words()}</figure>"

    def _repr_mimebundle_(self, **_asked: object) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": self.summary}

    def _image(self, picture: str) -> str:
        return f'<div id="chart" role="img" aria-label="{escape(self.summary)}">{picture}</div>'

    def _words(self) -> str:
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.summary.splitlines())
        table = table_html(self.columns, self.cells)
        return f"{lines}<details open><summary>Table</summary>{table}</details>"

    def _svg(self) -> str:
        svg: str = _converter().vegalite_to_svg(self.spec)
        head, _, rest = svg.partition(">")
        words = f"<title>{escape(self.title)}</title><desc>{escape(self.summary)}</desc>"
        return f'{head} role="img">{words}{rest}'

    def _page(self) -> str:
        spec = json.dumps(self.spec).replace("<", "\\u003c")  # a key may close the script
        return PAGE.format(
            title=escape(self.title),
            body=self._image(self._svg()) + self._words(),
            bundle=_converter().javascript_bundle(),
            spec=spec,
        )


# The still picture stands until the live one does. The policy lets nothing be fetched, and Vega
# reads its expressions by `ast` instead of by making functions of them.
PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>body{{font:16px/1.5 sans-serif;margin:2em auto;max-width:60em;padding:0 1em}}
#chart{{overflow-x:auto}} table{{border-collapse:collapse}}
td,th{{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,th:first-child{{text-align:left}}</style></head>
<body><main>{body}</main>
<script>{bundle}</script>
<script>
const chart = document.getElementById("chart"), still = chart.innerHTML;
vegaEmbed(chart, {spec}, {{actions: false, renderer: "svg", ast: true}})
  .catch(() => {{ chart.innerHTML = still; }});
</script></body></html>
"""


def _converter() -> Any:  # a module that may be absent
    return extra_module("vl_convert", "plot")


# --- in words ---------------------------------------------------------------------------------


def check_picture(path: str | Path) -> None:
    """Refuse a file that no picture could be saved in; to be asked before a question is paid."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".svg", ".png", ".html", ".json"):
        raise _no_such_picture(suffix)
    _check_folder(Path(path))
    _converter()


def _check_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise Refused(
            "bad-request", f"There is no folder for {path}.", "Make it, or name another file."
        )


def _no_such_picture(suffix: str) -> Refused:
    return Refused(
        "not-in-language",
        f"A picture cannot be saved as {suffix!r}.",
        "Name a file that ends in .svg, .png, .html or .json.",
    )


def plotted(
    answer: AnswerValues, *, x: str | None, y: str | None, color: str | None, title: str | None
) -> Plot:
    """Return the picture of one column of the answer."""
    view = view_of(answer, x, y, color)
    by = f" by {' and '.join(view.keys)}" if view.keys else ""
    heading = plain(title or f"{view.y}{by}").replace("\n", " ")
    summary = "\n".join(map(plain, _summary(view, heading)))
    spec = spec_of(view, heading, _under(view))
    return Plot(
        spec={**spec, "description": summary},
        title=heading,
        summary=summary,
        columns=tuple(map(plain, (*view.keys, view.y))),
        cells=tuple((*cell.labels, cell.text) for cell in view.cells),
    )


def _under(view: View) -> list[str]:
    """Return what stands under the title: what was asked, what the bars are, what was paid."""
    receipt = _receipt(view)
    bars = "Band" if view.order else "Dark lines" if view.keys else "Line"
    return [
        f"{receipt['data_set']}, version {receipt['version']}: {receipt['says']}",
        f"{bars}: 95 % interval{'s' * bool(view.keys)} of the noise alone. {_paid(view)}.",
        *([f"Bounds: {receipt['bounding']}."] if may_be_cut(receipt) else []),
        *view.answer.notes[:1],
    ]


def _paid(view: View) -> str:
    receipt = _receipt(view)
    if receipt["epsilon"] is None:
        return f"{view.answer.guarantee}, without noise"
    how = why_free(receipt) if receipt["free"] else "paid"
    return f"{view.answer.guarantee}, epsilon {receipt['epsilon']:g} {how}"


def _receipt(view: View) -> dict[str, Any]:
    return cast("dict[str, Any]", view.answer.receipt)  # Any: JSON of the wire


def _summary(view: View, heading: str) -> list[str]:
    return [
        f"{heading}. {_receipt(view)['says']}.",
        *_extremes(view),
        *_left_out(view),
        f"± and ranges: 95 % intervals of the noise alone; {_receipt(view)['bounding']}.",
        *chosen_lines(_receipt(view)),
        *advice_lines(_receipt(view)),
        f"{_paid(view)}.",
        *view.answer.notes,
    ]


def _extremes(view: View) -> list[str]:
    """Return the largest and the smallest, and which differences are more than noise."""
    cells = sorted(view.cells, key=lambda cell: -cell.value)
    if len(cells) < 2:
        return [f"{view.y}: {cell.said()}." for cell in cells] or ["No numbers."]
    lines = [f"Largest of {len(cells):,}: {cells[0].said()}. Smallest: {cells[-1].said()}."]
    if view.answer.notes:
        return [
            *lines,
            "Differences are not judged: these numbers were worked on since they were released.",
        ]
    if may_be_cut(view.answer.receipt):
        return [
            *lines,
            "Differences are not judged: contribution bounds can cut one group more than another.",
        ]
    return [*lines, *_differences(cells)]


def _left_out(view: View) -> list[str]:
    """Return how many rows have no number: a formula has none over zero."""
    missing = len(view.answer.rows) - len(view.cells)
    return [f"{missing:,} without a number {'is' if missing == 1 else 'are'} left out."] * (
        missing > 0
    )


def _differences(cells: Sequence[Cell]) -> list[str]:
    """Return how the largest stands to the others, and how many pairs differ."""
    same = [cell for cell in cells[1:] if not is_apart(cells[0], cell)]
    names = "; ".join(", ".join(cell.labels) for cell in same[:NAMED])
    more = f" and {len(same) - NAMED:,} more" if len(same) > NAMED else ""
    lines = [
        f"Within its noise the largest may equal: {names}{more}."
        if same
        else "The largest is above every other by more than noise."
    ]
    if len(cells) > MOST_COMPARED:
        return lines
    pairs = list(combinations(cells, 2))
    apart = sum(is_apart(above, below) for above, below in pairs)
    found = f"{apart:,} of {len(pairs):,} pairs differ by more than their noise"
    return [*lines, f"{found} (each pair judged alone, at 95 %)."]


def is_apart(above: Cell, below: Cell) -> bool:
    """Say whether the interval of the difference leaves out zero; the two noises are independent.

    Half the interval is the root of the squared arms that face each other (Zou and Donner 2008).
    Running counts share noise, which makes their differences more certain than is said here.
    """
    return above.value - below.value > math.hypot(above.value - above.low, below.high - below.value)
