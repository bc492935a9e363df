"""Run the named benches, or all short ones; print tables: python -m bench [--page] [NAME] ..."""

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

# All of these together take less than a quarter of an hour, on two idle processors.
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
    "surveys",
    "twins",
    "crowd",
    "pipelines",
    "process_trees",
)
LONG = (
    "add",
    "append",
    "growth",
    "recovery",
    "estimates",
    "coverage",
    "digits",
    "digits_sites",
    "many_sites",
    "one_person_more",
)  # run by name alone


def main(names: Sequence[str], *, on_page: bool = False) -> list[str]:
    """Print the tables of the named benches, or of all short ones; return which of them fell."""
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
    parser.add_argument(
        "names",
        nargs="*",
        help=f"of {', '.join(BENCHES)}; these long ones run only by name: {', '.join(LONG)}",
    )
    parser.add_argument(
        "--page", action="store_true", help="also write the tables into docs/reference/figures.md"
    )
    asked = parser.parse_args()
    if unknown := sorted({*asked.names} - {*BENCHES, *LONG}):
        parser.error(f"unknown bench {unknown[0]}")
    if fallen := main(asked.names, on_page=asked.page):
        sys.exit(f"These benches failed: {', '.join(fallen)}")
