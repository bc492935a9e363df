"""Report the linkage attack: who is unique in a table, and what private counts reveal instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sfumato.dp.anonymity.uniqueness import Uniqueness, all_subsets, best_of_each_size
from sfumato.dp.refusal import Refused
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.linkage import (
    Between,
    Knowledge,
    Linkage,
    Row,
    Value,
    in_bands,
    link,
)
from sfumato.lab.one_bit_game import COIN, by_the_votes, coin_flips, successes_against_ours
from sfumato.lab.platform_noise import EPSILONS
from sfumato.lab.sample_data import NEIGHBOUR_KNOWS, medical_rows
from sfumato.lab.table_files import table

COLUMNS: Final = ("zip", "age", "salary")
SHOWN: Final = 3  # the most further sets of columns that the finding names
MAX_DEFAULT_COLUMNS: Final = 8  # the most columns of a table that are used by default
TRIALS: Final = 10_000  # trials; in each, a coin decides whether the target is ill


def attack_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    found: Linkage | None = None,
    beside: tuple[Report, ...] = (),
) -> Report:
    """Report how many people are unique by the most identifying one, two, three, ... columns.

    `found` adds the facts that a neighbour learned from the same rows. `beside` adds reports on
    private counts.
    """
    ranked = all_subsets(columns_of(rows, columns))
    best = best_of_each_size(ranked)
    return Report(
        attack="linkage",
        title="Who is unique in a table without names",
        knows="The attacker knows some columns of every person, like a neighbour.",
        measure="people with a unique row",
        successes=tuple(
            SuccessRate(" + ".join(one.columns), one.unique, one.rows, note=_smallest(one))
            for one in best
        ),
        finding=_finding(ranked, found),
        beside=beside,
    )


def attack_counts(
    dice: np.random.Generator,
    *,
    secret: str = "",
    trials: int = TRIALS,
    epsilons: Sequence[float] = EPSILONS,
) -> Report:
    """Report how often an attacker reads the target's secret from a private table of counts.

    Only one count says anything about the target: the number of rows with the target's values and
    the secret. One person changes one count by one, so each count has the noise of a single count.
    The attacker knows all others, and is left with a zero or a one plus noise.
    """
    told = f"the target's {secret}" if secret else "whether the target is in the table"
    return Report(
        attack="linkage",
        title=f"The same from private counts: {told}",
        knows=(
            "The attacker knows everybody else, and all other columns of the target. "
            "They see one count for every combination of the columns. Before the "
            "release, they give each possibility a 50 % chance."
        ),
        measure=f"correct guesses: {told}",
        successes=(
            SuccessRate("exact counts", _read_off(dice, trials), trials),
            *successes_against_ours(dice, runs=trials, epsilons=epsilons),
        ),
        finding=(
            "Exact counts reveal the target's secret. From private counts, no attacker "
            "is right more often than the marks show, whatever they know about others. "
            "Every further released table adds its epsilon."
        ),
        guessing=COIN,
    )


def _read_off(dice: np.random.Generator, trials: int) -> int:
    truth = coin_flips(dice, runs=trials)
    return int((by_the_votes(truth[:, np.newaxis], dice) == truth).sum())


def columns_of(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Value]]:
    """Return the named columns, or refuse a name that does not exist."""
    known = list(rows[0]) if rows else []
    for name in names:
        if name not in known:
            raise Refused(
                "unknown-column",
                f"The rows have no column {name!r}.",
                f"Name some of {', '.join(known)}.",
                column=name,
            )
    return {name: [row[name] for row in rows] for name in names}


def _smallest(one: Uniqueness) -> str:
    return f"smallest group {one.smallest:,}"


def _finding(ranked: Sequence[Uniqueness], found: Linkage | None) -> str:
    if not ranked:
        return "Without columns, nobody is unique."
    first, *others = ranked
    said = [f"The most identifying of {len(ranked):,} choices of columns: {first.finding}"]
    said += [one.finding for one in others[:SHOWN]]
    if found is not None:
        said.append(f"A neighbour searches for one person. {found.finding}")
    return " ".join(said)


def _run(setting: Setting) -> Report:
    return _run_on_file(setting) if setting.text("data", "") else _run_on_town(setting)


def _run_on_town(setting: Setting) -> Report:
    rows, knows = medical_rows(), _knowledge(setting.text("knows", ""))
    secret = setting.text("secret", "has_rare_disease")
    return attack_table(
        in_bands(rows, "salary", 10_000),
        _split(setting.text("columns", "")) or COLUMNS,
        found=_looked_for(rows, knows) if knows else link(rows, NEIGHBOUR_KNOWS),
        beside=(_counts(setting, secret),),
    )


def _run_on_file(setting: Setting) -> Report:
    rows, knows = table(setting.text("data", "")), setting.text("knows", "")
    secret = setting.text("secret", "")
    columns_of(rows, [secret] if secret else [])  # refuses an unknown column
    counts = _counts(setting, secret)
    return attack_table(
        rows,
        _split(setting.text("columns", "")) or tuple(rows[0] if rows else ())[:MAX_DEFAULT_COLUMNS],
        found=_looked_for(rows, _knowledge(knows)) if knows else None,
        beside=(
            replace(
                counts, knows=f"This is a model, which reads no rows of the file. {counts.knows}"
            ),
        ),
    )


def _counts(setting: Setting, secret: str) -> Report:
    epsilons = setting.epsilons()
    return attack_counts(setting.dice, secret=secret, trials=setting.runs, epsilons=epsilons)


def _looked_for(rows: Sequence[Row], knows: Knowledge) -> Linkage:
    """Link the typed knowledge to rows; cells are texts, or numbers where a range is known."""
    ranges = {name for name, known in knows.items() if isinstance(known, Between)}
    return link([{n: _read(v, n in ranges) for n, v in row.items()} for row in rows], knows)


def _read(value: Value, is_ranged: bool) -> Value:
    if not is_ranged:
        return str(value)
    try:
        return float(value)
    except ValueError:
        return str(value)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _knowledge(text: str) -> Knowledge:
    """Parse knowledge such as `age=52,salary=140000..160000`."""
    pairs = [part.partition("=") for part in _split(text)]
    return {name: _known(value) for name, _, value in pairs}


def _known(text: str) -> str | Between:
    low, mark, high = text.partition("..")
    if not mark:
        return text
    try:
        return Between(float(low), float(high))
    except ValueError:
        pass
    raise Refused("bad-request", f"{text!r} is not a range.", "Write it like 140000..160000.")


ATTACK: Final = Attack(
    "linkage",
    "find a person by what a neighbour knows about them",
    _run,
    runs=TRIALS,
    options={
        "data": "a .csv or .tsv file instead of the synthetic town",
        "columns": "the columns that the attacker may know, separated by commas",
        "knows": "the target, such as zip=00310,salary=140000..160000",
        "secret": "the secret column",
        **EPSILONS_OPTION,
    },
)
