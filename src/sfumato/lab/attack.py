"""Define a named attack, its options, and how to run it on bundled or own data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import Report

Texts = Mapping[str, str]
EPSILONS: Final = "0.1,1,10"
MIN_EPSILON: Final = 0.01  # smallest epsilon; below it, noise is wider than the lab allows for
MAX_EPSILON: Final = 100
EPSILONS_OPTION: Final = {"epsilons": f"the epsilons that are attacked, such as {EPSILONS}"}


@dataclass(frozen=True)
class Setting:
    """Settings of one attack run: the random generator, the repeats and the options as text."""

    dice: np.random.Generator
    runs: int
    options: Texts = field(default_factory=dict)

    def number(self, name: str, otherwise: float) -> float:
        """Return an option as a number, or the default; refuse other text."""
        typed = self.options.get(name)
        if typed is None:
            return otherwise
        try:
            found = float(typed)
        except ValueError:
            found = math.nan
        if math.isfinite(found):
            return found
        raise Refused("bad-request", f"{name} must be a number.", f"Write it like {otherwise:g}.")

    def whole(self, name: str, otherwise: int, *, least: int, most: int) -> int:
        """Return an option as an integer within limits, or the default; refuse anything else."""
        found = self.number(name, float(otherwise))
        if found.is_integer() and least <= found <= most:
            return int(found)
        raise Refused(
            "bad-request",
            f"{name} is a whole number from {least:,} to {most:,}.",
            f"Write it like {otherwise}.",
        )

    def text(self, name: str, otherwise: str) -> str:
        """Return an option as text, or the default."""
        return self.options.get(name, otherwise)

    def epsilons(self) -> tuple[float, ...]:
        """Return the option `epsilons` as numbers, or the default ones; refuse an invalid list."""
        typed = self.text("epsilons", EPSILONS)
        try:
            found = tuple(float(one) for one in typed.split(","))
        except ValueError:
            found = ()
        if found and all(MIN_EPSILON <= one <= MAX_EPSILON for one in found):
            return tuple(dict.fromkeys(found))
        raise Refused(
            "bad-request",
            f"epsilons are numbers from {MIN_EPSILON} to {MAX_EPSILON}.",
            f"Write {EPSILONS}.",
        )


@dataclass(frozen=True)
class Attack:
    """A named attack: what it shows, its options, and the function that runs it."""

    name: str
    shows: str  # one line
    run: Callable[[Setting], Report]
    runs: int = 1000  # the default number of repeats
    options: Texts = field(default_factory=dict)  # option name -> its meaning, in a few words

    def report(self, *, runs: int | None = None, seed: int | None = None, **options: str) -> Report:
        """Run the attack and report its success rates.

        Args:
            runs: The number of repeats; the default is the attack's own.
            seed: A seed that makes the run repeatable.
            **options: The attack's own options, as text; `options` of the attack lists them.

        Returns:
            The report of the attack.

        Raises:
            Refused: `bad-request` for an option that the attack does not have.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "none"
            raise Refused(
                "bad-request",
                f"The attack {self.name} has no option {unknown[0]!r}.",
                f"Its options are: {known}.",
            )
        return self.run(Setting(np.random.default_rng(seed), runs or self.runs, options))
