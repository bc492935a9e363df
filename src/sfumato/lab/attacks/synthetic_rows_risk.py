"""Measure three privacy risks of synthetic data, as Anonymeter does (Giomi and others 2023).

The risks are those of data protection law: singling out, linkability and inference. Each attack
has three variants. The main attack is on people behind the synthetic rows, the control is on other
people, and the baseline guesses without the synthetic rows. What the control also learns is
knowledge about the population. The risk is the success of the main attack beyond the control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import CONFIDENCE
from sfumato.lab.column_tables import (
    Bits,
    Column,
    Condition,
    Predicate,
    Table,
    fulfils,
    is_number,
    nearest,
    rows_of,
    taken,
)
from sfumato.lab.success_rate_bounds import interval

TOLERANCE: Final = 0.05  # a guessed number is right up to this relative error
ROUNDS: Final = 20  # the most predicates that are tried for each one that is wanted


@dataclass(frozen=True)
class Tally:
    """How often an attack was right, and how often it was tried."""

    hits: int
    tries: int

    @property
    def rate(self) -> float:
        """Return the attack's success rate."""
        return self.hits / self.tries if self.tries else 0.0

    @staticmethod
    def of(right: Bits) -> Tally:
        """Count the right guesses of an attack, and all of its guesses."""
        return Tally(int(right.sum()), int(right.size))


@dataclass(frozen=True)
class Tables:
    """The original rows, the synthetic rows made from them, and control rows of other people."""

    original: Table
    synthetic: Table
    control: Table


