"""Report two attacks on film ratings: linkage of single ratings, and membership in counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.rating_linkage import Knows, find, find_without, hints_of
from sfumato.lab.film_ratings import FILMS, PEOPLE, Ratings, film_ratings
from sfumato.lab.one_bit_game import COIN, Look, by_the_votes, successes_against_ours
from sfumato.lab.platform_noise import EPSILONS

KNOWLEDGE: Final = (
    Knows(8, wrong=2, stars_off=1, days_off=14),
    Knows(8, stars_off=1, days_off=None),
    Knows(8, days_off=None),
    Knows(6, stars_off=1, days_off=14),
    Knows(4, stars_off=1, days_off=14),
    Knows(4, wrong=2, stars_off=1, days_off=14),
    Knows(4, stars_off=1, days_off=90),
    Knows(3, stars_off=1, days_off=14),
    Knows(2, days_off=3),
    Knows(2, stars_off=1, days_off=14),
)
COUNTED: Final = 8  # contribution bound of the private counts: films per person
TRIALS_EACH: Final = 100  # number of trials on private counts, for each target of the linkage


def attack_ratings(
    ratings: Ratings,
    dice: np.random.Generator,
    *,
    people: int = 100,
    knowledge: Sequence[Knows] = KNOWLEDGE,
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """Report how many of `people` targets are identified, for each kind of background knowledge."""
    successes = tuple(_success(ratings, knows, dice, people) for knows in knowledge)
    best = max(successes, key=lambda one: one.rate)
    return Report(
        attack="ratings",
        title="Identifying people in film ratings without names",
        knows=(
            "The attacker saw a few ratings of one person elsewhere, and has "
            f"{len(ratings):,} ratings of {ratings.people:,} people and "
            f"{ratings.films:,} films."
        ),
        measure="the person is identified correctly",
        successes=successes,
        finding=(
            f"With {best.against}, {100 * best.rate:.0f} % are identified among "
            f"{ratings.people:,}. The notes in brackets show how often the match was "
            "wrong, and how often there was a match although the person was absent. So "
            "a match is strong evidence, not a proof. Removing names does not protect "
            "people with data this rich."
        ),
        guessing=1 / ratings.people,
        beside=(attack_counts(dice, trials=TRIALS_EACH * people, epsilons=epsilons),),
    )


def attack_counts(
    dice: np.random.Generator, *, trials: int, epsilons: Sequence[float] = EPSILONS
) -> Report:
    """Report how often private counts per film reveal whether a target is in the data set.

    A contribution bound limits each person to 8 films (COUNTED), and the noise of each count grows
    with that bound. The attacker knows all others, and the target's films.
    """
    look = Look(counts=COUNTED, guess=by_the_votes)
    return Report(
        attack="ratings",
        title="The same from private counts: who is in the data set",
        knows=(
            "The release has the number of people who rated each film; each person "
            f"counts for at most {COUNTED} films. The attacker knows everybody else and "
            "the target's films. Before the release, they give the target a 50 % "
            "chance of being in the data set."
        ),
        measure="correct guesses whether the target is in the data set",
        successes=successes_against_ours(dice, runs=trials, look=look, epsilons=epsilons),
        finding="From private counts, no guess is correct more often than the marks show.",
        guessing=COIN,
    )


def _success(ratings: Ratings, knows: Knows, dice: np.random.Generator, people: int) -> SuccessRate:
    targets = _targets(ratings, knows, dice, people)
    named = mistaken = invented = 0
    for person in targets:
        hints = hints_of(ratings, int(person), knows, dice)
        found, other = find(ratings, hints), find_without(ratings, int(person), hints)
        named += found.is_believed and found.person == person
        mistaken += found.is_believed and found.person != person
        invented += other.is_believed
    note = f"{mistaken} false matches, {invented} if absent"
    return SuccessRate(knows.text, named, people, note=note)


def _targets(
    ratings: Ratings, knows: Knows, dice: np.random.Generator, people: int
) -> Sequence[int]:
    """Draw the people to attack, among those with enough ratings to know some of."""
    able = np.flatnonzero(ratings.sizes >= knows.ratings - knows.wrong)
    if not len(able):
        raise Refused(
            "bad-request",
            "Nobody in the table has as many ratings as the attacker is assumed to know.",
            "Give a smaller number of known ratings.",
        )
    return [int(person) for person in dice.choice(able, size=people)]


def _run(setting: Setting) -> Report:
    knowledge = (_typed(setting),) if setting.text("known", "") else KNOWLEDGE
    people = setting.whole("people", PEOPLE, least=2, most=1_000_000)
    films = setting.whole("films", FILMS, least=50, most=30_000)
    ratings = film_ratings(setting.dice, people=people, films=films)
    return attack_ratings(
        ratings,
        setting.dice,
        people=setting.runs,
        knowledge=knowledge,
        epsilons=setting.epsilons(),
    )


def _typed(setting: Setting) -> Knows:
    known = setting.whole("known", 8, least=1, most=40)
    has_days = setting.text("days-off", "") != "none"
    return Knows(
        known,
        wrong=setting.whole("wrong", 0, least=0, most=min(known, 8)),
        stars_off=setting.whole("stars-off", 1, least=0, most=4),
        days_off=setting.whole("days-off", 14, least=0, most=1000) if has_days else None,
    )


ATTACK: Final = Attack(
    "ratings",
    "identify people in film ratings, by a few ratings seen elsewhere",
    _run,
    runs=100,
    options={
        "people": "how many people the synthetic set has",
        "films": "how many films",
        "known": "how many ratings are known; then also:",
        "wrong": "how many of them are wrong",
        "stars-off": "the largest error of the known ratings, in stars",
        "days-off": "the largest error of the known dates, in days; none if no dates are known",
        **EPSILONS_OPTION,
    },
)
