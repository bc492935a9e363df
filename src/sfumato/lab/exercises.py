"""Exercises that check a student's answer, on synthetic data: find a person, break a mechanism.

person = find_the_person(seed=7)
print(person.heard)          # what a neighbour knows of the person
print(person.rows[0])        # the first row of the table
person.check(place)          # your guess: the number of a row, counted from 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral
from typing import Any, Final

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks.linkage import Between, Knowledge, Row, link, uniqueness
from sfumato.lab.sample_data import medical_rows
from sfumato.lab.success_rate_bounds import guessing_bound, least

TRIALS: Final = 2000
MISS: Final = 0.001  # the largest chance that a correct mechanism is called broken


@dataclass(frozen=True)
class Verdict:
    """The verdict of an exercise on an answer: whether it is right, and why."""

    is_right: bool
    says: str

    def __repr__(self) -> str:
        return f"{'Right' if self.is_right else 'Not yet'}. {self.says}"


# --- find the person -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FindThePerson:
    """An exercise: find one person's row in a table without names, from background knowledge."""

    rows: tuple[Row, ...]
    knows: Knowledge
    place: int

    def __repr__(self) -> str:
        """Show the knowledge and the task, but neither the solution nor a thousand rows."""
        return (
            f"{self.heard} Which of the {len(self.rows):,} rows is theirs? Answer with "
            "check(row number)."
        )

    @property
    def heard(self) -> str:
        """Return what a neighbour knows of the person, as a sentence."""
        age, salary = self.knows["age"], self.knows["salary"]
        if not isinstance(age, Between) or not isinstance(salary, Between):
            raise TypeError("the known facts are ranges")
        return (
            f"They live in {self.knows['zip']}, are between {age.low:.0f} and {age.high:.0f} years "
            f"old, and earn between {salary.low:,.0f} and {salary.high:,.0f}."
        )

    def check(self, said: object) -> Verdict:
        """Say whether a row belongs to the person.

        Args:
            said: The number of a row, counted from 0.

        Returns:
            Whether it is right; if not, which columns do not fit the background knowledge.
        """
        if not isinstance(said, Integral):
            return Verdict(False, "Give the number of the row, such as check(12).")
        place = int(said)
        if place == self.place:
            sick = "has" if self.rows[place]["has_rare_disease"] else "does not have"
            return Verdict(
                True, f"This row is theirs, and now you know that the person {sick} the disease."
            )
        if not 0 <= place < len(self.rows):
            return Verdict(False, f"The rows are numbered 0 to {len(self.rows) - 1}.")
        row = self.rows[place]
        apart = [name for name in self.knows if not link([row], {name: self.knows[name]}).is_found]
        return Verdict(
            False, f"That row does not fit what you know: compare {' and '.join(apart)}."
        )


def find_the_person(seed: int = 0) -> FindThePerson:
    """Create the exercise of finding a person in a table without names.

    Args:
        seed: Each seed picks another person.

    Returns:
        The rows, and background knowledge of one person; `check(place)` checks your answer.
    """
    rows = medical_rows()
    dice = np.random.default_rng(seed)
    for place in dice.permutation(len(rows)).tolist():
        knows = _gossip(rows[place], dice)
        if link(rows, knows).is_found:
            return FindThePerson(rows, knows, place)
    raise Refused(
        "bad-request",
        "No row of this table is unique, so the exercise has nobody to find.",
        "Use another table.",
    )


def _gossip(row: Row, dice: np.random.Generator) -> Knowledge:
    """Return inexact background knowledge of a person: their zip, and ranges of age and salary."""
    low_age = int(row["age"]) - int(dice.integers(0, 3))
    low_pay = (int(row["salary"]) - int(dice.integers(0, 10_000))) // 1000 * 1000
    return {
        "zip": row["zip"],
        "age": Between(low_age, low_age + 2),
        "salary": Between(low_pay, low_pay + 10_000),
    }


# --- find the quasi-identifiers ------------------------------------------------------------------


