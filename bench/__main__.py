"""Run every benchmark and print one table each: python -m bench [--page] [noise] [engine] ..."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
import time
import traceback
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
    "growth",
    "ledger",
    "recovery",
    "load",
    "lab",
    "local",
    "estimates",
    "federated",
    "learning",
    "digits",
    "digits_sites",
    "surveys",
    "twins",
    "crowd",
    "pipelines",
)


def main(names: Sequence[str], *, on_page: bool = False) -> list[str]:
    """Print the tables of the named benchmarks, or of all; return the names of those that fell."""
    print(f"Python {platform.python_version()}, {platform.machine()}, {time.strftime('%Y-%m-%d')}")
    fell = []
    for name in names or BENCHES:
        try:
            run = importlib.import_module(f"bench.{name}").run
            show(name, f"python -m bench {name}", run, on_page)
        except Exception:  # noqa: BLE001  the others' minutes are not lost by it
            traceback.print_exc()
            fell.append(name)
    return fell


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--page", action="store_true", help="write them into docs/figures.md too")
    asked = parser.parse_args()
    if unknown := sorted({*asked.names} - {*BENCHES}):
        parser.error(f"there is no bench {unknown[0]}")
    if fallen := main(asked.names, on_page=asked.page):
        sys.exit(f"These fell: {', '.join(fallen)}")
