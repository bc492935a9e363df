"""Adding up by stored ranks without sorting, against a plain reading of what counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.bounded_sums import _unchosen, amount_of
from sfumato.engines.kernel.contribution_bounding import _by_row, by_bits, by_stored_slot
from sfumato.engines.kernel.row_arrays import MAX_INT64, ORDER_BITS, Columns, Part, Summed
from sfumato.engines.shared.cold_path import NULL, KernelPlan, KernelTally, lower_to_kernel
from sfumato.engines.shared.prepared_table import PreparedTable
from sfumato.query.expression import Ref
from sfumato.query.measure import Key, Measure, Tally

MOST_PLACES = 100
BY_ROW = (
    KernelTally("rows", -1, 1, 0, None, None),
    KernelTally("values", 0, 1, 0, None, None),
    KernelTally("sum", 0, 2, -3, None, None),
    KernelTally("sum", 0, 1, 0, None, None),
)
BY_GROUP = (
    *BY_ROW,
    KernelTally("people", -1, 1, 0, None, None),
    KernelTally("sum", 0, 1, 0, 5, 40),
    KernelTally("sum", 0, 3, 1, -20, -2),
)


@dataclass(frozen=True)
class Group:
    """The rows of a person that are in one cell and are left, and the group's stored place."""

    place: int
    cell: int
    values: Sequence[int]  # NULL is one of them
    first_rank: int  # of its first row that is left; the filter took those before

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + len(self.values))


def person(draw: random.Random, places: int, cells: int) -> list[Group]:
    """Return some groups of a person; others were filtered away, so that places have gaps."""
    some = sorted(draw.sample(range(1, places + 1), draw.randint(1, min(places, 9))))
    chosen = draw.sample(range(cells), len(some))
    return [
        Group(place, cell, values(draw), draw.choice([1, 1, 1, 2]))
        for place, cell in zip(some, chosen, strict=True)
    ]


def values(draw: random.Random) -> list[int]:
    return [draw.choice([NULL, -9, 0, 4, 30]) for _ in range(draw.choice([1, 1, 2, 3]))]


def columns_of(people: Sequence[Sequence[Group]], draw: random.Random) -> Columns:
    rows = []
    for number, groups in enumerate(people):
        mine = [
            (number, g.place, g.cell, rank, value)
            for g in groups
            for rank, value in zip(g.ranks, g.values, strict=True)
        ]
        draw.shuffle(mine)
        rows += mine
    kinds = {"person": "u4", "place": "u2", "cell": "i4", "rr": "u2", "w0": "i8"}
    listed = list(zip(*rows, strict=True))
    return {name: np.array(c, dtype=kinds[name]) for name, c in zip(kinds, listed, strict=True)}


def by_hand(people: Sequence[Sequence[Group]], cold: KernelPlan, cells: int) -> list[list[int]]:
    """Return each tally of each cell; only of persons whose rows need no cut."""
    totals = [[0] * cells for _ in cold.tallies]
    for groups in people:
        for group in sorted(groups, key=lambda g: g.place)[: cold.max_groups]:
            for total, tally in zip(totals, cold.tallies, strict=True):
                total[group.cell] += amount(tally, group.values)
    return totals


def amount(tally: KernelTally, of: Sequence[int]) -> int:
    there = [value for value in of if value != NULL]
    counted = {"rows": len(of), "people": 1, "values": len(there)}
    if tally.kind in counted:
        return counted[tally.kind]
    total = sum(tally.scale * value + tally.offset for value in there)
    if tally.low is None or tally.high is None or not there:
        return total
    return max(tally.low, min(total, tally.high))


def cold_of(tallies: tuple[KernelTally, ...], cells: int, groups: int, rows: int) -> KernelPlan:
    return KernelPlan("", (), cells, (), True, 1, tallies, groups, rows, "crowds")


def as_lists(part: Part) -> list[list[int]]:
    return [tally.tolist() for tally in part.tallies]


