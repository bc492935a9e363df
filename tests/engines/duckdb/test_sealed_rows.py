"""The embedded engine of a sealed vault: the same numbers, nothing open on the disk, no damage."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.duckdb.sealed_rows import write_sealed
from sfumato.engines.shared.memory_scratch import MemoryScratch
from sfumato.query.expression import Compare, Constant, Ref
from sfumato.query.measure import Measure, Tally
from sfumato.release.unseal import unseal
from sfumato.sandbox.ports import BlockColumn, SplitOrder
from sfumato.storage.run_folders import FileDrafts
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.encryption_at_rest import MAGIC, AtRest
from sfumato.vault.engine_port import CountPeriodOrder, EngineStopped
from support.encrypted_vaults import image, lies_open, memory
from support.engine_rows import SALT, answers, card_of, prepare, sketch_of, write_source
from support.process_tree import children, waited

KEY = bytes(range(7, 39))
CANARIES = [f"kanarienvogel-{n}" for n in range(40)]
HEADER = ["who", "word", "small", "day"]
ROWS = [
    [f"p{n % 211}", CANARIES[n % 40], str(n % 13 - 4), f"2026-01-{1 + n % 9:02d}"]
    for n in range(3000)
]
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "word": {"type": "text"},
    "small": {"type": "integer", "lower": -4, "upper": 9},
    "day": {"type": "date"},
}


CARD = card_of("who", COLUMNS)


@dataclass
class Two:
    """The same rows twice: as a sealed vault keeps them, and as any other does."""

    sealed: DuckDBEngine
    open: DuckDBEngine
    sealed_table: str
    open_table: str
    folder: Path
    memory: Path


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with memory() as made:
        yield made


def engine_of(scratch: Path, key: bytes = KEY) -> DuckDBEngine:
    shelter = MemoryScratch(key, SystemRandomSource().draw, FileDrafts(scratch))
    return DuckDBEngine(SALT, memory_mb=1024, threads=2, shelter=shelter)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, scratch: Path) -> Iterator[Two]:
    folder, given = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("given")
    opened, sealed = DuckDBEngine(SALT, memory_mb=1024, threads=2), engine_of(scratch)
    source = write_source(given / "s.csv", HEADER, ROWS)
    (folder / "open").mkdir()
    (folder / "sealed").mkdir()
    tables = []
    for name, engine in (("open", opened), ("sealed", sealed)):
        there = source.rename(folder / name / "s.csv")
        tables.append(prepare(engine, there, CARD)[0])
        source = there.rename(given / "s.csv")
    yield Two(sealed, opened, tables[1], tables[0], folder, scratch)
    sealed.close()
    opened.close()


def measures() -> list[Measure]:
    tallies = (Tally("rows"), Tally("sum", Ref("v1")), Tally("people"))
    few = Compare(Ref("v1"), ">", Constant.of(2))
    return [
        Measure(where, (), tallies, by_person, groups, rows)
        for where in (None, few)
        for by_person, groups, rows in ((False, 1, 1), (True, 1, 2), (True, 1, 50))
    ]


def test_every_number_is_that_of_an_unsealed_table(two: Two) -> None:
    for measure in measures():
        assert answers(two.sealed, two.sealed_table, measure) == answers(
            two.open, two.open_table, measure
        )


def test_no_value_lies_open_on_the_disk_while_it_is_asked_nor_in_memory_after(two: Two) -> None:
    answers(two.sealed, two.sealed_table, measures()[0])
    for name, is_found in (("open", True), ("sealed", False)):  # the open one is the control
        there = image(two.folder / name)
        assert any(canary.encode() in there for canary in CANARIES) is is_found, name
    for kept in (Path(two.sealed_table), sketch_of(Path(two.folder, "sealed", "s.csv"))):
        assert kept.read_bytes().startswith(MAGIC)
    assert lies_open(two.memory) == []


def test_a_worker_is_told_the_key_by_its_pipe_alone(two: Two) -> None:
    answers(two.sealed, two.sealed_table, measures()[0])
    pid = two.sealed.worker_pid()
    assert pid is not None
    for name in ("cmdline", "environ"):
        said = Path(f"/proc/{pid}/{name}").read_bytes()
        assert KEY.hex().encode() not in said
        assert KEY not in said


def places_of(size: int) -> list[int]:
    return sorted({0, 15, 16, 47, 48, 49, size - 1, *range(50, size, max(1, size // 5))})


def test_what_was_changed_in_a_table_stops_every_question(two: Two, tmp_path: Path) -> None:
    whole, name = Path(two.sealed_table).read_bytes(), Path(two.sealed_table).name
    (tmp_path / name).write_bytes(whole)
    (Path(tmp_path, f"{name}.json")).write_bytes(Path(f"{two.sealed_table}.json").read_bytes())
    table, rows = str(tmp_path / name), measures()[0]
    assert answers(two.sealed, table, rows) == answers(two.open, two.open_table, rows)
    damaged = [
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places_of(len(whole))),
        whole[:-1], whole[: len(whole) // 2], b"", whole + b"\0",
        Path(two.open_table).read_bytes(),  # nor is an unsealed one taken for ours
    ]  # fmt: skip
    for number, file in enumerate(damaged):
        (tmp_path / name).write_bytes(file)
        os.utime(tmp_path / name, ns=(number, number))  # another file, for a worker that has one
        with pytest.raises(EngineStopped):
            two.sealed.measure(table, rows)


def test_a_table_that_lies_under_anothers_name_is_not_taken_for_it(
    two: Two, tmp_path: Path
) -> None:
    (tmp_path / "other.duckdb").write_bytes(Path(two.sealed_table).read_bytes())
    with pytest.raises(EngineStopped):
        two.sealed.measure(str(tmp_path / "other.duckdb"), measures()[0])


def test_another_key_opens_no_table(two: Two, scratch: Path) -> None:
    other = engine_of(scratch, bytes(32))
    with pytest.raises(EngineStopped):
        other.measure(two.sealed_table, measures()[0])
    other.close()


def test_known_people_are_recognised_by_sealed_sketches_and_by_damaged_ones(
    two: Two, tmp_path: Path
) -> None:
    sketch = sketch_of(Path(two.folder, "sealed", "s.csv"))
    (tmp_path / sketch.name).write_bytes(sketch.read_bytes()[:-1])
    same, others = tmp_path / "same.csv", tmp_path / "others.csv"
    write_source(same, HEADER, ROWS)
    write_source(others, HEADER, [[f"q{n}", f"new{n}", "1", "2026-01-01"] for n in range(300)])
    known, damaged = (("town", str(sketch)),), (("lost", str(tmp_path / sketch.name)),)
    for source, sketches, found in (
        (same, known, ("town",)), (others, known, ()), (others, damaged, ("lost",)),
    ):  # fmt: skip
        _, prepared = prepare(two.sealed, source, CARD, sketches=sketches)
        assert prepared.same_people == found


def test_a_streams_state_is_sealed_and_counts_on_as_it_would_unsealed(
    two: Two, tmp_path: Path
) -> None:
    found = {}
    for engine, table in ((two.sealed, two.sealed_table), (two.open, two.open_table)):
        before, blocks = None, []
        for end in (1, 2, 3):
            place = tmp_path / engine_name(engine, two) / str(end)
            place.mkdir(parents=True)
            order = CountPeriodOrder(
                table=table, where=Compare(Ref("v1"), ">", Constant.of(end)), rows=20,
                end=end, first=1, before=before, target=str(place / "used.duckdb"), most_rows=3000,
            )  # fmt: skip
            blocks.append([part.tolist() for part in unseal(engine.count_period(order)).parts])
            before = order.target
        found[engine_name(engine, two)] = blocks
    assert found["sealed"] == found["open"]
    assert len({str(block) for block in found["open"]}) == 3
    kept = sorted(tmp_path.glob("sealed/*/*"))
    assert [path.name for path in kept] == ["used.duckdb"] * 3
    assert all(path.read_bytes().startswith(MAGIC) for path in kept)
    assert lies_open(two.memory) == []


def engine_name(engine: DuckDBEngine, two: Two) -> str:
    return "sealed" if engine is two.sealed else "open"


def test_what_waits_in_a_log_is_not_put_away_without_it(tmp_path: Path) -> None:
    rest, made, target = (
        AtRest(KEY, SystemRandomSource().draw),
        tmp_path / "used.duckdb",
        tmp_path / "out",
    )
    made.write_bytes(b"all but the last rows")
    (tmp_path / "used.duckdb.wal").write_bytes(b"the last rows")
    with pytest.raises(OSError, match="waits in a log"):
        write_sealed(rest, made, target, target.name)
    assert not target.exists()
    (tmp_path / "used.duckdb.wal").unlink()
    write_sealed(rest, made, target, target.name)
    assert rest.decrypt(target.name, target.read_bytes()) == made.read_bytes()


def test_blocks_are_split_alike(two: Two, tmp_path: Path) -> None:
    laid = []
    for engine, table in ((two.sealed, two.sealed_table), (two.open, two.open_table)):
        target = tmp_path / engine_name(engine, two)
        target.mkdir()
        columns = (BlockColumn("small", 1, "integer", Fraction(1)),)
        order = SplitOrder(table, "who", columns, 3, bytes(32), str(target), 3000)
        laid.append([Path(path).read_text() for path in engine.split(order)])
    assert laid[0] == laid[1]
    assert sum(len(block) for block in laid[0]) > 3000


def test_peoples_folders_are_refused_before_a_row_is_read(two: Two, tmp_path: Path) -> None:
    bids = {"files": ["anat/{sub}_T1w.nii.gz"], "people": 300, "person_mb": 1}
    said = card_of("participant_id", COLUMNS, bids=bids)
    with pytest.raises(Refused) as refused:
        prepare(two.sealed, tmp_path / "absent.csv", said)
    assert refused.value.code == "at-rest-not-possible"


def test_a_worker_that_is_killed_takes_what_lay_open_with_it(two: Two) -> None:
    answers(two.sealed, two.sealed_table, measures()[0])
    pid = two.sealed.worker_pid()
    assert pid is not None
    life = os.pidfd_open(pid)
    os.kill(pid, 9)
    assert select.select([life], [], [], 60)[0]  # before, the next question may still go to it
    os.close(life)
    assert waited(lambda: not children(os.getpid()) & {pid} or not _has_memory(pid))
    assert lies_open(two.memory) == []
    assert answers(two.sealed, two.sealed_table, measures()[0])


def _has_memory(pid: int) -> bool:
    try:
        return any("memfd:rows" in os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
