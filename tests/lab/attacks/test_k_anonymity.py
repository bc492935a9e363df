"""Secrets read from k-anonymous tables: held against an attacker who walks the rows one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.hierarchy_rules import built
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoded_table import RecodingSettings, recode_by_class
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.k_anonymity import ILLNESSES, ONE, OTHER, Town, drawn_town, possible


def plainly(town: Town, goal: Goal) -> NDArray[np.bool_]:
    """Return what each person's secret can be, from the released labels alone."""
    made = {name: built(town.table.columns[name], rule) for name, rule in ONE.items()}
    released = recode_by_class(town.table, RecodingSettings(made, goal, ["illness"])).table
    cells = {n: [released.columns[n].values[c] for c in released.columns[n].codes] for n in made}
    found = np.zeros((town.people, ILLNESSES), bool)
    for person in range(town.people):
        allowed = []
        for name, hierarchy in made.items():
            code = int(town.table.columns[name].codes[person])
            labels = {level.labels[level.of_value[code]] for level in hierarchy.levels[1:]}
            allowed.append((name, labels | {town.table.columns[name].values[code]}))
        for row in range(town.people):
            if all(cells[name][row] in labels for name, labels in allowed):
                found[person, town.secret.codes[row]] = True
    return found


def test_the_attacker_reads_what_the_released_cells_say() -> None:
    town = drawn_town(120, np.random.default_rng(4))
    for goal in (Goal(3), Goal(5, l=2)):
        assert (possible(town, ONE, goal) == plainly(town, goal)).all()


def test_the_true_secret_is_always_among_the_possible() -> None:
    town = drawn_town(300, np.random.default_rng(5))
    one, other = possible(town, ONE, Goal(5, l=2)), possible(town, OTHER, Goal(5, l=2))
    here = np.arange(town.people)
    assert (one & other)[here, town.secret.codes].all()
    assert possible(town, ONE, Goal(5), knows_blood=True)[here, town.secret.codes].all()


def test_a_diverse_table_alone_lets_no_secret_be_read_and_two_do() -> None:
    found = attack("crowd").report(runs=200, seed=1)
    alike, diverse, more, both = (one.hits for one in found.successes)
    assert alike > 0
    assert diverse == 0
    assert min(more, both) > 200
    assert found.above_bounds() == ()


def test_with_ten_times_the_crowd_two_tables_tell_less() -> None:
    town = drawn_town(400, np.random.default_rng(6))

    def certain(k: int) -> int:
        both = possible(town, ONE, Goal(k, l=2)) & possible(town, OTHER, Goal(k, l=2))
        return int((both.sum(axis=1) == 1).sum())

    assert certain(50) < certain(5)
