"""Find a person among ratings without names, by a few ratings that somebody saw elsewhere.

The scoring of Narayanan and Shmatikov ("Robust De-anonymization of Large Sparse Datasets", 2008,
section 5): a rating that agrees in stars and date counts, more where few have rated the film. The
best is believed only where it stands out: ahead of the second by 1.5 standard deviations of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.film_ratings import DAYS, STARS, Ratings

Floats = NDArray[np.float64]
STARS_APART: Final = 1.5  # after which an agreement counts for 1/e
DAYS_APART: Final = 30.0
STANDS_OUT: Final = 1.5  # the eccentricity from which a match is believed
_BY_STARS: Final = np.exp(-np.arange(STARS[1] + 1) / STARS_APART)
_BY_DAYS: Final = np.exp(-np.arange(2 * DAYS) / DAYS_APART)


@dataclass(frozen=True)
class Knows:
    """What somebody knows of a person: how many ratings, how many are wrong, and how exactly."""

    ratings: int
    wrong: int = 0  # of them, of films that the person never rated
    stars_off: int = 0  # at most so many stars off, either way
    days_off: int | None = 0  # at most so many days off; None: no dates

    @property
    def text(self) -> str:
        """Return it in a few words."""
        wrong = f" ({self.wrong} wrong)" if self.wrong else ""
        stars = f"stars ± {self.stars_off}" if self.stars_off else "exact stars"
        if self.days_off is None:
            return f"{self.ratings} ratings{wrong}, {stars}, no dates"
        days = f"± {self.days_off} days" if self.days_off else "exact days"
        return f"{self.ratings} ratings{wrong}, {stars}, {days}"


@dataclass(frozen=True)
class Hints:
    """Ratings seen elsewhere; a day is None where no dates are known."""

    films: NDArray[np.int64]
    stars: NDArray[np.int64]
    days: NDArray[np.int64] | None


@dataclass(frozen=True)
class Match:
    """Who fits best, and how far they stand out."""

    person: int
    eccentricity: float

    @property
    def is_believed(self) -> bool:
        """Say whether the best stands out enough to be believed."""
        return self.eccentricity >= STANDS_OUT


def hints_of(ratings: Ratings, person: int, knows: Knows, dice: np.random.Generator) -> Hints:
    """Return what somebody knows of the person; of whom fewer ratings exist, all of them."""
    own = ratings.of_person(person)
    true = min(knows.ratings - knows.wrong, own.stop - own.start)
    drawn = own.start + dice.choice(own.stop - own.start, size=true, replace=False)
    never = np.setdiff1d(np.arange(ratings.films), ratings.film[own])
    wrong = min(knows.wrong, len(never))
    films = np.concatenate([ratings.film[drawn], dice.choice(never, wrong, replace=False)])
    stars = np.concatenate([ratings.stars[drawn], _any(dice, STARS[0], STARS[1] + 1, wrong)])
    days = np.concatenate([ratings.day[drawn], _any(dice, 0, DAYS, wrong)])
    return Hints(
        films.astype(np.int64),
        (stars + _off(dice, knows.stars_off, len(stars))).clip(*STARS),
        None if knows.days_off is None else days + _off(dice, knows.days_off, len(days)),
    )


def score(ratings: Ratings, hints: Hints) -> Floats:
    """Return how well everybody fits the hints."""
    scores: Floats = np.zeros(ratings.people)
    for place, film in enumerate(hints.films):
        at = ratings.of_film(int(film))
        agrees = _BY_STARS[np.abs(ratings.film_stars[at] - hints.stars[place])]
        if hints.days is not None:
            off = np.abs(ratings.film_day[at] - hints.days[place])
            agrees = agrees + _BY_DAYS[np.minimum(off, len(_BY_DAYS) - 1)]
        scores[ratings.rated_by[at]] += agrees / np.log(max(at.stop - at.start, 2))
    return scores


def best_match(scores: Floats) -> Match:
    """Return who fits best; where all fit alike, nobody stands out."""
    best = int(np.argmax(scores))
    second = float(max(scores[:best].max(initial=0.0), scores[best + 1 :].max(initial=0.0)))
    spread = float(scores.std())
    return Match(best, (float(scores[best]) - second) / spread if spread else 0.0)


def find(ratings: Ratings, hints: Hints) -> Match:
    """Return who fits the hints best among all the people of the ratings."""
    return best_match(score(ratings, hints))


def find_without(ratings: Ratings, person: int, hints: Hints) -> Match:
    """Return who would fit best if the person were not in the set at all."""
    scores = score(ratings, hints)
    scores[person] = 0.0
    return best_match(scores)


def _any(dice: np.random.Generator, low: int, high: int, count: int) -> NDArray[np.int64]:
    return dice.integers(low, high, size=count, dtype=np.int64)


def _off(dice: np.random.Generator, most: int, count: int) -> NDArray[np.int64]:
    return _any(dice, -most, most + 1, count)
