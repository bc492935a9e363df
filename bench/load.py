"""Measure how many requests a second a served vault answers, with its load generator beside it.

The vault has a million rows, one for each person. A real `sfumato serve` runs with its keeper,
edge, door and worker. Another process sends requests over open connections. Each question is
different, so no answer comes from the cache, and each is charged and synced to the disk. The load
generator uses a part of the same two cores, so the table states its share of the processor and the
load of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import duckdb

import sfumato
from sfumato.features.access.service import Access
from sfumato.vault.users import Caller

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import Service, served, start

ROWS: Final = 1_000_000
SECONDS: Final = 8.0
WARM_S: Final = 2.0
KINDS: Final = 81_000  # how many questions there are, before the first one comes again
ASKED: Final = 150  # questions that stand already, for debits without a look at the rows
CARD: Final[dict[str, object]] = {
    "unit": "row",
    "budget": {"epsilon": 1000},
    "ask": {"who": ["staff"]},
    "limits": {"rows": 10**7},
    "columns": {
        "age": {"type": "integer", "lower": 0, "upper": 1000},
        "paid": {"type": "integer", "lower": 0, "upper": 1000},
        "ward": {"type": "text", "keys": [f"w{number:02}" for number in range(97)]},
    },
}
# Columns that say nothing of each other: hashes that share an argument do.
_SOURCE: Final = """COPY (SELECT CAST(hash(2 * i) % 1000 AS INTEGER) AS age,
    CAST(hash(2 * i + 1) % 1000 AS INTEGER) AS paid,
    printf('w%02d', CAST(hash(-i - 1) % 97 AS INTEGER)) AS ward
    FROM range({rows}) r(i)) TO '{path}'"""
Next = Callable[[int], bytes]  # a client's next request


@dataclass
class Told:
    """What the requests of one load came to."""

    times_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry_after: int = 0

    def at(self, share: float) -> float:
        """Return the time that so many of the requests were answered within."""
        ordered = sorted(self.times_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def run(rows: int = ROWS, seconds: float = SECONDS) -> list[dict[str, object]]:
    """Return a line for each kind of load."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        vault, tokens = _vault(Path(folder), rows)
        lines = _starts(vault)
        with served(vault, "--quantum", "0") as service:
            fresh = count(ASKED)
            lines += [
                line("budget reads, 16 clients", service, _budget(tokens), 16, seconds),
                line("debits without rows, 16 clients", service, _repeats(tokens), 16, None),
                line("counts, 16 clients", service, _counts(tokens, fresh), 16, seconds),
                line("counts by 97 keys, 16 clients", service, _groups(tokens, fresh), 16, seconds),
                line("counts, 200 clients", service, _counts(tokens, fresh), 200, seconds),
            ]
            lines += _half_open(service, tokens, seconds)
            lines.append({"load": "all of its processes", "MB": _megabytes(service.process.pid)})
        with served(vault, "--quantum", "250") as service:
            made = _counts(tokens, fresh)
            lines.append(line("counts, 16 clients, quantum 250 ms", service, made, 16, seconds))
    return lines


def _vault(folder: Path, rows: int) -> tuple[Path, list[str]]:
    """Return the vault, and a token of each of its sixteen users."""
    vault, source = folder / "vault", folder / "rows.parquet"
    duckdb.sql(_SOURCE.format(rows=rows, path=source))
    sfumato.create(vault, anchor=folder / "anchor")
    with sfumato.open(vault) as opened:
        opened.add("people", source, CARD)
        names = [f"user{number}" for number in range(16)]
        for name in names:
            opened.enrol(name, "staff")
        tokens = [token_of(opened.house.desk.access, name) for name in names]
        for number in range(ASKED):
            opened["people"].ask(_sql(number), epsilon=0.001)
    return vault, tokens


def _starts(vault: Path) -> list[dict[str, object]]:
    begun = time.monotonic()
    service = start(vault)
    first = time.monotonic() - begun
    service.owner()
    service.kill()
    begun = time.monotonic()
    again = start(vault)
    ready = time.monotonic() - begun
    again.process.terminate()
    again.process.wait()
    for one in (service, again):
        if one.process.stderr is not None:
            one.process.stderr.close()
    return [{"load": "start", "s": first}, {"load": "ready after kill -9", "s": ready}]


def token_of(access: Access, name: str) -> str:
    """Return the token of a user who has come in, in this process: over HTTP it takes minutes."""
    operator = Caller("the bench", frozenset({"operate"}))
    invitation = access.invite(operator, name, ["researcher"])["invitation"]
    return str(access.take_up(str(invitation), _WORD, name)["token"])


