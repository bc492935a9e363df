"""Warn, in prices and answers, that a program may give no number or may have too much noise.

The warnings depend on trials on synthetic people (features/pipelines/program_trial.py), on the
noise, and on released values. This module reads no row and no block's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_plan import MEDIAN, Run
from sfumato.sandbox.program_outputs import Output, bad_pipeline
from sfumato.vault.card.data_card import Card

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
    return bad_pipeline(
        f"the {blocks:,} blocks are more than the {people:,} people that the data card declares, "
        f"so some are empty and count as the middle of the range; {max(2, people // 20):,} "
        "blocks would have 20 people or more each"
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
    """Return the warnings for the owner who reviews a program: what its trials showed."""
    if gave is None:
        return [_UNTRIED]
    never = [str(one["name"]) for one in program["outputs"] if one["name"] not in gave]
    named = ", ".join(never)
    return [f"On synthetic people, the program never gave a number for {named}."] if never else []


def answer_warnings(run: Run, gave: Sequence[str] | None, values: Mapping[str, float]) -> list[str]:
    """Return the warnings for a run's answer; without a trial they also use released values."""
    untried = run.program.outputs if gave is None else ()
    near = [_near(one) for one in untried if _is_near_middle(run, one, values)]
    return [*_never(run, gave), *_wide(run), *near]


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
    if run.take == MEDIAN:
        return []
    margins = run.margins()
    wide = [o for o in run.program.outputs if 2 * margins[o.name] >= float(o.upper - o.lower)]
    return [
        f"The noise of {o.name}, ± {margins[o.name]:.4g} at 95 %, is as wide as its declared "
        f"range from {float(o.lower):g} to {float(o.upper):g}. Its answer says almost nothing."
        for o in wide
    ]


def _is_near_middle(run: Run, output: Output, values: Mapping[str, float]) -> bool:
    if output.name not in values:
        return False
    margin = 0.0 if run.take == MEDIAN else run.margins()[output.name]
    return abs(values[output.name] - _middle(output)) <= margin


def _near(output: Output) -> str:
    return (
        f"{output.name} differs from {_middle(output):g} by no more than its noise. That is the "
        "middle of its range, and a block without a number counts as the middle. The answer may "
        "say nothing else."
    )


def _middle(output: Output) -> float:
    return float(output.lower + output.step * output.middle)