@pytest.mark.parametrize("tallies", [BY_ROW, BY_GROUP])
@pytest.mark.parametrize("cells", [3, 7, 8, 15, 16, 31, 32, 63, 64, MOST_PLACES])
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 16), rows=st.integers(1, 3))
@settings(deadline=None)
def test_the_first_groups_that_are_left_count_and_others_are_handed_on_whole(
    tallies: tuple[KernelTally, ...], cells: int, seed: int, groups: int, rows: int
) -> None:
    draw = random.Random(seed)
    people = [person(draw, cells, cells) for _ in range(draw.randint(1, 12))]
    cold = cold_of(tallies, cells, groups, rows)
    columns = columns_of(people, draw)
    part, rest = by_bits(columns, cold, cells)
    odd = [any(g.place >= 64 or g.ranks[-1] > rows for g in mine) for mine in people]
    served = [mine for mine, is_odd in zip(people, odd, strict=True) if not is_odd]
    assert as_lists(part) == by_hand(served, cold, cells)
    others = np.isin(columns["person"], np.flatnonzero(odd))
    assert {name: c.tolist() for name, c in rest.items()} == {
        name: c[others].tolist() for name, c in columns.items()
    }


@given(seed=st.integers(0, 10**6), groups=st.integers(1, 16))
@settings(deadline=None)
def test_a_stored_slot_is_one_group_of_one_person(seed: int, groups: int) -> None:
    draw = random.Random(seed)
    people = [person(draw, groups, 20) for _ in range(draw.randint(0, 12))]
    people.append([Group(groups, 0, [NULL], 1)])  # the last slot of all
    cold = cold_of(BY_GROUP, 20, groups, 10)
    columns = columns_of(people, draw)
    columns["person"] += 7
    found = by_stored_slot(columns, cold, (7, 7 + len(people)), 20)
    assert as_lists(found) == by_hand(people, cold, 20)


def test_a_range_of_nobody_adds_nothing() -> None:
    nothing = {"person": "u4", "place": "u2", "cell": "i4", "w0": "i8"}
    columns: Columns = {name: np.zeros(0, kind) for name, kind in nothing.items()}
    found = by_stored_slot(columns, cold_of(BY_GROUP, 4, 2, 2), (0, 10), 4)
    assert as_lists(found) == [[0] * 4] * len(BY_GROUP)


def test_a_sum_of_rows_that_could_pass_64_bits_stops_the_kernel() -> None:
    cold = cold_of((KernelTally("sum", 0, 1, 0, None, None),), 1, 1, 1)

    def total(rows: int) -> list[list[int]]:
        return as_lists(_by_row(np.zeros(rows, int), [np.full(rows, 2**61)], cold, 1))

    assert total(3) == [[3 * 2**61]]
    with pytest.raises(OverflowError):
        total(4)


def test_a_clamped_sum_is_exact_up_to_the_last_number_of_64_bits() -> None:
    tally, one = KernelTally("sum", 0, 1, 0, -5, 40), np.array([1])
    largest = Summed(np.array([MAX_INT64]), one, 0, MAX_INT64)
    assert amount_of(tally, [largest], one)[0].tolist() == [40]
    with pytest.raises(OverflowError):
        amount_of(tally, [largest], one * 2)


def test_more_cells_than_a_word_has_room_for_stop_the_kernel() -> None:
    person = np.array([0, 1], dtype=np.uint64)
    most = (1 << ORDER_BITS) - 1
    assert _unchosen(person, np.array([most, 0])).tolist() == [most, most + 1]
    with pytest.raises(Bug, match="more public cells"):
        _unchosen(person, np.array([0, most + 1]))


KNOWN = PreparedTable(0, True, ("integer", "text"), (True, False))
CLAMPED = (Tally("sum", Ref("v0"), clamp=(0, 1)),)


@pytest.mark.parametrize(("groups", "has_slot"), [(16, True), (17, False)])
def test_only_few_stored_groups_without_a_filter_have_slots(groups: int, has_slot: bool) -> None:
    measure = Measure(None, (Key(Ref("k0"), 30),), CLAMPED, True, groups, 2)
    cold = lower_to_kernel(measure, KNOWN)
    assert cold is not None
    assert cold.has_slot is has_slot
    assert ("rr <= 2" in cold.sql, f"place <= {groups}" in cold.sql) == (True, True)
    private = lower_to_kernel(Measure(None, (Key(Ref("v1"), None),), CLAMPED, True, 2, 2), KNOWN)
    assert private is not None
    assert not private.has_slot
