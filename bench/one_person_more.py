"""Test whether an answer's time reveals one person: `python -m bench.one_person_more`.

The bench has three data sets of ten thousand rows. Two are copies of each other. The third has
one more person, with the largest number of rows that count, all in a separate group. The bench
asks a service, with the release quantum off, for the median by public and by private keys. It
uses one open connection, and asks the data sets in a random order. `auc` is how often a random
answer of one table took longer than one of the other; 0.5 reveals nothing. The copies show the
effect of chance and of the file's location.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Final

import duckdb
from scipy import stats

import sfumato
from bench.load import token_of
from sfumato.client.remote_vault import RemoteVault

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import served

ASKS: Final = 500  # of each table and each kind of keys
WARM: Final = 20
ASKER: Final = "asker"
TABLES: Final = ("without", "copied", "one_more")
KINDS: Final[Mapping[str, str]] = {"public keys": "clinic", "private keys": "town"}
_CARD: Final[Mapping[str, object]] = {
    "unit": "who",
    "people": "people",
    "budget": {"epsilon": 1000, "delta": Fraction(1, 100)},
    "ask": {"who": ["staff"]},
    "max_groups": 3,
    "max_rows": 20,
    "limits": {"rows": 10**6},
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(10))},
        "town": {"type": "text"},
        "cost": {"type": "number", "lower": 0, "upper": 10_000, "step": 1},
    },
}
_ROWS: Final = """
COPY (SELECT 'p' || hash(i, 1) % 1000 AS who, (hash(i, 2) % 9)::INTEGER AS clinic,
  'town ' || hash(i, 3) % 20 AS town, (hash(i, 4) % 10000)::DOUBLE AS cost
FROM range(10000) r(i) {more}) TO '{path}' (FORMAT parquet)
"""
_MORE: Final = "UNION ALL SELECT 'q', 9, 'elsewhere', 9999 FROM range(20)"


def run(asks: int = ASKS) -> list[dict[str, object]]:
    """Return for each kind of keys how well the time tells two tables from each other."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        home = Path(folder)
        token = _prepared(home)
        with (
            served(home / "vault", "--quantum", "0") as service,
            sfumato.connect(service.url, token=token) as vault,
        ):
            return [
                line
                for kind, key in KINDS.items()
                for line in _lines(kind, _times(vault, key, asks))
            ]


def _prepared(home: Path) -> str:
    sfumato.create(home / "vault", anchor=home / "anchor")
    with sfumato.open(home / "vault") as vault:
        for name in TABLES:
            path = home / f"{name}.parquet"
            more = _MORE if name == "one_more" else ""
            duckdb.sql(_ROWS.format(more=more, path=path))
            vault.add(name, path, _CARD)
        vault.enrol(ASKER, "staff")
        return token_of(vault.house.desk.access, ASKER)


def _times(vault: RemoteVault, key: str, asks: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    order = random.Random(key)
    for number in range(WARM + asks):
        for table in order.sample(TABLES, len(TABLES)):
            sql = f"SELECT {key}, MEDIAN(cost) FROM {table} WHERE cost >= {number} GROUP BY {key}"
            begun = time.perf_counter()
            vault[table].ask(sql, epsilon=0.25, delta=Fraction(1, 10**6))
            if number >= WARM:
                times[table].append(time.perf_counter() - begun)
    return times


def _lines(kind: str, times: Mapping[str, list[float]]) -> list[dict[str, object]]:
    return [
        {
            "median by": kind,
            "beside each other": f"{one} and {other}",
            "ms": " and ".join(f"{1000 * statistics.median(times[t]):.2f}" for t in (one, other)),
            "auc": round(_auc(times[one], times[other]), 3),
            "by chance": f"± {1.96 * sqrt(1 / (6 * len(times[one]))):.3f}",
        }
        for one, other in (("without", "copied"), ("without", "one_more"), ("copied", "one_more"))
    ]


def _auc(less: list[float], more: list[float]) -> float:
    """Return how often a time of `more` is the longer one."""
    return float(stats.mannwhitneyu(more, less).statistic) / (len(more) * len(less))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.one_person_more", description=__doc__)
    parser.add_argument("--asks", type=int, default=ASKS, help="questions of each table and kind")
    for found in run(parser.parse_args().asks):
        print(found, flush=True)
