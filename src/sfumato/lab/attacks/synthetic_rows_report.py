"""Report the three risks of synthetic data for one target, drawn anew in every trial.

Each trial attacks the same target twice: with synthetic rows of a town that includes them (main),
and of the same town without them (control). For a private generator, the control limits the main
attack: it is right at most e^epsilon times as often, whatever the attack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.synthetic_rows_risk import (
    Risk,
    Tally,
    inferred,
    linked,
    predicates_of_rows,
    singled_out,
)
from sfumato.lab.column_tables import Table, joined
from sfumato.lab.success_rate_bounds import hit_rate_bound, most
from sfumato.lab.synthetic_rows import PUBLIC_SIZE, copied, draw_town, from_private_histogram

PREDICATES: Final = 60
HALVES: Final = (("age", "area"), ("salary", "ill"))
KNOWN: Final = ("age", "area", "ill")
HIDDEN: Final = "salary"
UNSURE: Final = 1e-6  # the error probability of the upper bound on the control's rate
Make = Callable[[Table, np.random.Generator], Table]


def _is_singled_out(target: Table, others: Table, rows: Table, dice: np.random.Generator) -> bool:
    predicates = predicates_of_rows(rows, PREDICATES, 3, dice)
    return bool(singled_out(predicates, joined(target, others))[0])


def _is_linked(target: Table, _others: Table, rows: Table, _dice: np.random.Generator) -> bool:
    return bool(linked(target, rows, HALVES)[0])


def _is_inferred(target: Table, _others: Table, rows: Table, _dice: np.random.Generator) -> bool:
    return bool(inferred(target, rows, KNOWN, HIDDEN)[0])


ATTACKS: Final = (
    ("singled out", _is_singled_out),
    ("linked", _is_linked),
    ("salary inferred", _is_inferred),
)


def _run(setting: Setting) -> Report:
    makes: list[tuple[str, float | None, Make]] = [("a copy", None, copied)]
    for epsilon in setting.epsilons():
        makes.append((f"epsilon = {epsilon:g}", epsilon, _histogram(epsilon)))
    found = {name: _risks(make, setting) for name, _, make in makes}
    successes = tuple(
        _success(f"{name}: {attack}", epsilon, risk)
        for name, epsilon, _ in makes
        for attack, risk in found[name].items()
    )
    return Report(
        attack="synthetic",
        title=f"What synthetic rows of {PUBLIC_SIZE} people reveal about one of them",
        knows="The attacker has the synthetic rows and, in two of the attacks, a part of the "
        "target's row.",
        measure="targets singled out, linked, or whose salary is guessed within 5 %",
        successes=successes,
        finding=_finding(found),
    )


def _histogram(epsilon: float) -> Make:
    return lambda people, dice: from_private_histogram(people, epsilon=epsilon, dice=dice)


def _risks(make: Make, setting: Setting) -> dict[str, Risk]:
    """Return the risk of each attack, on the same targets with and without their row."""
    dice = setting.dice
    outcomes: dict[str, list[tuple[bool, bool, bool]]] = {name: [] for name, _ in ATTACKS}
    for _ in range(setting.runs):
        target, others = draw_town(1, dice), draw_town(PUBLIC_SIZE - 1, dice)
        there, removed = make(joined(target, others), dice), make(others, dice)
        nobody = draw_town(PUBLIC_SIZE, dice)
        for name, attack in ATTACKS:
            outcomes[name].append((
                attack(target, others, there, dice),
                attack(target, others, nobody, dice),
                attack(target, others, removed, dice),
            ))  # fmt: skip
    return {name: _risk(rows) for name, rows in outcomes.items()}


def _risk(rows: Sequence[tuple[bool, bool, bool]]) -> Risk:
    return Risk(*(Tally.of(column) for column in np.array(rows, dtype=bool).T))


def _success(name: str, epsilon: float | None, risk: Risk) -> SuccessRate:
    """Return the main attack's success rate, with the bound that the control's rate implies."""
    control = most(risk.control.hits, risk.control.tries, UNSURE)
    return SuccessRate(
        name, risk.main.hits, risk.main.tries, epsilon,
        None if epsilon is None else hit_rate_bound(epsilon, control),
        f"without the target {risk.control.rate:.0%}, without rows {risk.baseline.rate:.0%}",
    )  # fmt: skip


def _finding(found: dict[str, dict[str, Risk]]) -> str:
    parts = []
    for name, risks in found.items():
        shares = ", ".join(f"{attack} {max(0.0, r.value):.0%}" for attack, r in risks.items())
        parts.append(f"{name}: {shares}")
    return "Risk above that of the same attack without the target's row. " + "; ".join(parts) + "."


ATTACK: Final = Attack(
    "synthetic",
    "single out, link and infer from synthetic rows",
    _run,
    runs=200,
    options=EPSILONS_OPTION,
)
