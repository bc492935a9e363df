"""Repeat a question until the budget or a limit ends the attack, and report which of them did."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from sfumato.client.ask_terms import Json, Number
from sfumato.dp.refusal import Refused

Stop = Literal["nothing", "the budget", "free repeats"]
CHANCE: Final = 1e-6  # equal answers that are less likely than this must share one noise draw
NEVER: Final = "nothing"


@dataclass(frozen=True)
class Probe:
    """The answers that an attack got, the price of each, and what stopped the attack."""

    numbers: tuple[float, ...]
    epsilon: Number  # the price of each question
    questions_each: int  # number of questions per number: one for an answer, two for a difference
    stopped_by: Stop

    @property
    def questions(self) -> int:
        """Return the number of answered questions."""
        return self.questions_each * len(self.numbers)

    @property
    def estimate(self) -> float:
        """Return the attacker's estimate: the mean of the answers, or NaN if there are none."""
        return math.fsum(self.numbers) / len(self.numbers) if self.numbers else math.nan

    @property
    def finding(self) -> str:
        """Return as a sentence what stopped the attack, and after how many questions."""
        asked = f"{self.questions:,} questions were answered"
        if self.stopped_by == "free repeats":
            return (
                f"Stopped by free repeats: {asked}, but their noise was drawn only "
                "once, so together they reveal no more than the first."
            )
        if self.stopped_by == "the budget":
            return f"Stopped by the budget: {asked}, and the next one was refused."
        return f"Not stopped: {asked}, each with new noise, and their mean is {self.estimate:g}."

    def as_json(self) -> Json:
        """Return the answers, their price and what stopped the attack as JSON."""
        return {
            "numbers": list(self.numbers), "epsilon": float(self.epsilon),
            "questions": self.questions, "stopped_by": self.stopped_by, "finding": self.finding,
        }  # fmt: skip


def probe(
    ask: Callable[[str], float],
    questions: Iterable[str],
    *,
    epsilon: Number,
    most: int,
    questions_each: int = 1,
) -> Probe:
    """Ask the questions until the budget refuses one, or `most` are answered."""
    numbers: list[float] = []
    stopped: Stop = "nothing"
    for question in islice(questions, most):
        number = _fitting(ask, question)
        if number is None:
            stopped = "the budget"
            break
        numbers.append(number)
    if stopped == NEVER and is_one_noise(numbers, float(epsilon)):
        stopped = "free repeats"
    return Probe(tuple(numbers), epsilon, questions_each, stopped)


def is_one_noise(numbers: Iterable[float], epsilon: float) -> bool:
    """Return True if the numbers are equal because they share one noise draw.

    At sensitivity one, independent discrete Laplace noise hits a given value with a chance of at
    most tanh(epsilon/2). Wider noise hits it less often.
    """
    found = list(numbers)
    by_luck = math.tanh(epsilon / 2) ** (len(found) - 1)
    return len(set(found)) == 1 and by_luck < CHANCE


def _fitting(ask: Callable[[str], float], question: str) -> float | None:
    """Ask a question; return its answer, or None if the privacy budget refuses it.

    Any other refusal is raised.
    """
    refused: Refused | None = None
    try:
        return ask(question)
    except Refused as came:
        refused = came
    if refused.code == "budget-exceeded":
        return None
    raise refused
