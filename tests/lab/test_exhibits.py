"""What the lab's pages show is what the lab computes, wherever the sliders are."""

from __future__ import annotations

import pytest

from sfumato.lab.exhibits import EXHIBITS, exhibit


def cells_of(name: str, **places: int) -> tuple[tuple[str, ...], ...]:
    found = exhibit(name)
    typed = {key: str(place) for key, place in places.items()}
    return found.shown(found.places(typed)).cells


def numbers(row: tuple[str, ...]) -> list[int]:
    return [int(cell.replace(",", "")) for cell in row]


def test_every_exhibit_has_sliders_of_its_own_and_another_name() -> None:
    assert len({one.name for one in EXHIBITS}) == len(EXHIBITS)
    for one in EXHIBITS:
        assert len({slider.name for slider in one.sliders}) == len(one.sliders) > 0


@pytest.mark.parametrize("bound", range(4))
def test_no_absence_that_was_seen_moves_a_sum_by_more_than_the_bound(bound: int) -> None:
    rows = [
        [int(cell.replace(",", "")) for cell in row] for row in cells_of("neighbours", bound=bound)
    ]
    seen, possible = [row[1] for row in rows], {row[2] for row in rows}
    assert possible == {(20_000, 50_000, 100_000, 200_000)[bound]}
    assert seen == sorted(seen)  # more people, more that can be seen
    assert max(seen) <= possible.pop()


def test_a_low_bound_is_reached_and_a_high_one_is_not() -> None:
    assert cells_of("neighbours", bound=0)[-1][1:] == ("20,000", "20,000")
    seen, possible = (
        int(cell.replace(",", "")) for cell in cells_of("neighbours", bound=3)[-1][1:]
    )
    assert 100_000 < seen < possible


@pytest.mark.parametrize(("place", "most"), [(0, "1,000"), (1, "10,000")])
def test_coins_stand_beside_an_owner_up_to_so_many_respondents(place: int, most: str) -> None:
    rows = cells_of("both", people=place)
    assert rows[-1][0] == most
    errors = [[float(cell.rstrip("%")) for cell in row[1:]] for row in rows]
    assert all(coins > owner for coins, owner in errors)


def test_what_has_no_dice_shows_the_same_whenever_it_is_drawn() -> None:
    still = [one for one in EXHIBITS if not one.has_dice]
    assert [one.name for one in still] == ["neighbours", "linkage"]
    for one in still:
        assert one.shown(one.places({}), 0).cells == one.shown(one.places({}), 1).cells
