"""Run every benchmark and print one table each: python -m bench [--page] [noise] [engine] ..."""

from __future__ import annotations

import argparse
import importlib
import platform
import time
from collections.abc import Sequence

from bench.page import show, table

__all__ = ["main", "table"]

BENCHES = (
    "start",
    "cli",
    "request",
    "noise",
    "engine",
    "engines3",
    "ledger",
    "load",
    "lab",
    "local",
    "federated",
    "learning",
    "digits",
    "surveys",
    "twins",
    "crowd",
    "pipelines",
)


def main(names: Sequence[str], *, on_page: bool = False) -> None:
    """Print the tables of the named benchmarks, or of all; and put them on the page of figures."""
    print(f"Python {platform.python_version()}, {platform.machine()}, {time.strftime('%Y-%m-%d')}")
    for name in names or BENCHES:
        show(name, f"python -m bench {name}", importlib.import_module(f"bench.{name}").run, on_page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--page", action="store_true", help="write them into docs/figures.md too")
    asked = parser.parse_args()
    if unknown := sorted({*asked.names} - {*BENCHES}):
        parser.error(f"there is no bench {unknown[0]}")
    main(asked.names, on_page=asked.page)
