"""Spark as an engine: killable, silent, and the same on a real standalone cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.spark.engine import SparkEngine, SparkLimits
from sfumato.query.expression import All, Arithmetic, Compare, Constant, LiteralValue, Ref
from sfumato.query.measure import Key, Measure, PhysicalPersonColumn, PhysicalPersonTable, Tally
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import CountPeriodOrder, EngineStopped
from support.engine_rows import (
    SALT,
    added_up,
    answers,
    card_of,
    numbers,
    prepare,
    stored_rows,
    write_source,
)
from support.kernel_oracle import kernel_order, orders_by_kernel
from support.spark_cluster import SMALL, cluster, local_place

HEADER = ["who", "place", "cost"]
PLACES = ["a", "b", "c", "d", "e"]
CARD = card_of(
    "who",
    {
        "place": {"type": "text", "keys": PLACES},
        "cost": {"type": "integer", "lower": -(10**9), "upper": 10**9},
    },
)
TALLIES = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1")), Tally("values", Ref("v1")))
RANKED = Measure(None, (Key(Ref("k0"), 5),), TALLIES, True, 2, 3)
COLD = replace(RANKED, where=Compare(Ref("v1"), ">", Constant.of(0)))
PRIVATE = replace(
    RANKED, keys=(Key(Ref("v0"), None), Key(Arithmetic("/", Ref("v1"), Ref("v1")), None))
)
CLAMPED = replace(COLD, tallies=(Tally("sum", Ref("v1"), clamp=(0, 10**9)), Tally("people")))
FEW = replace(
    COLD, tallies=(Tally("distinct", Ref("v0"), max_distinct=1), Tally("people")), keys=()
)
PEOPLE = Measure(
    Compare(Ref("u0"), ">", Constant.of(3)), (Key(Ref("u0"), 30),), (Tally("sum", Ref("u1")),),
    True, 1, 1,
    PhysicalPersonTable(
        None, (PhysicalPersonColumn("rows"), PhysicalPersonColumn("max", Ref("v1"))), 5
    ),
)  # fmt: skip
COMPUTED = replace(COLD, keys=(Key(Arithmetic("+", Ref("k0"), LiteralValue(Constant.of(0))), 5),))
MEASURES = (RANKED, COLD, PRIVATE, CLAMPED, FEW, PEOPLE, COMPUTED)


def write_visits(path: Path) -> Path:
    dice = random.Random(1)
    rows = [
        [
            f"p{dice.randrange(12)}",
            dice.choice(PLACES),
            "" if not i % 17 else dice.randint(-99, 10**9),
        ]
        for i in range(300)
    ]
    return write_source(path, HEADER, rows)


@pytest.fixture(scope="module")
def engine() -> Iterator[SparkEngine]:
    made = SparkEngine(SALT, local_place(), SMALL, memory_mb=512)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare(engine, write_visits(tmp_path_factory.mktemp("spark") / "s.csv"), CARD)[0]


def test_a_standalone_cluster_counts_what_duckdb_and_a_plain_reading_count(tmp_path: Path) -> None:
    duck = DuckDBEngine(SALT, memory_mb=512, threads=1)
    twin, _ = prepare(duck, write_visits(tmp_path / "twin.csv"), CARD)
    rows = stored_rows(twin)
    with cluster() as place:
        limits = replace(SMALL, partitions=2)
        engine = SparkEngine(SALT, place, limits, memory_mb=512)
        table, _ = prepare(engine, write_visits(tmp_path / "s.csv"), CARD)
        for measure in MEASURES:
            found = numbers(engine, table, measure)
            order = kernel_order if orders_by_kernel(table, measure, "spark") else None
            assert found == added_up(measure, rows, order=order), measure
            assert found == numbers(duck, twin, measure), measure
        engine.close()
    duck.close()


def test_a_killed_driver_stops_one_question_only(engine: SparkEngine, table: str) -> None:
    before = answers(engine, table, COLD)
    pid = engine.worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _wait_until_gone(pid)
    assert answers(engine, table, COLD) == before
    assert engine.worker_pid() != pid


def test_a_deadline_ends_the_driver_and_its_jvm(engine: SparkEngine, table: str) -> None:
    hasty = SparkEngine(SALT, local_place(), SparkLimits(512, 1, deadline_s=2), memory_mb=512)
    with pytest.raises(EngineStopped) as stopped:  # no JVM is up and asked in two seconds
        hasty.measure(table, COLD)
    assert stopped.value.__context__ is None
    assert hasty.worker_pid() is None
    hasty.close()
    assert sum(answers(engine, table, COLD)[1]) > 0


def test_no_other_process_is_left_behind(table: str) -> None:
    engine = SparkEngine(SALT, local_place(), SMALL, memory_mb=512)
    answers(engine, table, RANKED)
    pid = engine.worker_pid()
    assert pid is not None
    jvms = [found for found in _children(pid) if found != pid]
    assert jvms
    engine.close()
    for found in (pid, *jvms):
        _wait_until_gone(found)


def test_rows_of_others_are_never_counted_under_the_names_of_those_before(tmp_path: Path) -> None:
    """A second preparation stops when it has put the first of its two files in place."""
    more = {"more": {"columns": {"cost": {"type": "integer"}}}}
    card = card_of("who", {"cost": {"type": "integer"}}, tables=more)
    first, second = (["ann", "bob"], ["cid", "dot"])
    engine = SparkEngine(SALT, memory_mb=512)  # its JVM is not needed
    try:
        table = prepared_pair(engine, tmp_path, card, first)
        Path(f"{table}_1.parquet").unlink()
        Path(f"{table}_1.parquet").mkdir()
        with pytest.raises(IsADirectoryError):
            prepared_pair(engine, tmp_path, card, second)
        assert not Path(table).exists()
        order = CountPeriodOrder(table, All(()), 1, 1, 1, None, str(tmp_path / "used.duckdb"), 10)
        with pytest.raises(EngineStopped):
            engine.count_period(order)
    finally:
        engine.close()


def prepared_pair(engine: SparkEngine, folder: Path, card: Card, people: list[str]) -> str:
    """Prepare two tables of these people; return where what is said of them lies."""
    rows = [[who, "1"] for who in people]
    sources = [write_source(folder / f"{name}.csv", ["who", "cost"], rows) for name in "ab"]
    return prepare(engine, sources[0], card, others=sources[1:])[0]


def test_neither_salt_nor_secret_is_on_a_command_line(engine: SparkEngine, table: str) -> None:
    answers(engine, table, COLD)
    pid = engine.worker_pid()
    assert pid is not None
    for found in (pid, *_children(pid)):
        for name in ("cmdline", "environ"):
            try:
                said = Path(f"/proc/{found}/{name}").read_bytes()
            except OSError:
                continue
            assert SALT.hex().encode() not in said


def test_the_embedded_path_imports_neither_driver() -> None:
    text = (
        "import sys; import sfumato, sfumato.app.vault, sfumato.engines.duckdb.engine, sfumato.engines.duckdb.worker;"  # noqa: E501
        "import sfumato.engines.postgres.engine, sfumato.engines.spark.engine, sfumato.app.engine;"
        "print([m for m in sys.modules if m.split('.')[0] in ('psycopg', 'pyspark', 'py4j')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "[]"


def _children(pid: int) -> list[int]:
    """Return the processes of the session that the process leads."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _wait_until_gone(pid: int) -> None:
    """Wait until all threads of it are gone; its first may be a zombie while others still end."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if _is_gone(pid):
            return
        time.sleep(0.05)
    raise AssertionError("a process lives on")


def _is_gone(pid: int) -> bool:
    try:  # a child of ours: it can be waited for
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        pass
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