@dataclass(frozen=True)
class Risk:
    """The success rates of the main, baseline and control attacks, and the risk that follows."""

    main: Tally
    baseline: Tally
    control: Tally

    @property
    def value(self) -> float:
        """Return (main - control) / (1 - control): the main attack's excess over the control."""
        return _beyond(self.main.rate, self.control.rate)

    def within(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return a confidence interval of the risk, from two exact intervals that hold together."""
        both = (1 + confidence) / 2
        main = interval(self.main.hits, self.main.tries, both)
        control = interval(self.control.hits, self.control.tries, both)
        return _beyond(main[0], control[1]), _beyond(main[1], control[0])

    @property
    def finding(self) -> str:
        """Return a sentence: the risk with its interval, and each attack's success rate."""
        low, high = self.within()
        return (
            f"Risk {max(0.0, self.value):.1%} ({max(0.0, low):.1%} to "
            f"{max(0.0, high):.1%}). The attack succeeds for {self.main.rate:.1%} of "
            f"the people behind the rows, for {self.control.rate:.1%} of other people, "
            f"and for {self.baseline.rate:.1%} without the synthetic rows."
        )


def _beyond(main: float, control: float) -> float:
    return (main - control) / (1 - control) if control < 1 else 0.0


# --- linkability ------------------------------------------------------------------------------


def linked(
    people: Table,
    synthetic: Table,
    halves: tuple[Sequence[str], Sequence[str]],
    neighbours: int = 1,
) -> Bits:
    """Return, for each person, whether the attacker links both halves of the person's columns.

    The halves are linked if they share one of their `neighbours` nearest synthetic rows.
    """
    one, other = (nearest(people, synthetic, half, neighbours) for half in halves)
    both: Bits = (one[:, :, None] == other[:, None, :]).any(axis=(1, 2))
    return both


def linkability(
    tables: Tables, halves: tuple[Sequence[str], Sequence[str]], dice: np.random.Generator
) -> Risk:
    """Return the risk that an attacker links the two halves of a person's columns.

    The attacker links them if both halves have the same nearest synthetic row.
    """
    rows, tries = rows_of(tables.synthetic), rows_of(tables.original)
    lucky = dice.integers(0, rows, tries) == dice.integers(0, rows, tries)
    return Risk(
        main=Tally.of(linked(tables.original, tables.synthetic, halves)),
        baseline=Tally.of(lucky),
        control=Tally.of(linked(tables.control, tables.synthetic, halves)),
    )


# --- inference --------------------------------------------------------------------------------


def inferred(people: Table, synthetic: Table, known: Sequence[str], secret: str) -> Bits:
    """Return for each person whether the nearest synthetic row has their secret."""
    places = nearest(people, synthetic, known, 1)[:, 0]
    return is_right(synthetic[secret][places], people[secret])


def is_right(guesses: Column, secrets: Column) -> Bits:
    """Return which guesses are right: equal values, or numbers within 5 % of the guess."""
    if not is_number(secrets):
        return np.asarray(guesses == secrets)
    return np.asarray(np.abs(guesses - secrets) <= TOLERANCE * np.abs(guesses))


def inference(tables: Tables, known: Sequence[str], secret: str, dice: np.random.Generator) -> Risk:
    """Return the risk that an attacker who knows some columns infers another."""
    original, synthetic = tables.original, tables.synthetic
    lucky = dice.integers(0, rows_of(synthetic), rows_of(original))
    return Risk(
        main=Tally.of(inferred(original, synthetic, known, secret)),
        baseline=Tally.of(is_right(synthetic[secret][lucky], original[secret])),
        control=Tally.of(inferred(tables.control, synthetic, known, secret)),
    )


# --- singling out -----------------------------------------------------------------------------


def predicates_of_rows(
    synthetic: Table, count: int, columns: int, dice: np.random.Generator
) -> list[Predicate]:
    """Return distinct predicates on `columns` columns, each true of exactly one synthetic row.

    A numeric condition is "at least" for values above the median, else "at most", because then
    fewer rows fit.
    """
    names, rows = sorted(synthetic), rows_of(synthetic)
    fits = {name: _fits(synthetic[name]) for name in names}
    found: dict[Predicate, None] = {}
    for _ in range(ROUNDS):
        places = dice.integers(0, rows, count)
        chosen = dice.random((count, len(names))).argsort(axis=1) < columns
        fitting = np.ones((count, rows), dtype=bool)
        for name, is_in in zip(names, chosen.T, strict=True):
            fitting &= fits[name][places] | ~is_in[:, None]
        alone = fitting.sum(axis=1) == 1
        for place, is_in in zip(places[alone], chosen[alone], strict=True):
            about = [name for name, one in zip(names, is_in, strict=True) if one]
            found[tuple(_about(synthetic, name, int(place)) for name in about)] = None
            if len(found) == count:
                return list(found)
    return list(found)


def predicates_of_extremes(synthetic: Table) -> list[Predicate]:
    """Return predicates on one column, each true of exactly one synthetic row.

    Each says that the column has its smallest or largest number, or a value that occurs once.
    """
    found: dict[Predicate, None] = {}
    for name, column in synthetic.items():
        values, counts = np.unique(column, return_counts=True)
        ends = [("<=", values[0]), (">=", values[-1])] if is_number(column) else []
        for sign, value in [*ends, *(("=", rare) for rare in values[counts == 1])]:
            found[(Condition(name, sign, value.item()),)] = None
    return [one for one in found if int(fulfils(one, synthetic).sum()) == 1]


def random_predicates(
    synthetic: Table, count: int, columns: int, dice: np.random.Generator
) -> list[Predicate]:
    """Return random conditions on several columns, for the baseline attack of singling out.

    The values come from independently chosen synthetic rows.
    """
    made = []
    for _ in range(count):
        names = sorted(dice.choice(list(synthetic), columns, replace=False).tolist())
        made.append(tuple(_by_luck(synthetic, name, dice) for name in names))
    return made


def singles_out(predicates: Sequence[Predicate], people: Table) -> Bits:
    """Return, for each predicate (conditions on columns), whether exactly one person fulfils it."""
    return np.array([int(fulfils(one, people).sum()) == 1 for one in predicates], dtype=bool)


def singled_out(predicates: Sequence[Predicate], people: Table) -> Bits:
    """Return, for each person, whether some predicate is true of this person alone."""
    alone = np.zeros(rows_of(people), dtype=bool)
    for predicate in predicates:
        rows = fulfils(predicate, people)
        if int(rows.sum()) == 1:
            alone |= rows
    return alone


def singling_out(
    tables: Tables, dice: np.random.Generator, *, attacks: int = 500, columns: int = 3
) -> Risk:
    """Return the risk that a predicate made from the synthetic rows is true of one person alone.

    Uniqueness depends on the number of people. So the control must have at least as many rows as
    the original table, and only as many of them are used.
    """
    original, size = tables.original, rows_of(tables.original)
    if rows_of(tables.control) < size:
        raise Refused(
            "bad-request",
            "The control has fewer rows than the original, so they cannot be compared.",
            "Give a larger control, or fewer original rows.",
        )
    predicates = predicates_of_rows(tables.synthetic, attacks, columns, dice)
    guessed = random_predicates(tables.synthetic, attacks, columns, dice)
    return Risk(
        main=Tally.of(singles_out(predicates, original)),
        baseline=Tally.of(singles_out(guessed, original)),
        control=Tally.of(singles_out(predicates, taken(tables.control, np.arange(size)))),
    )


def _fits(column: Column) -> Bits:
    """Make a condition from each row's value in a column; return which rows fulfil which condition.

    A numeric condition is "at least" for values above the median, else "at most".
    """
    if not is_number(column):
        return np.asarray(column[:, None] == column[None, :])
    above = column[:, None] > np.median(column)
    return np.asarray(
        np.where(above, column[None, :] >= column[:, None], column[None, :] <= column[:, None])
    )


def _about(table: Table, name: str, row: int) -> Condition:
    column = table[name]
    value = column[row].item()
    if not is_number(column):
        return Condition(name, "=", value)
    return Condition(name, ">=" if value > np.median(column) else "<=", value)


def _by_luck(table: Table, name: str, dice: np.random.Generator) -> Condition:
    column: NDArray[Any] = table[name]
    value = column[int(dice.integers(0, len(column)))].item()
    signs = ("=", ">=", "<=") if is_number(column) else ("=",)
    return Condition(name, signs[int(dice.integers(0, len(signs)))], value)
