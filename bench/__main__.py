"""Run every benchmark and print one table each: python -m bench [noise] [engine] [ledger] ..."""

from __future__ import annotations

import importlib
import platform
import sys
import time
from collections.abc import Sequence

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
    "surveys",
    "twins",
    "crowd",
    "pipelines",
)


def main(names: Sequence[str]) -> None:
    """Print the tables of the named benchmarks, or of all."""
    print(f"Python {platform.python_version()}, {platform.machine()}, {time.strftime('%Y-%m-%d')}")
    for name in names or BENCHES:
        print(f"\n## {name}\n", flush=True)
        rows = importlib.import_module(f"bench.{name}").run()
        print(table(rows), flush=True)


def table(rows: Sequence[dict[str, object]]) -> str:
    """Return the rows as a Markdown table."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
