"""Plot an answer offline: Vega-Lite with error bars, a summary in words, and a table.

The plot uses only released numbers and the receipt. Column names and keys are untrusted text: the
spec holds them as data and titles, never as field names or expressions, and pages escape them.
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
from sfumato.client.answer_table import (
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

MAX_COMPARED: Final = 300  # up to so many cells, every pair is compared
NAMED: Final = 5  # the most cells that the summary names; it counts the others


@dataclass(frozen=True)
class Plot:
    """A plot of an answer as a Vega-Lite spec, with a summary and a table for screen readers."""

    spec: Json
    title: str
    summary: str
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def table(self) -> str:
        """Return every plotted number as a text table, for screen readers."""
        return "\n".join(table_text(self.columns, self.cells))

    def save(self, path: str | Path) -> Path:
        """Write the plot as .svg, .png, .html or .json, by the path's suffix, without a network."""
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
        except Refused as refused:  # show the summary and the table anyway
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
        spec = json.dumps(self.spec).replace("<", "\\u003c")  # a key may contain </script>
        return PAGE.format(
            title=escape(self.title),
            body=self._image(self._svg()) + self._words(),
            bundle=_converter().javascript_bundle(),
            spec=spec,
        )


# The static SVG stays until the interactive chart loads. The content security policy blocks all
# fetches, and Vega interprets expressions (`ast`) instead of compiling them to functions.
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


def _converter() -> Any:  # Any: a module that may be absent
    return extra_module("vl_convert", "plot")


# --- in words ---------------------------------------------------------------------------------


def check_picture(path: str | Path) -> None:
    """Refuse a path to which no plot can be saved; call it before a question is paid."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".svg", ".png", ".html", ".json"):
        raise _no_such_picture(suffix)
    _check_folder(Path(path))
    _converter()


def _check_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise Refused(
            "bad-request",
            f"The folder of {path} does not exist.",
            "Create it, or name another file.",
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
    """Plot one column of the answer: choose its axis, colours and title, and describe it."""
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
    """Return the lines of the subtitle: the question, the meaning of the bars, and the price."""
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
    """Return sentences on the largest and smallest number, and on significant differences."""
    cells = sorted(view.cells, key=lambda cell: -cell.value)
    if len(cells) < 2:
        return [f"{view.y}: {cell.said()}." for cell in cells] or ["The answer has no numbers."]
    lines = [f"Largest of {len(cells):,}: {cells[0].said()}. Smallest: {cells[-1].said()}."]
    if view.answer.notes:
        return [
            *lines,
            "Differences are not judged: these numbers were post-processed after their release.",
        ]
    if may_be_cut(view.answer.receipt):
        return [
            *lines,
            "Differences are not judged: contribution bounds can affect one group more than "
            "another.",
        ]
    return [*lines, *_differences(cells)]


def _left_out(view: View) -> list[str]:
    """Return a sentence on the rows that the plot leaves out because they have no number."""
    missing = len(view.answer.rows) - len(view.cells)
    return [f"{missing:,} without a number {'is' if missing == 1 else 'are'} left out."] * (
        missing > 0
    )


def _differences(cells: Sequence[Cell]) -> list[str]:
    """Return sentences on which groups may equal the largest one, and how many pairs differ."""
    same = [cell for cell in cells[1:] if not is_apart(cells[0], cell)]
    names = "; ".join(", ".join(cell.labels) for cell in same[:NAMED])
    more = f" and {len(same) - NAMED:,} more" if len(same) > NAMED else ""
    lines = [
        f"Within its noise the largest may equal: {names}{more}."
        if same
        else "The largest is above every other by more than noise."
    ]
    if len(cells) > MAX_COMPARED:
        return lines
    pairs = list(combinations(cells, 2))
    apart = sum(is_apart(above, below) for above, below in pairs)
    found = f"{apart:,} of {len(pairs):,} pairs differ by more than their noise"
    return [*lines, f"{found} (each pair judged alone, at 95 %)."]


def is_apart(above: Cell, below: Cell) -> bool:
    """Return True if the 95 % interval of the difference of two noisy numbers excludes zero.

    The noise must be independent. The interval's half-width is the root of the sum of the two
    facing half-widths squared (Zou, Donner 2008). Running counts share noise, so for them the test
    is conservative.
    """
    return above.value - below.value > math.hypot(above.value - above.low, below.high - below.value)
