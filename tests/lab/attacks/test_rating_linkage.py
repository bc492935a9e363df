"""People are named among a hundred thousand by a few ratings; private counts name nobody."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.rating_linkage import (
    STANDS_OUT,
    Hints,
    Knows,
    best_match,
    find,
    find_without,
    hints_of,
    score,
)
from sfumato.lab.attacks.rating_linkage_report import attack_ratings
from sfumato.lab.film_ratings import FILMS, PEOPLE, Ratings, film_ratings


def dice(seed: int = 20261121) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def full() -> Ratings:
    return film_ratings(dice())


@pytest.fixture(scope="module")
def small() -> Ratings:
    return film_ratings(dice(), people=300, films=40)


def named(ratings: Ratings, knows: Knows, *, people: int = 60) -> float:
    (success,) = attack_ratings(ratings, dice(2), people=people, knowledge=[knows]).successes
    return success.rate


def scored_plainly(ratings: Ratings, hints: Hints, person: int) -> float:
    """Return the score as the paper writes it, one rating at a time."""
    own = ratings.of_person(person)
    rated = {int(f): place for place, f in enumerate(ratings.film[own], start=own.start)}
    total = 0.0
    assert hints.days is not None
    for film, stars, day in zip(hints.films, hints.stars, hints.days, strict=True):
        if int(film) not in rated:
            continue
        place = rated[int(film)]
        support = int((ratings.film == film).sum())
        agrees = math.exp(-abs(int(ratings.stars[place]) - stars) / 1.5)
        agrees += math.exp(-abs(int(ratings.day[place]) - day) / 30)
        total += agrees / math.log(support)
    return total


def test_the_set_is_as_large_and_as_sparse_as_it_should_be(full: Ratings) -> None:
    assert (full.people, full.films) == (PEOPLE, FILMS) == (100_000, 1_000)
    assert 0.02 < len(full) / (PEOPLE * FILMS) < 0.05
    held = sum(value.nbytes for value in vars(full).values() if isinstance(value, np.ndarray))
    assert held < 100e6


def test_both_orders_hold_the_same_ratings(small: Ratings) -> None:
    by_person = {
        (person, int(small.film[place]), int(small.stars[place]), int(small.day[place]))
        for person in range(small.people)
        for place in range(*small.of_person(person).indices(len(small)))
    }
    by_film = {
        (int(small.rated_by[place]), film, int(small.film_stars[place]), int(small.film_day[place]))
        for film in range(small.films)
        for place in range(*small.of_film(film).indices(len(small)))
    }
    assert by_person == by_film
    assert len(by_person) == len(small)


def test_nobody_rates_a_film_twice(small: Ratings) -> None:
    for person in range(small.people):
        films = small.film[small.of_person(person)]
        assert len(set(films.tolist())) == len(films)


def test_the_score_is_the_papers(small: Ratings) -> None:
    for person in range(5):
        hints = hints_of(small, person, Knows(3, wrong=1, stars_off=1, days_off=9), dice(person))
        scores = score(small, hints)
        for other in range(0, small.people, 13):
            assert scores[other] == pytest.approx(scored_plainly(small, hints, other))


def test_without_dates_only_stars_count(small: Ratings) -> None:
    hints = hints_of(small, 3, Knows(2, days_off=None), dice())
    dated = Hints(hints.films, hints.stars, np.full(len(hints.films), 10**6))
    assert score(small, hints) == pytest.approx(score(small, dated))


def test_hints_are_as_exact_as_they_say(full: Ratings) -> None:
    knows = Knows(6, wrong=2, stars_off=1, days_off=14)
    for person in np.flatnonzero(full.sizes >= 6)[:50]:
        own = full.of_person(int(person))
        hints = hints_of(full, int(person), knows, dice(int(person)))
        assert hints.days is not None
        assert len(hints.films) == 6
        assert len(set(hints.films.tolist()) & set(full.film[own].tolist())) == 4
        for film, stars, day in zip(hints.films[:4], hints.stars, hints.days, strict=False):
            place = own.start + int(np.flatnonzero(full.film[own] == film)[0])
            assert abs(stars - full.stars[place]) <= 1
            assert abs(day - full.day[place]) <= 14


def test_who_stands_out_is_believed_and_who_does_not_is_not() -> None:
    alone = best_match(np.array([0.0, 9.0] + [0.1] * 50))
    assert (alone.person, alone.is_believed) == (1, True)
    twins = best_match(np.array([9.0, 9.0] + [0.1] * 50))
    assert (twins.eccentricity, twins.is_believed) == (0.0, False)
    assert not best_match(np.zeros(5)).is_believed


def test_the_eccentricity_is_the_lead_in_standard_deviations() -> None:
    scores = np.array([5.0, 3.0, 1.0, 1.0])
    assert best_match(scores).eccentricity == pytest.approx(2 / scores.std())
    assert STANDS_OUT == 1.5


def test_eight_ratings_of_which_two_are_wrong_name_almost_anybody(full: Ratings) -> None:
    assert named(full, Knows(8, wrong=2, stars_off=1, days_off=14)) > 0.9


def test_the_less_is_known_the_fewer_are_named(full: Ratings) -> None:
    rates = [named(full, Knows(known, stars_off=1, days_off=14)) for known in (1, 2, 4, 8)]
    assert rates == sorted(rates)
    assert rates[0] < 0.2
    exact = Knows(4, stars_off=0, days_off=3)
    assert named(full, exact) >= named(full, Knows(4, stars_off=1, days_off=90)) + 0.2


def test_wrong_ratings_and_missing_dates_cost_matches(full: Ratings) -> None:
    right = named(full, Knows(4, stars_off=1, days_off=14))
    assert named(full, Knows(4, wrong=2, stars_off=1, days_off=14)) < right - 0.3
    assert named(full, Knows(4, stars_off=1, days_off=None)) < right - 0.3


def test_who_is_not_there_is_never_found(full: Ratings) -> None:
    knows = Knows(8, days_off=0)
    for person in np.flatnonzero(full.sizes >= 8)[:20]:
        hints = hints_of(full, int(person), knows, dice(int(person)))
        assert find(full, hints).person == person
        assert find_without(full, int(person), hints).person != person


def test_false_matches_are_counted(full: Ratings) -> None:
    report = attack_ratings(
        full, dice(2), people=60, knowledge=[Knows(2, stars_off=1, days_off=90)]
    )
    note = report.successes[0].note.split()
    assert int(note[0]) + int(note[3]) > 0


def test_the_attack_by_its_name_takes_what_is_known() -> None:
    typed = {"people": "2000", "films": "100", "known": "5", "days-off": "none", "wrong": "1"}
    report = attack("ratings").report(seed=1, runs=20, **typed)
    (only,) = report.successes
    assert only.against == "5 ratings (1 wrong), stars ± 1, no dates"
    assert report.beside[0].above_bounds() == ()


def test_who_has_rated_every_film_gives_no_wrong_hints() -> None:
    tiny = film_ratings(dice(), people=50, films=3)
    for person in range(tiny.people):
        hints = hints_of(tiny, person, Knows(4, wrong=2), dice(person))
        assert len(hints.films) == min(2, int(tiny.sizes[person])) + min(
            2, 3 - int(tiny.sizes[person])
        )


def test_more_ratings_than_anybody_has_are_refused(small: Ratings) -> None:
    with pytest.raises(Refused, match="as many ratings"):
        attack_ratings(small, dice(), people=1, knowledge=[Knows(4000)])
