"""One page of figures: each bench writes its section of docs/reference/figures.md.

The other sections stay. A section says how it was made, when, on what, and how busy the machine was
before: a figure that was taken beside other work is not worth as much as one that was not.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

Rows = Sequence[dict[str, object]]
PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "figures.md"
HEAD: Final = """# Figures

`make bench` and `make bench-peers` measured these figures. Each section is from its latest run, so
compare only figures of one section. "Busy" is the load average just before the run; 0 is idle.
The first line of the file that a section names (`bench/cli.py` for `python -m bench cli`) says what
the section measures. [Notebook 0014](../notebook/0014-benches.md) describes the libraries and the
measurements.
"""
_SECTION: Final = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.M)
_PARTS: Final = ("duckdb", "numpy")


def show(name: str, command: str, run: Callable[[], Rows], on_page: bool) -> None:
    """Run a bench and print its table; and write it as a section of the page, if so asked."""
    busy, begun = os.getloadavg()[0], time.monotonic()
    print(f"\n## {name}\n", flush=True)
    found = table(run())
    took = f"took {time.monotonic() - begun:.0f} s"
    print(f"{found}\n\n{took}", flush=True)
    if on_page:
        put(name, f"`{command}`, {_when_and_where(busy)}, {took}", found)


def put(name: str, how: str, table: str) -> None:
    """Write one section of the page; the others stay as they are."""
    kept = sections(PAGE.read_text("utf-8")) if PAGE.exists() else {}
    kept[name] = f"{how}.\n\n{table}"
    PAGE.write_text(page_of(kept), "utf-8")


def sections(page: str) -> dict[str, str]:
    """Return the sections of a page, by name."""
    return {name: text.strip() for name, text in _SECTION.findall(page)}


def page_of(parts: dict[str, str]) -> str:
    """Return the page of these sections."""
    texts = [f"## {name}\n\n{text}" for name, text in sorted(parts.items())]
    return "\n\n".join([HEAD.strip(), *texts]) + "\n"


def table(rows: Rows) -> str:
    """Return the rows as a Markdown table."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return figure(value)
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")


def figure(value: float) -> str:
    """Return a number as a reader wants it: three digits, and no powers of ten."""
    if not 1000 <= abs(value) < 1e9:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def _when_and_where(busy: float) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in _PARTS)
    cores, machine = os.cpu_count(), platform.machine()
    python = ".".join(map(str, sys.version_info[:3]))
    where = f"{time.strftime('%Y-%m-%d')}, {machine}, {cores} cores, busy {busy:.1f}"
    return f"{where}; Python {python}, {versions}"
