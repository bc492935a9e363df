"""The privacy criteria of a recoding: k-anonymity, l-diversity, t-closeness and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents
from sfumato.dp.anonymity.coded_table import Bits, Codes, Floats
from sfumato.dp.anonymity.diversity_measures import (
    alphas,
    betas,
    deltas,
    distinct_ls,
    enhanced_betas,
    entropy_ls,
    recursive_cs,
    ts,
)
from sfumato.dp.refusal import Refused

SLACK = 1e-12  # tolerance, so that rounding does not fail a class that meets its limit exactly
_MOST: tuple[tuple[str, Callable[[Contents], Floats]], ...] = (
    ("alpha", alphas),
    ("t", ts),
    ("beta", betas),
    ("enhanced_beta", enhanced_betas),
    ("delta", deltas),
)


@dataclass(frozen=True)
class Goal:
    """The privacy criteria that a recoded table must meet: k, and limits for sensitive columns.

    None means no limit. A limit holds for every sensitive column.
    """

    k: int = 1
    l: int | None = None  # noqa: E741  # distinct values in every class
    entropy_l: float | None = None
    recursive: tuple[float, int] | None = None  # c and l
    alpha: float | None = None
    t: float | None = None
    beta: float | None = None
    enhanced_beta: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        is_negative = any(number is not None and not number >= 0 for number in self._numbers())
        if self.k < 1 or is_negative or (self.recursive is not None and self.recursive[1] < 1):
            raise Refused(
                "bad-request",
                "A goal needs a k of 1 or more, and no negative limits.",
                "Write it like k = 5, l = 2, t = 0.2.",
            )

    @property
    def needs_sensitive(self) -> bool:
        """Return whether there is any criterion besides k, so that sensitive columns are needed."""
        return any(getattr(self, f.name) is not None for f in fields(self) if f.name != "k")

    @property
    def is_about_the_table(self) -> bool:
        """Return whether a criterion, such as t-closeness, compares classes with the whole table.

        Suppressing rows changes the whole table, and so the result of such a criterion.
        """
        limits = (self.t, self.beta, self.enhanced_beta, self.delta)
        return any(limit is not None for limit in limits)

    @property
    def is_about_k_and_l(self) -> bool:
        """Return whether k-anonymity and distinct l-diversity are the only criteria.

        Merging classes never violates these two.
        """
        return replace(self, k=1, l=None) == Goal()

    @property
    def in_words(self) -> str:
        """Return the criteria as text, such as `k = 5, l = 2`."""
        said = [("k", self.k), ("l", self.l), ("entropy l", self.entropy_l)]
        said += [("alpha", self.alpha), ("t", self.t), ("beta", self.beta)]
        said += [("enhanced beta", self.enhanced_beta), ("delta", self.delta)]
        words = [f"{name} = {value:g}" for name, value in said if value is not None]
        if self.recursive is not None:
            words.append(f"({self.recursive[0]:g}, {self.recursive[1]})-diversity")
        return ", ".join(words)

    def fails(self, sizes: Codes, contents: Sequence[Contents]) -> Bits:
        """Return a mask of the equivalence classes that fail any of the criteria.

        `contents` has the sensitive values of the classes, one item per sensitive column.
        """
        wrong: Bits = sizes < self.k
        for one in contents:
            wrong |= self._fails_in(one)
        return wrong

    def surely_fails(self, sizes: Codes, contents: Sequence[Contents]) -> Bits:
        """Return a mask of the equivalence classes that fail k-anonymity or distinct l-diversity.

        Merging classes never makes a class fail these two. So a search may skip all finer levels
        (predictive tagging).
        """
        wrong: Bits = sizes < self.k
        if self.l is not None:
            for one in contents:
                wrong |= distinct_ls(one) < self.l
        return wrong

    def _fails_in(self, of: Contents) -> Bits:
        wrong = np.zeros(len(of.sizes), bool)
        if self.l is not None:
            wrong |= distinct_ls(of) < self.l
        if self.entropy_l is not None:
            wrong |= entropy_ls(of) < self.entropy_l - SLACK
        if self.recursive is not None:
            wrong |= recursive_cs(of, self.recursive[1]) >= self.recursive[0]
        for name, measure in _MOST:
            limit = getattr(self, name)
            if limit is not None:
                wrong |= measure(of) > limit + SLACK
        return wrong

    def _numbers(self) -> list[float | None]:
        return [
            self.l, self.entropy_l, self.alpha, self.t, self.beta, self.enhanced_beta, self.delta,
            *(self.recursive or ()),
        ]  # fmt: skip


def kept_by(goal: Goal, sizes: Codes, contents: Sequence[Contents]) -> Bits:
    """Return a mask of the classes that stay after suppressing those that fail the criteria.

    Suppressing classes changes the table with which t-closeness, beta-likeness and delta-disclosure
    compare. So the code tests the remaining classes again, against the remaining table, until none
    fails.
    """
    kept: Bits = ~goal.fails(sizes, contents)
    while goal.is_about_the_table and kept.any():
        wrong = goal.fails(sizes[kept], [one.only(kept) for one in contents])
        if not wrong.any():
            break
        kept[np.flatnonzero(kept)[wrong]] = False
    return kept
