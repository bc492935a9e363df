"""Draw a synthetic data set of film ratings, as sparse as a real one; it contains no real person.

Only existing ratings are stored, indexed by person and by film. A hundred thousand people and a
thousand films are four million ratings, not a hundred million cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Small = NDArray[np.int16]
PEOPLE: Final = 100_000
FILMS: Final = 1_000
STARS: Final = (1, 5)
DAYS: Final = 2_200  # number of days: six years
TYPICAL: Final = 25  # the median number of ratings per person
LEAST, MOST = 3, 400


@dataclass(frozen=True)
class Ratings:
    """All ratings, stored twice: sorted by person and sorted by film."""

    people: int
    films: int
    starts: Places  # person p's ratings are those from starts[p] to starts[p + 1]
    film: Small
    stars: Small
    day: Small
    film_starts: Places  # film f's ratings are those from film_starts[f] to film_starts[f + 1]
    rated_by: NDArray[np.int32]
    film_stars: Small
    film_day: Small

    def __len__(self) -> int:
        """Return the number of ratings."""
        return len(self.film)

    def of_person(self, person: int) -> slice:
        """Return the slice of the person's ratings in the arrays that are sorted by person."""
        return slice(int(self.starts[person]), int(self.starts[person + 1]))

    def of_film(self, film: int) -> slice:
        """Return the slice of the film's ratings in the arrays that are sorted by film."""
        return slice(int(self.film_starts[film]), int(self.film_starts[film + 1]))

    @property
    def sizes(self) -> Places:
        """Return the number of films that each person rated."""
        sizes: Places = np.diff(self.starts)
        return sizes


def film_ratings(dice: np.random.Generator, *, people: int = PEOPLE, films: int = FILMS) -> Ratings:
    """Draw synthetic film ratings: few films have many ratings, and most people rate few films."""
    keys = _who_rates_what(dice, people, films)
    person, film = keys // films, (keys % films).astype(np.int16)
    stars, day = _stars(dice, person, film), _days(dice, person)
    order = np.argsort(film, kind="stable")
    return Ratings(
        people=people,
        films=films,
        starts=_starts(person, people),
        film=film,
        stars=stars,
        day=day,
        film_starts=_starts(film, films),
        rated_by=person[order].astype(np.int32),
        film_stars=stars[order],
        film_day=day[order],
    )


def _who_rates_what(dice: np.random.Generator, people: int, films: int) -> Places:
    """Draw which people rate which films; return person * films + film for each rating.

    The numbers are sorted and without duplicates.
    """
    wanted = np.rint(TYPICAL * np.exp(0.9 * dice.standard_normal(people)))
    person = np.repeat(np.arange(people), wanted.clip(LEAST, MOST).astype(np.int64))
    popular = np.cumsum(1 / (np.arange(films) + 10.0))
    film = np.searchsorted(popular, dice.random(len(person)) * popular[-1])
    # sort here, because `np.unique` takes fifteen times as long
    keys: Places = np.sort(person * films + film)
    is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
    once: Places = keys[is_first]
    return once


def _stars(dice: np.random.Generator, person: Places, film: Small) -> Small:
    quality = 3.4 + 0.6 * dice.standard_normal(int(film.max(initial=0)) + 1)
    mildness = 0.4 * dice.standard_normal(int(person.max(initial=0)) + 1)
    liked = quality[film] + mildness[person] + dice.standard_normal(len(film))
    return np.rint(liked).clip(*STARS).astype(np.int16)


def _days(dice: np.random.Generator, person: Places) -> Small:
    """Draw rating days: each person starts on one day, and rates for some months or years."""
    people = int(person.max(initial=0)) + 1
    came, stays = dice.random(people) * 0.8 * DAYS, 60 + dice.exponential(300, people)
    days = came[person] + dice.random(len(person)) * stays[person]
    return days.clip(0, DAYS - 1).astype(np.int16)


def _starts(sorted_or_not: NDArray[np.integer], count: int) -> Places:
    sizes = np.bincount(sorted_or_not, minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