def check_quasi_identifiers(
    rows: Sequence[Row], columns: Sequence[str] | str, *, of: Sequence[str] | str = ()
) -> Verdict:
    """Check that these columns single out as many people as all columns do, and no column is spare.

    Args:
        rows: The table.
        columns: The quasi-identifiers that you name: columns, or one column.
        of: The columns that an attacker may know; the default is every column of the table.

    Returns:
        Whether that is right, and how many people the columns make unique.
    """
    columns, of = ((one,) if isinstance(one, str) else one for one in (columns, of))
    if not rows or not columns:
        return Verdict(False, "Name at least one column of a table with rows.")
    every = tuple(of) or tuple(rows[0])
    most, here = _alone(rows, every), _alone(rows, tuple(columns))
    if len(set(columns)) < len(columns):
        return Verdict(False, "Name each column once.")
    if other := [name for name in columns if name not in every]:
        return Verdict(False, f"{other[0]} is not among the columns {', '.join(every)}.")
    share = f"{here:,} of {len(rows):,} people are unique by {' + '.join(columns)}"
    if here < most:
        return Verdict(False, f"{share}. With all columns, it would be {most:,}. Add a column.")
    fewer = [c for c in combinations(every, len(columns) - 1) if c and _alone(rows, c) == most]
    if fewer:
        return Verdict(
            False, f"{share}, but {len(columns) - 1} columns are enough for that. Leave one out."
        )
    return Verdict(
        True,
        f"{share}. No choice of columns makes more people unique, and fewer columns make "
        "fewer people unique.",
    )


def _alone(rows: Sequence[Row], columns: tuple[str, ...]) -> int:
    return uniqueness(rows, columns)[-1].unique


# --- break this mechanism ------------------------------------------------------------------------


@dataclass(frozen=True)
class BreakTheMechanism:
    """An exercise: disprove a mechanism's claim of (epsilon, delta)-DP on two neighbours."""

    pair: tuple[Any, Any]  # Any: each mechanism has data of its own kind
    mechanism: Callable[..., Any]  # (data, runs, dice) -> outputs, one row per run
    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise Refused(
                "bad-request",
                "A claim has an epsilon of at least 0, and a delta from 0 to below 1.",
                "Give the numbers that the mechanism claims.",
            )

    def sample(self, which: int, runs: int = 10, seed: int | None = None) -> Any:
        """Return outputs of the mechanism on one of the two data sets, to study.

        Args:
            which: 0 for the first data set, 1 for the second.
            runs: How many outputs.
            seed: The same seed gives the same outputs; without it, each call gives others.

        Returns:
            One output per run.

        Raises:
            Refused: `bad-request`, if `which` is neither 0 nor 1.
        """
        if which not in (0, 1):
            raise Refused(
                "bad-request",
                "The exercise has two data sets, 0 and 1, and this is neither.",
                "Give 0 or 1.",
            )
        return self.mechanism(self.pair[which], runs, np.random.default_rng(seed))

    def check(
        self, guess: Callable[[Any], int | None], *, trials: int = TRIALS, seed: int | None = None
    ) -> Verdict:
        """Check whether guesses from single outputs are right more often than the claim allows.

        Fair coins choose the data set of each output, so earlier outputs say nothing of later ones.

        Args:
            guess: Takes one output; returns 0 or 1 for the data set that it came from, or None for
                an output that says too little. Only guesses are counted.
            trials: How many outputs are guessed.
            seed: The same seed gives the same outputs.

        Returns:
            Whether the claim is broken, and how often the guesses were right.
        """
        dice = np.random.default_rng(seed)
        coins = dice.integers(0, 2, size=trials).tolist()
        said = [guess(one) for one in self._outputs(coins, dice)]
        if not all(one is None or one in (0, 1) for one in said):
            return Verdict(False, "A guess is 0, 1, or None if you cannot tell.")
        guesses = sum(one is not None for one in said)
        hits = sum(one == which for one, which in zip(said, coins, strict=True))
        # With a delta, abstentions count as wrong: delta may reveal just the guessed outputs.
        return self._verdict(hits, guesses if self.delta == 0 else trials)

    def _outputs(self, coins: Sequence[int], dice: np.random.Generator) -> list[Any]:
        """Return one output of the mechanism per coin, on the data set that the coin chooses."""
        sides = [iter(self.mechanism(self.pair[w], coins.count(w), dice)) for w in (0, 1)]
        return [next(sides[which]) for which in coins]

    def _verdict(self, hits: int, trials: int) -> Verdict:
        allowed = guessing_bound(self.epsilon, self.delta)
        if not trials:
            return Verdict(False, "You made no guess.")
        surely = least(hits, trials, MISS)
        said = f"You were right {hits / trials:.1%} of {trials:,} times"
        claim = f"at epsilon {self.epsilon:g}, nobody can be right more often than {allowed:.1%}"
        if surely > allowed:
            return Verdict(True, f"{said}; {claim}. The claim is false: the mechanism is broken.")
        if least(trials - hits, trials, MISS) > allowed:
            return Verdict(False, f"{said}, less often than by chance. Guess the opposite.")
        return Verdict(
            False, f"{said}, and {claim}. That proves nothing yet: look for another sign."
        )
