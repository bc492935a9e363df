"""Counting a period on DuckDB: by brute force, one person moves the blocks by c levels, no other.

A world is a list of versions; each day is closed on one of them. Late rows, people with too many
rows, people who leave and come back are all in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb
import pytest

from engine_rows import SALT, card_of, prepare, write_source
from sfumato.core.expression import All, Compare, Constant, Predicate, Ref
from sfumato.core.noise.tree import Tree
from sfumato.core.ports import EngineStopped, TakeOrder
from sfumato.door.unseal import unseal
from sfumato.engines.duckdb import DuckDBEngine
from streams import taken_by_hand

Row = tuple[str, int, str]  # who, day of January, sick
Version = Sequence[Row]
CARD = card_of("who", {"day": {"type": "date"}, "sick": {"type": "boolean"}})
DAYS, MOST, TREE = 6, 2, Tree(6, 2)
CLOSED_ON = (0, 0, 1, 1, 2, 2)  # the version that each day is closed on
PEOPLE = ("ann", "bob", "cid", "dot", "eve")


@dataclass(frozen=True)
class Seen:
    """What a world gave: the exact blocks, and what is kept of everybody at the end."""

    blocks: list[int]
    used: Counter[int]  # how many people have used so many rows


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=1)
    yield made
    made.close()


def on_day(day: int) -> Predicate:
    """Return the condition: of that day, and sick."""
    dates = [Constant("date", f"2026-01-{n:02d}") for n in (day, day + 1)]
    return All(
        (
            Compare(Ref("v0"), ">=", dates[0]),
            Compare(Ref("v0"), "<", dates[1]),
            Compare(Ref("v1"), "=", Constant.of(True)),
        )
    )


def write(folder: Path, name: str, rows: Version) -> Path:
    cells = [[who, f"2026-01-{day:02d}", sick] for who, day, sick in rows]
    return write_source(folder / f"{name}.tsv", ["who", "day", "sick"], cells)


def tables_of(engine: DuckDBEngine, folder: Path, world: Sequence[Version]) -> list[str]:
    made = []
    for place, rows in enumerate(world):
        (folder / str(place)).mkdir(parents=True)
        source = write(folder / str(place), "s", rows)
        made.append(prepare(engine, source, CARD)[0])
    return made


def order(folder: Path, table: str, day: int, before: str | None, *, most: int = MOST) -> TakeOrder:
    """Return the order to take a day of the tree; what is to be kept gets a folder of its own."""
    target = folder / f"took-{day}"
    target.mkdir()
    first = int(TREE.before()[day - 1]) + 1
    return TakeOrder(
        table, on_day(day), most, day, first, before, str(target / "used.duckdb"), 10**6
    )


def seen(engine: DuckDBEngine, folder: Path, world: Sequence[Version]) -> Seen:
    """Close every day on its version."""
    tables, before, blocks = tables_of(engine, folder, world), None, []
    for day in range(1, DAYS + 1):
        asked = order(folder, tables[CLOSED_ON[day - 1]], day, before)
        (part,) = unseal(engine.take(asked)).parts
        blocks.append(int(part[0]))
        before = asked.target
    return Seen(blocks, used_in(before or ""))


def used_in(kept: str) -> Counter[int]:
    with duckdb.connect(kept, read_only=True) as connection:
        return Counter(n for (n,) in connection.execute("SELECT rows FROM used").fetchall())


def rows_of(world: Sequence[Version], day: int) -> dict[str, int]:
    """Return everybody's rows of the day, in the version that it is closed on."""
    here = [r for r in world[CLOSED_ON[day - 1]] if r[1] == day and r[2] == "yes"]
    return dict(Counter(who for who, _, _ in here))


def by_hand(world: Sequence[Version]) -> Seen:
    taken = taken_by_hand([rows_of(world, day) for day in range(1, DAYS + 1)], MOST)
    counts = [sum(day.values()) for day in taken]
    first = TREE.before().tolist()
    used: Counter[str] = Counter()
    for day in taken:
        used.update(day)
    blocks = [sum(counts[first[end - 1] : end]) for end in range(1, DAYS + 1)]
    return Seen(blocks, Counter(n for n in used.values() if n))


def without(world: Sequence[Version], who: str) -> list[Version]:
    return [[row for row in version if row[0] != who] for version in world]


def random_world(seed: int) -> list[Version]:
    """Return three versions: each has rows of all days, so that many are late when it comes."""
    dice = Random(seed)

    def version() -> Version:
        some = dice.sample(PEOPLE, dice.randrange(3, 6))
        return [
            (dice.choice(some), dice.randrange(1, DAYS + 1), dice.choice(["yes", "yes", "no"]))
            for _ in range(dice.randrange(8, 30))
        ]

    return [version() for _ in range(3)]


def moved(one: Seen, other: Seen) -> int:
    return sum(abs(a - b) for a, b in zip(one.blocks, other.blocks, strict=True))


