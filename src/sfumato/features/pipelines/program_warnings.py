"""Warn, in prices and answers, that a program may give no number or may have too much noise.

The warnings depend on trials on synthetic people (features/pipelines/program_trial.py), on the
noise, and on released values. This module reads no row and no block's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import bad_run
from sfumato.features.pipelines.program_folder import texts_of
from sfumato.features.pipelines.program_plan import DEFAULT_BLOCKS, LEAST_PEOPLE, MEDIAN, Run
from sfumato.sandbox.hidden_characters import look_alikes
from sfumato.sandbox.program_outputs import Output
from sfumato.vault.card.data_card import Card

SHOWN: Final = 6  # the most numbers of an output that a warning names
_UNTRIED: Final = (
    "The program was not tried on synthetic people. `sfumato pipeline plan` does that. It spends "
    "nothing, and shows what the program prints and how its results are read."
)


def most_people(card: Card) -> int | None:
    """Return the largest number of people that the card allows for, or None if it names none."""
    known = [card.size, None if card.folders is None else card.folders.people]
    return min((one for one in known if one is not None), default=None)


def too_many_blocks(card: Card, blocks: int) -> Refused | None:
    """Return the refusal of a run with more blocks than the card declares people, or None."""
    people = most_people(card)
    if people is None or blocks <= people:
        return None
    few = default_blocks(card)
    return bad_run(
        f"the {blocks:,} blocks are more than the {people:,} people that the data card declares, "
        "so some would be empty and count as the middle of the range",
        f"Give fewer blocks: {few:,} have about {people // few:,} people each.",
    )


def default_blocks(card: Card) -> int:
    """Return the number of blocks of a run that names none, from the card's people alone."""
    people = most_people(card)
    if people is None:
        return DEFAULT_BLOCKS
    return max(2, min(DEFAULT_BLOCKS, people // LEAST_PEOPLE))


def default_words(card: Card) -> str:
    """Say which number of blocks a run without one has, and why."""
    blocks, people = default_blocks(card), most_people(card)
    if people is None:
        return f"No number of blocks was given: {blocks}, the default."
    return (
        f"No number of blocks was given: {blocks}, because the data card declares {people:,} "
        f"people, which are about {people // blocks:,} in each block."
    )


def price_warnings(run: Run, gave: Sequence[str] | None) -> list[str]:
    """Return the warnings for a run's price: too much noise, or outputs without a number.

    Args:
        run: The program and its terms.
        gave: The outputs that gave a number in any trial; None if there was no trial.
    """
    untried = [_UNTRIED] if gave is None else []
    return [*_never(run, gave), *_wide(run), *untried]


def review_warnings(
    program: Mapping[str, Any],  # Any: JSON of our own store
    gave: Sequence[str] | None,
) -> list[str]:
    """Return the warnings for the owner who reviews a program: its letters, and its trials."""
    letters = look_alikes(texts_of(program))
    if gave is None:
        return [*letters, _UNTRIED]
    never = [str(one["name"]) for one in program["outputs"] if one["name"] not in gave]
    named = ", ".join(never)
    says = f"On synthetic people, the program never gave a number for {named}."
    return [*letters, says] if never else letters


def answer_warnings(
    run: Run,
    gave: Sequence[str] | None,
    answer: Mapping[str, Any],  # Any: JSON of our own release
) -> list[str]:
    """Return the warnings for a run's answer; without a trial they also use released values."""
    untried = run.program.outputs if gave is None else ()
    near = [_near(run, one, _cells(one, answer)) for one in untried]
    return [*_never(run, gave), *_wide(run), *(said for said in near if said)]


def missing_warnings(
    plan: Mapping[str, Any] | None,  # Any: JSON of our own trial
    blocks: int | None = None,
) -> list[str]:
    """Return a warning for each output that blocks of the program's last trial did not give.

    Args:
        plan: The program's last trial; None if none is kept.
        blocks: The blocks of a run; only the trial's nearest number of blocks is then named.
    """
    if plan is None:
        return []
    lines = plan["at"]
    if blocks is not None:
        lines = sorted(lines, key=lambda line: abs(line["blocks"] - blocks))[:1]
    never = plan.get("never", ())
    names = [one for one in lines[0]["noise"] if one not in never] if lines else []
    gaps = ["; ".join(filter(None, (_gap(name, line) for line in lines))) for name in names]
    return [
        f"In the trial, {said}. Each of these counts as the middle of the range."
        for said in gaps
        if said
    ]


def _gap(name: str, line: Mapping[str, Any]) -> str:  # Any: JSON of our own trial
    """Say how much of an output the blocks of one line of a trial did not give, or ""."""
    at = f"at {line['blocks']:,} blocks"
    share = line.get("cells_missing", {}).get(name)
    if share is not None:
        percent = max(1, round(100 * share))
        return f"{percent} % of the cells of {name} are missing {at}" if share else ""
    without = line["no_number"][name]
    said = f"{without} of {line['tried']} blocks gave no number for {name} {at}"
    return said if without else ""


def _never(run: Run, gave: Sequence[str] | None) -> list[str]:
    never = [] if gave is None else [o for o in run.program.outputs if o.name not in gave]
    if not never:
        return []
    named = ", ".join(f"{o.name} (middle {_middle(o):g})" for o in never)
    return [
        f"On synthetic people, the program never gave a number for {named}. If it gives none on "
        "the real rows either, the answer is the middle of the range plus noise, at the full "
        "price."
    ]


def _wide(run: Run) -> list[str]:
    margins = run.margins()
    if run.take == MEDIAN:
        far = [o.name for o in run.program.outputs if 2 * margins[o.name] >= run.blocks]
        return [
            f"The median of {name} may be off by {margins[name]:,.0f} of the {run.blocks} blocks. "
            "Its answer says almost nothing."
            for name in far
        ]
    wide = [o for o in run.program.outputs if 2 * margins[o.name] >= float(o.upper - o.lower)]
    return [
        f"The noise of {o.name}, ± {margins[o.name]:.4g} at 95 %, is as wide as its declared "
        f"range from {float(o.lower):g} to {float(o.upper):g}. Its answer says almost nothing."
        for o in wide
    ]


def _cells(output: Output, answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the released numbers of an output by their names in a text."""
    if not output.shape:
        return {output.name: answer["rows"][0][answer["columns"].index(output.name)]}
    values = np.array(answer["arrays"][output.name]["values"], dtype=np.float64)
    places = np.ndindex(*output.shape)
    return {f"{output.name} ({cell_name(output, at)})": float(values[at]) for at in places}


def cell_name(output: Output, at: tuple[int, ...]) -> str:
    """Return the row and the column of a table's cell, or the index of an array's number."""
    if output.rows:
        return f"{output.rows[at[0]]}, {output.columns[at[1]]}"
    return ", ".join(map(str, at))


def _near(run: Run, output: Output, cells: Mapping[str, float]) -> str:
    """Return a warning of the numbers that differ from the middle by no more than noise, or ""."""
    margin = 0.0 if run.take == MEDIAN else run.margins()[output.name]
    near = [name for name, value in cells.items() if abs(value - _middle(output)) <= margin]
    if not near:
        return ""
    more = f" and {len(near) - SHOWN:,} more" if len(near) > SHOWN else ""
    verb, their = ("differs", "its") if len(near) == 1 else ("differ", "their")
    return (
        f"{'; '.join(near[:SHOWN])}{more} {verb} from {_middle(output):g} by no more than {their} "
        f"noise. That is the middle of the range, and a block without a number counts as the "
        "middle. The answer may say nothing else."
    )


def _middle(output: Output) -> float:
    return float(output.lower + output.step * output.middle)
