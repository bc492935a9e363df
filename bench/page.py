"""Write the page of figures: each bench writes its section of docs/reference/figures.md.

The other sections stay. A section begins with what the docstring of its bench says. Then it says
with which command, when and where it was measured, and how busy the machine was before.
"""

from __future__ import annotations

import ast
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
ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "figures.md"
HEAD: Final = """# Figures

`make bench` and `make bench-peers` measured these figures. Each section is from its latest run, so
compare only figures of one section. Each section says what it measures, what its columns mean, and
where and when it was measured. The load average says how busy the machine was just before the run;
0 is idle. [Notebook 0014](../notebook/0014-benches.md) describes the libraries and the
measurements.
"""
_SECTION: Final = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.M)
_MODULE: Final = re.compile(r"python -m (bench(?:\.\w+)*)(?: (\w+))?")
_COMMAND: Final = re.compile(r"[:;] (?:`[^`]+`|python -m .+)\.$")
_PARTS: Final = ("duckdb", "numpy")


def show(name: str, command: str, run: Callable[[], Rows], on_page: bool) -> None:
    """Run a bench and print its table; and write it as a section of the page, if so asked."""
    busy, begun = os.getloadavg()[0], time.monotonic()
    print(f"\n## {name}\n", flush=True)
    found = table(run())
    seconds = f"{time.monotonic() - begun:.0f} s"
    print(f"{found}\n\ntook {seconds}", flush=True)
    if on_page:
        how = f"Measured with `{command}` on {_when_and_where(busy)} in {seconds}."
        put(name, f"{about(command)}\n\n{how}", found)


def put(name: str, how: str, table: str) -> None:
    """Write one section of the page; the others stay as they are."""
    kept = sections(PAGE.read_text("utf-8")) if PAGE.exists() else {}
    kept[name] = f"{how}\n\n{table}"
    PAGE.write_text(page_of(kept), "utf-8")


def about(command: str) -> str:
    """Return what a bench measures, from its docstring: "This section measures ..."."""
    found = _MODULE.match(command)
    if found is None:
        raise ValueError(command)
    path = ROOT.joinpath(*found[1].split("."), *([found[2]] if found[2] else []))
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    first, _, rest = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")
    verb, _, what = _COMMAND.sub(".", first).partition(" ")
    return f"This section {verb.lower()}s {what}\n{rest}".strip()


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
    where = f"{machine}, {cores} cores, load average before the run {busy:.1f}"
    return f"{time.strftime('%Y-%m-%d')} ({where}; Python {python}, {versions})"