@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_is_removed_moves_the_blocks_by_no_more_than_c_levels(
    engine: DuckDBEngine, tmp_path: Path, seed: int
) -> None:
    world = random_world(seed)
    whole = seen(engine, tmp_path / "whole", world)
    assert whole == by_hand(world)
    for who in PEOPLE:
        less = without(world, who)
        rest = seen(engine, tmp_path / who, less)
        assert rest == by_hand(less)  # so nobody else's rows count more or less without them
        assert moved(whole, rest) <= MOST * TREE.levels


def test_a_person_with_all_rows_on_the_first_day_moves_them_by_just_that(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    """Ann has more rows than count, on all days, in every version, and late ones too."""
    many = [("ann", day, "yes") for day in range(1, DAYS + 1) for _ in range(5)]
    world = [[*many, ("bob", 2, "yes")], [*many, *many], many]
    whole = seen(engine, tmp_path / "with", world)
    rest = seen(engine, tmp_path / "without", without(world, "ann"))
    assert moved(whole, rest) == MOST * TREE.levels == 6
    assert whole.used == Counter({2: 1, 1: 1})


def test_a_person_who_leaves_and_comes_back_has_what_was_left(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    world: list[Version] = [
        [("ann", 1, "yes"), ("bob", 2, "yes")],
        [("bob", 3, "yes"), ("bob", 4, "yes")],
        [("ann", 5, "yes"), ("ann", 6, "yes"), ("bob", 6, "yes")],
    ]
    assert seen(engine, tmp_path, world) == by_hand(world)
    assert by_hand(world) == Seen([1, 2, 1, 3, 1, 1], Counter({2: 2}))


def test_who_used_what_is_known_when_others_come_and_the_codes_of_people_shift(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    first = [(f"p{n}", 1, "yes") for n in range(10) for _ in range(MOST)]
    others = [(f"q{n}", 6, "yes") for n in range(30)]
    again = [(f"p{n}", 3, "yes") for n in range(10)]
    found = seen(engine, tmp_path, [first, [*others, *again], []])
    assert found == Seen([20, 20, 0, 20, 0, 0], Counter({MOST: 10}))


def test_late_rows_count_for_nobody(engine: DuckDBEngine, tmp_path: Path) -> None:
    world: list[Version] = [
        [("ann", 1, "yes")],
        [("ann", 1, "yes"), ("ann", 2, "yes"), ("bob", 1, "yes"), ("ann", 3, "yes")],
        [("bob", 1, "yes"), ("bob", 2, "yes"), ("bob", 5, "yes"), ("bob", 6, "yes")],
    ]
    assert seen(engine, tmp_path, world).blocks == [1, 1, 1, 2, 1, 2]


def test_a_person_whose_rows_do_not_pass_the_filter_uses_none(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    world: list[Version] = [[("ann", 1, "no")] * 5, [("ann", 3, "no"), ("ann", 4, "yes")], []]
    found = seen(engine, tmp_path, world)
    assert found == Seen([0, 0, 0, 1, 0, 0], Counter({1: 1}))


def test_what_is_kept_is_private_and_names_nobody(engine: DuckDBEngine, tmp_path: Path) -> None:
    (table,) = tables_of(engine, tmp_path, [[("canary-7", 1, "yes"), ("canary-8", 1, "yes")]])
    asked = order(tmp_path, table, 1, None)
    engine.take(asked)
    kept = Path(asked.target)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert b"canary" not in kept.read_bytes()
    assert [path.name for path in kept.parent.iterdir()] == ["used.duckdb"]
    with duckdb.connect(asked.target, read_only=True) as connection:
        names = [bytes(who) for (who,) in connection.execute("SELECT who FROM used").fetchall()]
    assert {len(name) for name in names} == {32}
    assert names == sorted(names)  # the order of keyed digests, not of the rows


def test_the_file_of_a_day_is_its_own_and_the_one_before_stays(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    (table,) = tables_of(engine, tmp_path, [[("ann", 1, "yes"), ("ann", 2, "yes")]])
    first = order(tmp_path, table, 1, None)
    engine.take(first)
    before = Path(first.target).read_bytes()
    engine.take(order(tmp_path, table, 2, first.target))
    assert Path(first.target).read_bytes() == before


@pytest.mark.parametrize("broken", ["table", "before"])
def test_whatever_goes_wrong_is_one_constant_word(
    engine: DuckDBEngine, tmp_path: Path, broken: str
) -> None:
    (table,) = tables_of(engine, tmp_path, [[("canary", 1, "yes")]])
    junk = tmp_path / "junk.duckdb"
    junk.write_bytes(b"no table at all" * 1000)
    asked = order(tmp_path, str(junk) if broken == "table" else table, 1, None)
    if broken == "before":
        asked = TakeOrder(**{**asked.__dict__, "before": str(junk)})
    with pytest.raises(EngineStopped) as stopped:
        engine.take(asked)
    assert str(stopped.value) == "the engine stopped"
    assert stopped.value.__context__ is None
