"""Compare the whole time of a private question with the time of the plain query.

The data set has ten thousand rows of a thousand people. The vault is open, the engine's worker is
warm, and the ledger is a file that is synced at each charge and each answer. Each question is new,
with another constant or another price, because a repeated question is answered from the ledger.
`plain` is the same question in plain SQL, on the same rows, in a DuckDB of this process. All times
are in milliseconds. Each column of a step is its own median, so the steps add up to the whole only
approximately.

The last lines are the same over HTTP: a client asks a service of the same vault over one open
connection, first with the release quantum off, then with it on. With it on, every answer waits for
the next quarter of a second.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import duckdb

import sfumato
from bench.ledger import sync_ms
from bench.load import token_of
from sfumato.app.vault import OpenVault
from sfumato.client import col
from sfumato.client.remote_vault import RemoteVault
from sfumato.release.ledger_guard import Ledger

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import served

ROWS: Final = 10_000
QUESTIONS: Final = 200
WARM: Final = 20  # questions that are asked first and not counted
TARGET_MS: Final = 15
QUANTA_MS: Final = (0, 250)
ASKER: Final = "asker"
_CARD: Final[Mapping[str, object]] = {
    "unit": "who",
    "budget": {"epsilon": 1000},
    "ask": {"who": ["staff"]},
    "max_groups": 3,
    "max_rows": 20,
    "limits": {"rows": 10**6},
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(10))},
        "cost": {"type": "number", "lower": 0, "upper": 10_000, "step": Decimal("0.01")},
    },
}
_SOURCE: Final = """
COPY (SELECT 'p' || CAST(hash(i, 1) % {people} AS VARCHAR) AS who,
  CAST(hash(i, 2) % 10 AS INTEGER) AS clinic,
  CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END AS cost
FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)
"""
_SQL: Final = (
    "SELECT clinic, COUNT(*) AS n, SUM(cost) AS paid, AVG(cost) AS mean FROM visits"
    "{where} GROUP BY clinic"
)
Ask = Callable[[OpenVault, int], object]
Times = dict[str, list[float]]  # step -> seconds of every question


def _sql(vault: OpenVault | RemoteVault, number: int) -> object:
    return vault["visits"].ask(_SQL.format(where=_where(number)), epsilon=0.5)


def _python(vault: OpenVault, number: int) -> object:
    built = vault["visits"].where(col("cost") <= 5000 + number).group_by("clinic")
    return built.count().sum("cost").mean("cost").ask(epsilon=0.5)


def _new_price(vault: OpenVault, number: int) -> object:
    return vault["visits"].ask(_SQL.format(where=""), epsilon=Decimal(5000 + number) / 10_000)


def _where(number: int) -> str:
    return f" WHERE cost >= {number}"


# name, how it is asked, whether its constant is in a filter
LINES: Final[tuple[tuple[str, Ask, bool], ...]] = (
    ("SQL, a new constant", _sql, True),
    ("Python, a new constant", _python, True),
    ("SQL, a new price (new noise)", _new_price, False),
)
_DOOR: Final = importlib.import_module(
    "sfumato.release.guarded_release"
)  # the name is its function's too
_QUERIES: Final = importlib.import_module("sfumato.features.queries.service").Queries
STEPS: Final = (
    ("parse", _QUERIES, "_request"),
    ("price", _DOOR, "priced_for"),
    ("draw", _DOOR, "_drawn"),
    ("charge", Ledger, "charge"),
    ("settle", Ledger, "settle"),
    ("show, receipt", _DOOR, "_released"),
)


def run(rows: int = ROWS, questions: int = QUESTIONS) -> list[dict[str, object]]:
    """Return a line for each way of asking: median and p95, beside plain SQL, and by step."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        source = Path(folder) / "rows.parquet"
        duckdb.sql(_SOURCE.format(people=max(1, rows // 10), rows=rows, path=source))
        with _open_vault(Path(folder), source) as vault, _plain_table(source) as plain:
            lines = [_line(vault, plain, line, questions) for line in LINES]
            plain_ms = statistics.median(_plain_times(plain, questions)) * 1000
            token = token_of(vault.house.desk.access, ASKER)
        for quantum_ms in QUANTA_MS:  # with it on, each takes a quarter of a second
            asked = questions if quantum_ms == 0 else max(2, questions // 5)
            lines.append(_over_http(Path(folder), token, quantum_ms, plain_ms, asked))
        fdatasync_ms = round(sync_ms(Path(folder)), 2)
    return [{**line, "fdatasync": fdatasync_ms} for line in lines]


def _open_vault(folder: Path, source: Path) -> OpenVault:
    sfumato.create(folder / "vault", anchor=folder / "anchor")
    vault = sfumato.open(folder / "vault")
    vault.add("visits", source, _CARD)
    vault.enrol(ASKER, "staff")
    return vault


def _plain_times(plain: duckdb.DuckDBPyConnection, questions: int) -> list[float]:
    times: list[float] = []
    for number in range(questions):
        _timed(times, partial(_plainly, plain, _SQL.format(where=_where(number))))
    return times


def _over_http(
    folder: Path, token: str, quantum_ms: int, plain_ms: float, questions: int
) -> dict[str, object]:
    """Return the line of questions to a service with such a quantum; no step of it is timed."""
    times: Times = {"plain": [plain_ms / 1000], "whole": []}
    begin = 10_000 + 1_000 * quantum_ms  # constants that nobody has asked for
    with (
        served(folder / "vault", "--quantum", str(quantum_ms)) as service,
        sfumato.connect(service.url, token=token) as vault,
    ):
        for number in range(begin, begin + WARM):
            _sql(vault, number)
        for number in range(begin + WARM, begin + WARM + questions):
            _timed(times["whole"], partial(_sql, vault, number))
    name = "off" if quantum_ms == 0 else f"{quantum_ms} ms"
    return {"question": f"SQL, a new constant, over HTTP, quantum {name}", **_over_plain(times)}


@contextmanager
def _plain_table(source: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE visits AS FROM '{source}'")
        yield connection


def _line(
    vault: OpenVault,
    plain: duckdb.DuckDBPyConnection,
    line: tuple[str, Ask, bool],
    questions: int,
) -> dict[str, object]:
    name, ask, is_filtered = line
    times: Times = defaultdict(list)
    for number in range(WARM):
        ask(vault, number)
    with _timed_steps(vault, times):
        for number in range(WARM, WARM + questions):
            sql = _SQL.format(where=_where(number) if is_filtered else "")
            _timed(times["plain"], partial(_plainly, plain, sql))
            _timed(times["whole"], partial(ask, vault, number))
    return {"question": name, **_figures(times)}


def _plainly(plain: duckdb.DuckDBPyConnection, sql: str) -> object:
    return plain.execute(sql).fetchall()


def _figures(times: Times) -> dict[str, object]:
    """Return milliseconds: the whole, what it is over plain SQL, and each step."""
    ms = {step: statistics.median(found) * 1000 for step, found in times.items()}
    known = sum(ms[step] for step, *_ in STEPS) + ms["engine"]
    steps = {step: ms[step] for step, *_ in STEPS[:4]}
    rest = {"engine": ms["engine"], "settle": ms["settle"], STEPS[5][0]: ms[STEPS[5][0]]}
    figures = {**steps, **rest, "the rest": ms["whole"] - known}
    return {**_over_plain(times), **{name: round(x, 2) for name, x in figures.items()}}


def _over_plain(times: Times) -> dict[str, object]:
    plain, whole = (statistics.median(times[what]) * 1000 for what in ("plain", "whole"))
    p95 = statistics.quantiles(times["whole"], n=20)[-1] * 1000 - plain
    found = {"plain": plain, "whole": whole, "over plain": whole - plain, "p95 over plain": p95}
    return {"target": TARGET_MS, **{name: round(x, 2) for name, x in found.items()}}


@contextmanager
def _timed_steps(vault: OpenVault, times: Times) -> Iterator[None]:
    """Time each step of a question while it is asked, from the outside."""
    places: list[tuple[str, Any, str]] = [*STEPS, ("engine", type(vault.house.engine), "measure")]
    with ExitStack() as stack:
        for step, owner, name in places:
            timed = _wrapped(getattr(owner, name), times[step])
            stack.enter_context(mock.patch.object(owner, name, timed))
        yield


def _wrapped(act: Callable[..., object], times: list[float]) -> Callable[..., object]:
    def timed(*given: object, **named: object) -> object:
        return _timed(times, partial(act, *given, **named))

    return timed


def _timed(times: list[float], act: Callable[[], object]) -> object:
    begun = time.perf_counter()
    answer = act()
    times.append(time.perf_counter() - begun)
    return answer


if __name__ == "__main__":
    for found in run():
        print(found, flush=True)