_WORD: Final = "soft edges, no outline"  # the tests' own


def _sql(number: int) -> str:
    low, high = number % 900, 901 + number // 900 % (KINDS // 900)
    return f"SELECT COUNT(*) AS n FROM people WHERE age > {low} AND paid < {high}"


def _sql_by_ward(number: int) -> str:
    plain = _sql(number)
    return plain.replace("SELECT", "SELECT ward,") + " GROUP BY ward"


def _megabytes(process: int) -> int:
    """Return what it and all below it have in memory; what they share counts for each."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    below = [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return (int(found[1]) // 1024 if found else 0) + sum(map(_megabytes, below))


def _budget(tokens: Sequence[str]) -> Next:
    return lambda client: request("GET", "/v1/data-sets/people/budget", tokens[client % 16])


def _counts(tokens: Sequence[str], numbers: Iterator[int]) -> Next:
    return lambda client: _asking(tokens[client % 16], next(numbers))


def _groups(tokens: Sequence[str], numbers: Iterator[int]) -> Next:
    return lambda client: _asking(tokens[client % 16], next(numbers), _sql_by_ward)


def _repeats(tokens: Sequence[str]) -> Next:
    mine = [iter(range(ASKED)) for _ in tokens]
    return lambda client: _asking(tokens[client], next(mine[client]))


def _asking(token: str, number: int, sql: Callable[[int], str] = _sql) -> bytes:
    body = json.dumps({"sql": sql(number), "epsilon": 0.001}).encode()
    return request("POST", "/v1/data-sets/people/ask", token, body)


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def line(
    name: str, service: Service, make: Next, clients: int, seconds: float | None
) -> dict[str, object]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.monotonic()
    told = asyncio.run(_load(_port(service), make, clients, seconds))
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    measured = wall - (WARM_S if seconds is not None else 0)
    return {
        "load": name,
        "a second": len(told.times_ms) / measured,
        "p50 ms": told.at(0.5),
        "p99 ms": told.at(0.99),
        "statuses": dict(told.statuses),
        "no Retry-After": told.without_retry_after,
        "generator's CPU": f"{100 * used / wall:.0f} %",
        "machine's load": os.getloadavg()[0],
    }


def _half_open(service: Service, tokens: Sequence[str], seconds: float) -> list[dict[str, object]]:
    """Return the budget reads of others beside five hundred sockets that never end their heads."""
    make = _budget(tokens)
    alone = line("budget reads, 4 clients", service, make, 4, seconds)
    beside = asyncio.run(_beside_half_open(_port(service), make, seconds))
    return [
        alone,
        {
            "load": "the same beside 500 half-open sockets",
            "p50 ms": beside.at(0.5),
            "p99 ms": beside.at(0.99),
            "statuses": dict(beside.statuses),
        },
    ]


async def _beside_half_open(port: int, make: Next, seconds: float) -> Told:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(500)]
    for _, writer in opened:
        writer.write(b"GET /v1/me HTTP/1.1\r\nHost: local")
    try:
        return await _load(port, make, 4, seconds)
    finally:
        for _, writer in opened:
            writer.close()


async def _load(port: int, make: Next, clients: int, seconds: float | None) -> Told:
    told = Told()
    now = time.monotonic()
    begin, end = (now + WARM_S, now + WARM_S + seconds) if seconds is not None else (now, None)
    await asyncio.gather(*(_client(port, make, c, told, (begin, end)) for c in range(clients)))
    return told


async def _client(
    port: int, make: Next, client: int, told: Told, when: tuple[float, float | None]
) -> None:
    begin, end = when
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while end is None or time.monotonic() < end:
        try:
            request = make(client)
        except StopIteration:
            break
        begun = time.monotonic()
        writer.write(request)
        status, has_retry_after = await _reply(reader)
        now = time.monotonic()
        if begun >= begin:
            told.statuses[status] += 1
            told.without_retry_after += status in (429, 503) and not has_retry_after
            if status == 200:
                told.times_ms.append((now - begun) * 1000)
        if status in (429, 503):
            await asyncio.sleep(0.05)
    writer.close()


async def _reply(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(length)
    return int(head[9:12]), b"retry-after:" in head


def _port(service: Service) -> int:
    return int(service.url.rpartition(":")[2])


def main() -> None:
    """Print the table."""
    from bench.__main__ import table

    print(table(run()), flush=True)


if __name__ == "__main__":
    main()
