"""Counting a period, on every engine: by brute force, one person moves the blocks by c levels.

A world is a list of versions; each day is closed on one of them. Late rows, people with too many
rows, people who leave and come back are all in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random

import duckdb
import pytest

from sfumato.app.engine import VaultEngine
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Predicate,
    Ref,
    StartsWith,
)
from sfumato.query.measure import Measure, Tally
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import CountPeriodOrder, EngineStopped
from support.engine_rows import SALT, answers, card_of, prepare, write_source
from support.stream_oracle import taken_by_hand

Maker = Callable[[bytes], VaultEngine]
Row = tuple[str, int, str]  # who, day of January, sick
Version = Sequence[Row]
CARD = card_of("who", {"day": {"type": "date"}, "sick": {"type": "boolean"}})
DAYS, MOST, TREE = 6, 2, Tree(6, 2)
CLOSED_ON = (0, 0, 1, 1, 2, 2)  # the version that each day is closed on
PEOPLE = ("ann", "bob", "cid", "dot", "eve")
SEEDS = {"duckdb": (1, 2), "postgres": (1,), "spark": (1,)}  # of random worlds
REMOVED = {"duckdb": PEOPLE, "postgres": PEOPLE[:2], "spark": PEOPLE[:1]}


@dataclass(frozen=True)
class Seen:
    """What a world gave: the exact blocks, and what is kept of everybody at the end."""

    blocks: list[int]
    used: Counter[int]  # how many people have used so many rows


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[VaultEngine]:
    made = make_engine(SALT)
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


def tables_of(engine: VaultEngine, folder: Path, world: Sequence[Version]) -> list[str]:
    made = []
    for place, rows in enumerate(world):
        (folder / str(place)).mkdir(parents=True)
        source = write(folder / str(place), "s", rows)
        made.append(prepare(engine, source, CARD)[0])
    return made


def order(
    folder: Path, table: str, day: int, before: str | None, *, most: int = MOST
) -> CountPeriodOrder:
    """Return the order to take a day of the tree; what is to be kept gets a folder of its own."""
    target = folder / f"took-{day}"
    target.mkdir()
    first = int(TREE.before()[day - 1]) + 1
    return CountPeriodOrder(
        table, on_day(day), most, day, first, before, str(target / "used.duckdb"), 10**6
    )


def seen(engine: VaultEngine, folder: Path, world: Sequence[Version]) -> Seen:
    """Close every day on its version."""
    tables, before, blocks = tables_of(engine, folder, world), None, []
    for day in range(1, DAYS + 1):
        asked = order(folder, tables[CLOSED_ON[day - 1]], day, before)
        (part,) = unseal(engine.count_period(asked)).parts
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


def test_whoever_is_removed_moves_the_blocks_by_no_more_than_c_levels(
    engine: VaultEngine, kind: str, tmp_path: Path
) -> None:
    for seed in SEEDS[kind]:
        check_removals(engine, tmp_path / str(seed), random_world(seed), REMOVED[kind])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_more_worlds_in_which_everyone_is_removed_in_turn(
    engine: VaultEngine, tmp_path: Path, seed: int
) -> None:
    check_removals(engine, tmp_path, random_world(seed), PEOPLE)


def check_removals(
    engine: VaultEngine, folder: Path, world: Sequence[Version], people: Sequence[str]
) -> None:
    whole = seen(engine, folder / "whole", world)
    assert whole == by_hand(world)
    for who in people:
        less = without(world, who)
        rest = seen(engine, folder / who, less)
        assert rest == by_hand(less)  # so nobody else's rows count more or less without them
        assert moved(whole, rest) <= MOST * TREE.levels


def test_a_person_with_all_rows_on_the_first_day_moves_them_by_just_that(
    engine: VaultEngine, tmp_path: Path
) -> None:
    """Ann has more rows than count, on all days, in every version, and late ones too."""
    many = [("ann", day, "yes") for day in range(1, DAYS + 1) for _ in range(5)]
    world = [[*many, ("bob", 2, "yes")], [*many, *many], many]
    whole = seen(engine, tmp_path / "with", world)
    rest = seen(engine, tmp_path / "without", without(world, "ann"))
    assert moved(whole, rest) == MOST * TREE.levels == 6
    assert whole.used == Counter({2: 1, 1: 1})


def test_a_person_who_leaves_and_comes_back_has_what_was_left(
    engine: VaultEngine, tmp_path: Path
) -> None:
    world: list[Version] = [
        [("ann", 1, "yes"), ("bob", 2, "yes")],
        [("bob", 3, "yes"), ("bob", 4, "yes")],
        [("ann", 5, "yes"), ("ann", 6, "yes"), ("bob", 6, "yes")],
    ]
    assert seen(engine, tmp_path, world) == by_hand(world)
    assert by_hand(world) == Seen([1, 2, 1, 3, 1, 1], Counter({2: 2}))


def test_who_used_what_is_known_when_others_come_and_the_codes_of_people_shift(
    engine: VaultEngine, tmp_path: Path
) -> None:
    first = [(f"p{n}", 1, "yes") for n in range(10) for _ in range(MOST)]
    others = [(f"q{n}", 6, "yes") for n in range(30)]
    again = [(f"p{n}", 3, "yes") for n in range(10)]
    found = seen(engine, tmp_path, [first, [*others, *again], []])
    assert found == Seen([20, 20, 0, 20, 0, 0], Counter({MOST: 10}))


def test_late_rows_count_for_nobody(engine: VaultEngine, tmp_path: Path) -> None:
    world: list[Version] = [
        [("ann", 1, "yes")],
        [("ann", 1, "yes"), ("ann", 2, "yes"), ("bob", 1, "yes"), ("ann", 3, "yes")],
        [("bob", 1, "yes"), ("bob", 2, "yes"), ("bob", 5, "yes"), ("bob", 6, "yes")],
    ]
    assert seen(engine, tmp_path, world).blocks == [1, 1, 1, 2, 1, 2]


def test_a_person_whose_rows_do_not_pass_the_filter_uses_none(
    engine: VaultEngine, tmp_path: Path
) -> None:
    world: list[Version] = [[("ann", 1, "no")] * 5, [("ann", 3, "no"), ("ann", 4, "yes")], []]
    found = seen(engine, tmp_path, world)
    assert found == Seen([0, 0, 0, 1, 0, 0], Counter({1: 1}))


def test_what_is_kept_is_private_and_names_nobody(engine: VaultEngine, tmp_path: Path) -> None:
    (table,) = tables_of(engine, tmp_path, [[("canary-7", 1, "yes"), ("canary-8", 1, "yes")]])
    asked = order(tmp_path, table, 1, None)
    engine.count_period(asked)
    kept = Path(asked.target)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert b"canary" not in kept.read_bytes()
    assert [path.name for path in kept.parent.iterdir()] == ["used.duckdb"]
    with duckdb.connect(asked.target, read_only=True) as connection:
        names = [bytes(who) for (who,) in connection.execute("SELECT who FROM used").fetchall()]
    assert {len(name) for name in names} == {32}
    assert names == sorted(names)  # the order of keyed digests, not of the rows


def test_the_file_of_a_day_is_its_own_and_the_one_before_stays(
    engine: VaultEngine, tmp_path: Path
) -> None:
    (table,) = tables_of(engine, tmp_path, [[("ann", 1, "yes"), ("ann", 2, "yes")]])
    first = order(tmp_path, table, 1, None)
    engine.count_period(first)
    before = Path(first.target).read_bytes()
    engine.count_period(order(tmp_path, table, 2, first.target))
    assert Path(first.target).read_bytes() == before


def test_a_filter_counts_the_same_rows_as_any_question_does(
    engine: VaultEngine, tmp_path: Path
) -> None:
    """What travels as it is, and what each dialect spells in its own way."""
    words = ["a", "B", "b%", "ü'", "", "10"]
    card = card_of(
        "who", {"word": {"type": "text"}, "n": {"type": "number", "step": Fraction(1, 2)},
                "at": {"type": "timestamp"}},
    )  # fmt: skip
    cells = [
        [f"p{i % 9}", words[i % 6], "" if not i % 7 else i / 2, f"2026-01-0{1 + i % 5} 1{i % 9}:30"]
        for i in range(120)
    ]
    source = write_source(tmp_path / "w.csv", ["who", "word", "n", "at"], cells)
    table, _ = prepare(engine, source, card)
    filters: list[Predicate] = [
        Among(Ref("v0"), (Constant.of("ü'"), Constant.of("10"))),
        StartsWith(Ref("v0"), "b%"),
        Not(Compare(Ref("v1"), "<", Constant("number", "40"))),
        IsNull(Ref("v1")),
        AnyOf((Compare(Ref("v0"), ">", Constant.of("A")),
               Compare(Ref("v2"), ">=", Constant("timestamp", "2026-01-03 12:30:00")))),
    ]  # fmt: skip
    for place, where in enumerate(filters):
        folder = tmp_path / str(place)
        folder.mkdir()
        order = CountPeriodOrder(
            table, where, 10**6, 1, 1, None, str(folder / "used.duckdb"), 10**6
        )
        (block,) = unseal(engine.count_period(order)).parts
        counted = Measure(where, (), (Tally("rows"),), True, 1, 10**6)
        assert block.tolist() == answers(engine, table, counted)[0], where
        assert 0 < block[0] < len(cells), where


def test_many_people_are_counted_each_once(engine: VaultEngine, tmp_path: Path) -> None:
    """More than travel at a time from an engine elsewhere (stream_period.py)."""
    many = 70_000
    rows = [(f"p{n}", 1, "yes") for n in range(many)] + [("p0", 1, "yes")] * 3
    (table,) = tables_of(engine, tmp_path, [rows])
    first = order(tmp_path, table, 1, None)
    (block,) = unseal(engine.count_period(first)).parts
    assert block.tolist() == [many + 1]
    assert used_in(first.target) == Counter({1: many - 1, 2: 1})


def lose_names(kind: str, table: str) -> None:
    """Remove what tells who a person of the table is in other versions."""
    if kind == "duckdb":
        with duckdb.connect(table) as connection:
            connection.execute("DROP TABLE people")
        return
    (names,) = Path(table).parent.glob(f"{Path(table).name}_people_*.parquet")
    assert names.stat().st_mode & 0o777 == 0o600
    names.unlink()


def forget_them(kind: str, table: str) -> None:
    """Make the table one that an older house has prepared."""
    if kind == "duckdb":
        lose_names(kind, table)
        return
    said = json.loads(Path(table).read_text())
    del said["people"]
    Path(table).write_text(json.dumps(said))


@pytest.mark.parametrize("broken", ["table", "before", "names", "old"])
def test_whatever_goes_wrong_is_one_constant_word(
    engine: VaultEngine, kind: str, tmp_path: Path, broken: str
) -> None:
    (table,) = tables_of(engine, tmp_path, [[("canary", 1, "yes")]])
    junk = tmp_path / "junk.duckdb"
    junk.write_bytes(b"no table at all" * 1000)
    asked = order(tmp_path, str(junk) if broken == "table" else table, 1, None)
    if broken == "before":
        asked = replace(asked, before=str(junk))
    if broken in ("names", "old"):
        (lose_names if broken == "names" else forget_them)(kind, table)
    with pytest.raises(EngineStopped) as stopped:
        engine.count_period(asked)
    assert str(stopped.value) == "the engine stopped"
    assert stopped.value.__context__ is None
