"""The hybrid mechanism for numbers: use the piecewise mechanism or Duchi's mechanism at random.

The choice is independent of the answer. The mixture makes the error more even over the grid. Proof:
hybrid_mechanism.proof.md (Wang et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Booleans, Parameters, Reports
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.numeric_response import Line
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.random_words import PARTS, Integers, Words, below
from sfumato.dp.refusal import Bug

_TRIED = 64  # `within` tries the shares 1/64, 2/64, ...


@dataclass(frozen=True)
class Hybrid:
    """A mixture of the piecewise mechanism and Duchi's mechanism, for numbers on a grid.

    `share` is the probability to use the piecewise mechanism. All probabilities are in parts of
    2**32.
    """

    steps: int
    share: int
    window: int
    truth: int  # probability of a truthful report in the piecewise mechanism
    ends: int  # probability of a truthful report in Duchi's mechanism

    words_per_report: ClassVar[int] = 5

    def __post_init__(self) -> None:
        if not 0 < self.share < PARTS:
            raise Bug("both ways are taken at times")
        if self.by_window.steps != self.by_ends.steps:  # also checks the parameters of both
            raise Bug("both ways share a grid")

    @staticmethod
    def within(steps: int, epsilon: Fraction) -> Hybrid:
        """Return the mixture with nearly the least worst-case error at this epsilon."""
        window, ends = Piecewise.within(steps, epsilon), Duchi.within(steps, epsilon)
        shares = [Fraction(part, _TRIED) for part in range(1, _TRIED)]
        at = [0, steps // 2, steps]
        errors = [(window.lines[0].variance(i), ends.lines[0].variance(i)) for i in at]
        share = min(shares, key=lambda s: max(s * a + (1 - s) * b for a, b in errors))
        return Hybrid(steps, int(share * PARTS), window.window, window.truth, ends.truth)

    @cached_property
    def by_window(self) -> Piecewise:
        """Return the piecewise mechanism (a window of places), used with probability `share`."""
        return Piecewise(self.steps, self.window, self.truth)

    @cached_property
    def by_ends(self) -> Duchi:
        """Return Duchi's mechanism (ends of the grid), used with probability 1 - `share`."""
        return Duchi(self.steps, self.ends)

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: one names the mechanism, the rest is a place."""
        return 1 + self.by_window.width

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind and its five numbers."""
        return {"kind": "hybrid", "steps": self.steps, "share": self.share, "window": self.window,
                "truth": self.truth, "ends": self.ends}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for each number and for silence."""
        windows, ends = self.by_window.law, self.by_ends.law
        return {value: self._says(windows[value], ends[value]) for value in windows}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one number than under another.

        It is the larger ratio of the two mechanisms, and its logarithm is the local epsilon. A
        report names its mechanism, so the mixture hides nothing more.
        """
        return max(self.by_window.ratio, self.by_ends.ratio)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return how the mean of a report depends on the true number: a `Line` for each mechanism.

        The two mechanisms are the piecewise one and Duchi's.
        """
        share = Fraction(self.share, PARTS)
        (window,), (ends,) = self.by_window.lines, self.by_ends.lines
        return replace(window, share=share), replace(ends, share=1 - share)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise numbers; the first byte of a report is 0 for piecewise and 1 for Duchi.

        The code computes both mechanisms for every report, and keeps one.
        """
        is_window = below(words[0], self.share)[:, np.newaxis]
        windows = self.by_window.randomise(values, words[1:3])
        ends = np.zeros_like(windows)
        ends[:, :1] = self.by_ends.randomise(values, words[1:])
        said = np.where(is_window, windows, ends)
        return np.concatenate([(~is_window).astype(np.uint8), said], axis=1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a mask of the valid reports: those valid under the mechanism that they name."""
        said = np.ascontiguousarray(reports[:, 1:])
        are_windows = (reports[:, 0] == 0) & self.by_window.are_valid(said)
        is_short = ~said[:, 1:].any(axis=1)
        return np.asarray(
            are_windows | ((reports[:, 0] == 1) & self.by_ends.are_valid(said) & is_short)
        )

    def counts(self, reports: Reports) -> Integers:
        """Return four sums over the reports, one row for each of the two mechanisms.

        They are the number of reports, of silent reports, the sum of places, and that of squared
        places.
        """
        said = np.ascontiguousarray(reports[:, 1:])
        by_window = reports[:, 0] == 0
        windows, ends = (
            self.by_window.counts(said[by_window]),
            self.by_ends.counts(said[~by_window]),
        )
        return np.concatenate([windows, ends])

    def _says(self, window: ReportProbabilities, ends: ReportProbabilities) -> ReportProbabilities:
        share = Fraction(self.share, PARTS)
        said = {("window", place): share * chance for place, chance in window.items()}
        return said | {("ends", end): (1 - share) * chance for end, chance in ends.items()}
