"""Copy the README's figures from docs/reference/figures.md: `make figures`.

A quote names a section of that page, a row of it, and a text with its cells. A row that was not
measured is left out and named on stderr. No figure is typed by hand.
tests/benches/test_quote.py checks this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.page import PAGE, sections, table

README: Final = Path(__file__).parents[1] / "README.md"
HEADING: Final = "## Figures\n"
_HEAD: Final = re.compile(
    r"^Measured with `(?P<command>[^`]+)` on (?P<day>[\d-]+) \("
    r".*?load average before the run (?P<load>[\d.]+)",
    re.M,
)
_INTRO: Final = """
`make figures` copies these figures from [the page of figures](docs/reference/figures.md). That page
says what each figure measures, and has many more. Compare only figures of one line. The load
average of the two virtual cores, just before the measurement, says how busy the machine was; 0 is
idle. [Benches](docs/notebook/0014-benches.md) describes the libraries and the measurements.
"""
_LIMITS: Final = """
sfumato's queries are fast because its rows are prepared once. For a single question about ten
million rows, OpenDP is faster. The first question at a new price takes longer, because sfumato
first computes tables for its noise.
"""
_BESIDE: Final = "beside other libraries"
_SURVEYS: Final = "surveys beside other libraries"
Cells = Mapping[str, str]


@dataclass(frozen=True)
class Beside:
    """What stands beside a figure: the rows that have these cells, each said like this."""

    cells: tuple[str, ...]
    said: str


@dataclass(frozen=True)
class Quote:
    """One line of the README: a row of a section, found by some of its cells."""

    what: str
    section: str
    cells: tuple[str, ...]
    said: str
    beside: str | Beside = ""


def _task(task: str) -> Quote:
    rows = ("1,000,000",) if task.startswith("count") else ()
    others = Beside((task, *rows), "{peer} {seconds} s")
    what = f"{task}, a million rows" if rows else task
    return Quote(what, _BESIDE, (task, *rows, "sfumato"), "{seconds} s", others)


QUOTES: Final = (
    Quote("`import sfumato`, nothing else installed", "start", ("import sfumato",),
          "{seconds} s", "aim: {target} s"),
    Quote("from there to the first answer", "start", ("to the first answer, import included",),
          "{seconds} s", "aim: {target} s; {cpu s} s of the processor"),
    Quote("a new question, whole: SQL, 10,000 rows, 10 keys", "request", ("SQL, a new constant",),
          "{whole} ms", "the plain query: {plain} ms"),
    Quote("count and sum by 10 keys of ten million prepared rows, in the engine", "engine",
          ("count and sum, 10 keys, unit who",), "{ms} ms", "the plain query: {plain ms} ms"),
    Quote("the same with a filter", "engine", ("the same, 10 keys, filtered, unit who",),
          "{ms} ms", "the plain query: {plain ms} ms"),
    _task("count and sum by 10 declared keys"),
    _task("count and sum by 100,000 undeclared keys"),
    _task("a million values of noise"),
    Quote("new questions answered by a service, 16 clients", "load", ("counts, 16 clients",),
          "{a second} a second", "p99 {p99 ms} ms"),
    Quote("a million answers of 128 choices, randomised and counted", _SURVEYS, ("unary 128",),
          "{ours} s", Beside(("unary 128",), "{peer} {seconds} s")),
    Quote("a secure sum: 10 sites, a million numbers", "federated",
          ("10 sites, a million parameters",), "{seconds} s", "the slowest site: {site_s} s"),
    Quote("a table of 30,162 people made 10-anonymous, least loss", "crowd",
          ("global, k = 10",), "{s} s", ""),
    Quote("look-alike rows of 30,000 people, nine columns", "twins", ("sfumato mst",),
          "{s} s, error {2-way}", Beside(("private-pgm mst",), "private-pgm {s} s, error {2-way}")),
    Quote("a program on 200 blocks of people, in a batch", "pipelines",
          ("a pandas mean, 200 blocks of 50 rows, batch",), "{slot it is padded to, s} s",
          Beside(("a pandas mean, 200 blocks of 50 rows, isolated",),
                 "isolated: {slot it is padded to, s} s")),
)  # fmt: skip


def main() -> None:
    """Write the README's section of figures anew, and name what was not measured yet."""
    page = PAGE.read_text("utf-8")
    README.write_text(replaced(README.read_text("utf-8"), section(page)), "utf-8")
    for quote in QUOTES:
        if line_of(quote, page) is None:
            print(f"not measured: {quote.what} ({quote.section})", file=sys.stderr)


def section(page: str) -> str:
    """Return the README's section of figures, made from the page of figures alone."""
    lines = [line for quote in QUOTES if (line := line_of(quote, page)) is not None]
    return "\n".join((HEADING, _INTRO.strip(), "", table(lines), "", _LIMITS.strip(), ""))


def replaced(readme: str, made: str) -> str:
    """Return the README with this section of figures in the old one's place."""
    before, _, rest = readme.partition(HEADING)
    _, _, after = rest.partition("\n## ")
    return f"{before}{made}\n## {after}"


def line_of(quote: Quote, page: str) -> dict[str, object] | None:
    """Return the line of a quote; None where the page has no such section, row or column."""
    text = sections(page).get(quote.section, "")
    head, rows = _HEAD.search(text), rows_of(text)
    found = _with(rows, quote.cells)
    if head is None or not found:
        return None
    try:
        said, beside = quote.said.format_map(found[0]), _beside(quote.beside, found[0], rows)
    except KeyError:
        return None
    by = f"`{head['command']}` on {head['day']}, load average {head['load']}"
    return {"what": quote.what, "figure": said, "beside it": beside, "measured by": by}


def rows_of(text: str) -> list[Cells]:
    """Return the rows of a section's table, by the names of its columns."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[one.strip() for one in line[1:-1].split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def _with(rows: Sequence[Cells], wanted: Sequence[str]) -> list[Cells]:
    return [row for row in rows if set(wanted) <= set(row.values())]


def _beside(beside: str | Beside, row: Cells, rows: Sequence[Cells]) -> str:
    if isinstance(beside, str):
        return beside.format_map(row)
    others = [other for other in _with(rows, beside.cells) if other.get("peer") != "sfumato"]
    return ", ".join(beside.said.format_map(other) for other in others if other.get("seconds", "-"))


if __name__ == "__main__":
    main()
