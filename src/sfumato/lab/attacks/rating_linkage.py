"""Re-identify a person among ratings without names, by a few ratings known from elsewhere.

The scoring of Narayanan and Shmatikov ("Robust De-anonymization of Large Sparse Datasets", 2008,
section 5). A rating that agrees in stars and date adds to the score, and more if few people rated
the film. The best match is believed only if it exceeds the second by 1.5 standard deviations of all
scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.film_ratings import DAYS, STARS, Ratings

Floats = NDArray[np.float64]
STARS_APART: Final = 1.5  # a difference of so many stars reduces the score to 1/e
DAYS_APART: Final = 30.0
STANDS_OUT: Final = 1.5  # the lowest eccentricity of a match that is believed
_BY_STARS: Final = np.exp(-np.arange(STARS[1] + 1) / STARS_APART)
_BY_DAYS: Final = np.exp(-np.arange(2 * DAYS) / DAYS_APART)


@dataclass(frozen=True)
class Knows:
    """Background knowledge of a person's ratings: how many, how many wrong, how exact."""

    ratings: int
    wrong: int = 0  # how many of them are of films that the person never rated
    stars_off: int = 0  # the largest error in stars
    days_off: int | None = 0  # the largest error in days; None: no dates

    @property
    def text(self) -> str:
        """Return a text of a few words that describes the knowledge."""
        wrong = f" ({self.wrong} wrong)" if self.wrong else ""
        stars = f"stars ± {self.stars_off}" if self.stars_off else "exact stars"
        if self.days_off is None:
            return f"{self.ratings} ratings{wrong}, {stars}, no dates"
        days = f"± {self.days_off} days" if self.days_off else "exact days"
        return f"{self.ratings} ratings{wrong}, {stars}, {days}"


@dataclass(frozen=True)
class Hints:
    """What an attacker knows of a person's ratings: films, stars, and perhaps dates.

    `days` is None if the attacker knows no dates.
    """

    films: NDArray[np.int64]
    stars: NDArray[np.int64]
    days: NDArray[np.int64] | None


@dataclass(frozen=True)
class Match:
    """The best-matching person, and the eccentricity: how far the second-best match is behind."""

    person: int
    eccentricity: float

    @property
    def is_believed(self) -> bool:
        """Return True if the match exceeds the second-best by enough to be believed."""
        return self.eccentricity >= STANDS_OUT


def hints_of(ratings: Ratings, person: int, knows: Knows, dice: np.random.Generator) -> Hints:
    """Draw background knowledge of a person; all ratings if there are fewer than asked for."""
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
    """Return each person's score: how well their ratings fit the hints."""
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
    """Return the person with the highest score, and how far that score exceeds the second.

    This distance (the eccentricity) is 0 if all scores are equal.
    """
    best = int(np.argmax(scores))
    second = float(max(scores[:best].max(initial=0.0), scores[best + 1 :].max(initial=0.0)))
    spread = float(scores.std())
    return Match(best, (float(scores[best]) - second) / spread if spread else 0.0)


def find(ratings: Ratings, hints: Hints) -> Match:
    """Return the person whose ratings fit the hints best."""
    return best_match(score(ratings, hints))


def find_without(ratings: Ratings, person: int, hints: Hints) -> Match:
    """Return the best match if `person`, the target, were not in the data set."""
    scores = score(ratings, hints)
    scores[person] = 0.0
    return best_match(scores)


def _any(dice: np.random.Generator, low: int, high: int, count: int) -> NDArray[np.int64]:
    return dice.integers(low, high, size=count, dtype=np.int64)


def _off(dice: np.random.Generator, most: int, count: int) -> NDArray[np.int64]:
    return _any(dice, -most, most + 1, count)
