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
TRIALS_EACH: Final = 100  # trials on private counts, for each target of the linkage


def attack_ratings(
    ratings: Ratings,
    dice: np.random.Generator,
    *,
    people: int = 100,
    knowledge: Sequence[Knows] = KNOWLEDGE,
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """Report how many of `people` targets are named, by how much the attacker knows of them."""
    successes = tuple(_success(ratings, knows, dice, people) for knows in knowledge)
    best = max(successes, key=lambda one: one.rate)
    return Report(
        attack="ratings",
        title="People named among film ratings without names",
        knows=(
            f"The attacker saw a few ratings of one person elsewhere, and holds {len(ratings):,} "
            f"ratings of {ratings.people:,} people and {ratings.films:,} films."
        ),
        measure="the person is named, and believed to be the one",
        successes=successes,
        finding=(
            f"By {best.against}, {100 * best.rate:.0f} % are named among {ratings.people:,}. "
            "In brackets: how often a wrong one was believed, and how often somebody was although "
            "the one looked for was not there: a match is a strong hint, not a proof. Taking names "
            "away protects nobody whose data are as rich as this."
        ),
        guessing=1 / ratings.people,
        beside=(attack_counts(dice, trials=TRIALS_EACH * people, epsilons=epsilons),),
    )


def attack_counts(
    dice: np.random.Generator, *, trials: int, epsilons: Sequence[float] = EPSILONS
) -> Report:
    """Report how often private counts per film reveal whether a target is in the set.

    A contribution bound limits each person to COUNTED films, and the noise of each count grows with
    that bound. The attacker knows all others, and the target's films.
    """
    look = Look(counts=COUNTED, guess=by_the_votes)
    return Report(
        attack="ratings",
        title="The same from private counts: who is in the set",
        knows=(
            f"Released is how many people rated each film, each person counted in {COUNTED} at "
            "most. The attacker knows everybody else, and the target's films; before, they hold "
            "it for an even chance that the target is in."
        ),
        measure="rightly told whether the target is in the set",
        successes=successes_against_ours(dice, runs=trials, look=look, epsilons=epsilons),
        finding="From private counts nobody is told to be there more surely than the marks say.",
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
    """Draw targets among the people who have enough ratings."""
    able = np.flatnonzero(ratings.sizes >= knows.ratings - knows.wrong)
    if not len(able):
        raise Refused("bad-request", "Nobody has that many ratings.", "Know fewer ratings.")
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
    "name people among film ratings, by a few ratings seen elsewhere",
    _run,
    runs=100,
    options={
        "people": "how many people the synthetic set has",
        "films": "how many films",
        "known": "how many ratings are known; then also:",
        "wrong": "how many of them are wrong",
        "stars-off": "by how many stars they are off at most",
        "days-off": "by how many days, or none where no dates are known",
        **EPSILONS_OPTION,
    },
)
