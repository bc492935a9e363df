"""Rows from another engine: ranges and slices hold persons whole, and lose nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.engines.kernel.packed_rows import Extent, needs_keys, ordered_by, slices
from sfumato.engines.kernel.row_arrays import INDEX_BITS, PERSON_BITS
from sfumato.engines.shared.cold_path import KernelPlan
from support.kernel_oracle import place_of_cell


@pytest.mark.parametrize(("persons", "rows"), [(0, 0), (1, 10**6), (10, 10), (1000, 7), (7, 999)])
def test_ranges_hold_everybody_once(persons: int, rows: int) -> None:
    for few in (1, 3, 100, 10**7):
        ranges = Extent(persons, rows, 0).ranges(few)
        assert [p for low, high in ranges for p in range(low, min(high, persons))] == [
            *range(persons)
        ]


def test_no_range_holds_more_people_than_the_kernel_tells_apart() -> None:
    ranges = Extent(5 << PERSON_BITS, 1000, 0).ranges(10**6)
    assert max(high - low for low, high in ranges) == 1 << PERSON_BITS


@pytest.mark.parametrize("shuffled", [False, True])
def test_slices_hold_persons_whole_however_rows_lie(shuffled: bool) -> None:
    dice = np.random.default_rng(3)
    person = np.sort(dice.integers(0, 40, 500))
    if shuffled:
        dice.shuffle(person)
    place = dice.integers(1, 9, 500)
    packed = {"a": (person << INDEX_BITS) | place, "w0": person * 10 + place}
    for rows in (1, 7, 100, 499, 500, 10**6):
        found = list(slices(packed, rows))
        seen = [set((some["a"] >> INDEX_BITS).tolist()) for some, _ in found]
        assert sum(len(persons) for persons in seen) == len(set().union(*seen)) == 40
        for (some, (low, high)), persons in zip(found, seen, strict=True):
            assert persons <= set(range(low, high))
            assert np.array_equal(some["w0"] // 10, some["a"] >> INDEX_BITS)
        assert sum(len(some["a"]) for some, _ in found) == 500
        assert sum(int(some["w0"].sum()) for some, _ in found) == int(packed["w0"].sum())


def test_a_range_of_nobody_has_no_slice() -> None:
    assert list(slices({"a": np.zeros(0, np.int64)}, 10)) == []


SALT = bytes(range(32))
CHOOSING = KernelPlan("", (), 10, (), False, 0, (), 3, 20, "t")


def test_keys_without_a_sign_order_the_cells_of_whoever_they_belong_to() -> None:
    keys = {6: 0, 8: 2**63 - 1, 5: 2**63, 7: 2**64 - 1}  # as they may come: in no order
    came = {
        "person": np.array([*keys]),
        "person_key": np.array([key - 2**63 for key in keys.values()]),
    }
    ordered = ordered_by(SALT.hex(), CHOOSING, came, (5, 12))
    person, cell = (part.ravel() for part in np.meshgrid([*keys], np.arange(10)))
    found = ordered({"person": person, "cell": cell})
    assert found.tolist() == [
        place_of_cell(SALT, keys[who], (where,), public=True)
        for who, where in zip(person.tolist(), cell.tolist(), strict=True)
    ]


def test_keys_are_asked_for_only_where_cells_are_chosen_and_no_place_is_stored() -> None:
    assert needs_keys(CHOOSING)
    assert not needs_keys(replace(CHOOSING, max_groups=10))
    assert not needs_keys(replace(CHOOSING, has_rank=True))
