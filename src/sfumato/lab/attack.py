"""An attack that can be called by its name, on the bundled synthetic data or on one's own."""

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
LEAST: Final = 0.01  # with less, noise is wider than the lab reckons with
MOST: Final = 100
EPSILONS_OPTION: Final = {"epsilons": f"the promises it is tried against, like {EPSILONS}"}


@dataclass(frozen=True)
class Setting:
    """What a run may draw with, how often it repeats, and what was typed for its options."""

    dice: np.random.Generator
    runs: int
    options: Texts = field(default_factory=dict)

    def number(self, name: str, otherwise: float) -> float:
        """Return a number that was typed, or what stands for none; or refuse."""
        typed = self.options.get(name)
        if typed is None:
            return otherwise
        try:
            found = float(typed)
        except ValueError:
            found = math.nan
        if math.isfinite(found):
            return found
        raise Refused("bad-request", f"{name} is a number.", f"Write it like {otherwise:g}.")

    def whole(self, name: str, otherwise: int, *, least: int, most: int) -> int:
        """Return a whole number that was typed and lies there, or what stands for none."""
        found = self.number(name, float(otherwise))
        if found.is_integer() and least <= found <= most:
            return int(found)
        raise Refused(
            "bad-request",
            f"{name} is a whole number from {least:,} to {most:,}.",
            f"Write it like {otherwise}.",
        )

    def text(self, name: str, otherwise: str) -> str:
        """Return a text that was typed, or what stands for none."""
        return self.options.get(name, otherwise)

    def epsilons(self) -> tuple[float, ...]:
        """Return the promises that were typed, or those of every report; or refuse."""
        typed = self.text("epsilons", EPSILONS)
        try:
            found = tuple(float(one) for one in typed.split(","))
        except ValueError:
            found = ()
        if found and all(LEAST <= one <= MOST for one in found):
            return tuple(dict.fromkeys(found))
        raise Refused(
            "bad-request", f"epsilons are numbers from {LEAST} to {MOST}.", f"Write {EPSILONS}."
        )


@dataclass(frozen=True)
class Attack:
    """A named attack: what it shows, what can be set, and how it is run."""

    name: str
    shows: str  # one line
    run: Callable[[Setting], Report]
    runs: int = 1000  # unless told otherwise
    options: Texts = field(default_factory=dict)  # name -> what it sets, in a few words

    def report(self, *, runs: int | None = None, seed: int | None = None, **options: str) -> Report:
        """Run the attack.

        Args:
            runs: How often it is repeated; by default as often as the attack needs.
            seed: The same seed finds the same.
            **options: What this attack lets you set, as texts; `options` of the attack lists it.

        Returns:
            What it found.

        Raises:
            Refused: `bad-request` for an option that the attack does not have.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "none"
            raise Refused(
                "bad-request", f"{self.name} has no option {unknown[0]!r}.", f"It has: {known}."
            )
        return self.run(Setting(np.random.default_rng(seed), runs or self.runs, options))
