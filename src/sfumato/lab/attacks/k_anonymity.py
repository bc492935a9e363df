"""Read secrets from k-anonymous tables: homogeneous classes, background knowledge, two tables.

The attacker knows all quasi-identifiers of the target, finds the classes that can contain the
target, and lists the secrets there. Nothing is guessed: a hit is a secret that is the only one
left. Two tables, each of them l-diverse, leave only secrets that both allow (Ganta 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.coded_table import Column, Table
from sfumato.dp.anonymity.hierarchy_rules import Intervals, Prefixes, Rule, Taxonomy, built
from sfumato.dp.anonymity.local_recoding import recode_locally
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoding_task import Task, task_of
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.linkage_report import attack_counts

Bits = NDArray[np.bool_]
PEOPLE: Final = 1000
TRIALS: Final = 10_000  # number of trials of the attack on private counts
K: Final = 5
L: Final = 2
ILLNESSES: Final = 12
DISTRICTS: Final = 30
GOES_ROUND: Final = 0.9  # the share of people who have the prevalent illness of their district
BLOOD: Final = 8  # the blood groups; they are background knowledge and not in the table
_ZIPS: Final = tuple(f"003{number}" for number in range(10, 10 + DISTRICTS))
# Two hospitals generalise age and zip in different, equally reasonable ways.
ONE: Final[dict[str, Rule]] = {"age": Intervals((2, 8, 32)), "zip": Prefixes((4,))}
OTHER: Final[dict[str, Rule]] = {
    "age": Intervals((3, 9, 27), 1),
    "zip": Taxonomy({name: (f"sector {name[-1]}",) for name in _ZIPS}),
}


@dataclass(frozen=True)
class Town:
    """A synthetic table of people, its sensitive column, and a background fact on each person."""

    table: Table
    secret: Column
    blood: NDArray[np.int64]

    @property
    def people(self) -> int:
        """Return the number of people."""
        return self.table.rows


def drawn_town(people: int, dice: np.random.Generator) -> Town:
    """Draw a synthetic town of people; in each district, one illness is prevalent."""
    district = dice.integers(0, DISTRICTS, people)
    round_here = dice.integers(0, ILLNESSES, DISTRICTS)[district]
    anywhere = dice.integers(0, ILLNESSES, people)
    illness = np.where(dice.random(people) < GOES_ROUND, round_here, anywhere)
    secret = Column("illness", illness, tuple(f"illness {n}" for n in range(ILLNESSES)))
    columns = {
        "age": Column("age", dice.integers(0, 80, people), tuple(range(18, 98))),
        "zip": Column("zip", district, _ZIPS),
        "illness": secret,
    }
    return Town(Table(columns, people), secret, dice.integers(0, BLOOD, people))


def possible(town: Town, rules: dict[str, Rule], goal: Goal, *, knows_blood: bool = False) -> Bits:
    """Return, for each person, which secrets a recoded table leaves possible.

    Locally recoded classes overlap: every class that can contain the target counts.
    """
    made = {name: built(town.table.columns[name], rule) for name, rule in rules.items()}
    task = task_of(town.table, made, ["illness"], goal)
    cells = recode_locally(task)
    of_row = cells.ids[task.of_row]
    covered = _covered(task, cells.levels, of_row)
    secrets = np.zeros((town.people, ILLNESSES), bool)
    for person in range(town.people):
        fits = covered[person][of_row]
        if knows_blood:
            fits = fits & (town.blood == town.blood[person])
        secrets[person, town.secret.codes[fits]] = True
    return secrets


def _covered(task: Task, levels: NDArray[np.int64], of_row: NDArray[np.int64]) -> Bits:
    """Return, for each person and each class of a k-anonymous table, if the person may be in it.

    A person may be in it if its generalised values fit the person's values.
    """
    classes = len(levels)
    one_of = np.zeros(classes, np.int64)
    one_of[of_row] = np.arange(len(of_row))  # one person of each class, to look up its cells
    found = np.ones((len(of_row), classes), bool)
    for axis, hierarchy in enumerate(task.hierarchies):
        groups = np.stack([level.of_value for level in hierarchy.levels])
        places = task.tuples.places[axis][task.of_row]
        cell = groups[levels[:, axis], places[one_of]]
        found &= groups[levels[:, axis][None, :], places[:, None]] == cell[None, :]
    return found


def _certain(secrets: Bits) -> int:
    return int((secrets.sum(axis=1) == 1).sum())


def _run(setting: Setting) -> Report:
    town = drawn_town(setting.whole("people", PEOPLE, least=50, most=5000), setting.dice)
    diverse = Goal(K, l=L)
    one, other = possible(town, ONE, diverse), possible(town, OTHER, diverse)
    named = f"k = {K} and l = {L}"
    found = {
        f"one table, k = {K}": _certain(possible(town, ONE, Goal(K))),
        f"one table, {named}": _certain(one),
        f"one table, {named}, and one fact more": _certain(
            possible(town, ONE, diverse, knows_blood=True)
        ),
        f"two tables, each {named}": _certain(one & other),
    }
    return Report(
        attack="crowd",
        title=f"Reading secrets from k-anonymous tables of {town.people:,} people",
        knows="The attacker knows the target's age and zip, and that the target is in the table.",
        measure="people whose secret is certain, because only one value is possible",
        successes=tuple(SuccessRate(name, hits, town.people) for name, hits in found.items()),
        finding=_finding(town, found),
        beside=(_private(setting, town.secret.name),),
    )


def _private(setting: Setting, told: str) -> Report:
    return attack_counts(
        setting.dice, secret=told, trials=setting.runs, epsilons=setting.epsilons()
    )


def _finding(town: Town, found: dict[str, int]) -> str:
    alike, diverse, more, both = (hits / town.people for hits in found.values())
    return (
        f"In a k-anonymous table, rows that look alike can share one secret: {alike:.1%} "
        f"of the secrets are read. With l = {L} it is {diverse:.1%}, but {more:.1%} if "
        "the attacker knows one more fact. With a second, equally diverse table of the "
        f"same people, it is {both:.1%}. The k and l of one table do not bound what two "
        "tables reveal together. The epsilons of private releases add up."
    )


ATTACK: Final = Attack(
    "crowd",
    "read secrets from k-anonymous tables",
    _run,
    runs=TRIALS,
    options={"people": "how many live in the town", **EPSILONS_OPTION},
)
