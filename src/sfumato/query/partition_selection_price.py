"""Price the partition selection of private keys, and choose its method: optimal or threshold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.privacy_events import ApproximateEvent, SingleEvent, ThresholdEvent
from sfumato.dp.mechanisms.gaussian_partition_selection import GaussianThreshold, threshold_for
from sfumato.dp.mechanisms.partition_selection import (
    ONE,
    keep_partitions,
    keep_probabilities,
    people_for_even_odds,
    per_key,
)
from sfumato.dp.ports import RandomSource


@dataclass(frozen=True)
class PricedPartitionSelection:
    """The partition selection of private keys, with its price.

    `epsilon` and `delta` cover all keys of one person, who has at most `groups` of them. `per_key`
    returns the share of each key.
    """

    epsilon: Fraction
    delta: Fraction
    groups: int
    threshold: GaussianThreshold | None = None  # None: optimal selection, key by key

    @property
    def event(self) -> SingleEvent:
        """Return the accountant's event (mechanism and price) for the partition selection alone."""
        if self.threshold is None:
            return ApproximateEvent(self.epsilon, self.delta)
        return ThresholdEvent(self.threshold.rho, self.threshold.tail, self.epsilon, self.delta)

    def keep(self, counts: NDArray[np.int64], dice: RandomSource) -> NDArray[np.bool_]:
        """Return a mask of the keys to show, given the number of people with each key."""
        if self.threshold is None:
            return keep_partitions(counts, *self.per_key(), dice)
        return self.threshold.keep(counts, dice)

    def as_text(self) -> str:
        """Return a text that identifies the selection method and its price.

        The text is part of stored answers' keys, so it must never change.
        """
        if self.threshold is None:
            return str(self.epsilon)
        return f"{self.epsilon}, threshold {self.threshold.threshold} at {self.threshold.variance}"

    def per_key(self) -> tuple[Fraction, Fraction]:
        """Return the epsilon and delta for each key (soundness rule 16)."""
        return per_key(self.epsilon, self.delta, self.groups)

    def people_for_odds(self, odds: Fraction) -> int:
        """Return the fewest people with whom a key is shown with probability `odds` or more."""
        if self.threshold is not None:
            return self.threshold.people_for_odds(odds)
        kept = keep_probabilities(*self.per_key())
        return next(n for n, p in enumerate(kept) if p >= odds * ONE)


def selection_for(epsilon: Fraction, delta: Fraction, groups: int) -> PricedPartitionSelection:
    """Return the better of optimal and threshold partition selection.

    The better one needs fewer people to show a key with probability one half.
    """
    optimal = PricedPartitionSelection(epsilon, delta, groups)
    threshold = threshold_for(epsilon, delta, groups)
    if threshold is None or people_for_even_odds(*optimal.per_key()) <= threshold.threshold:
        return optimal
    return PricedPartitionSelection(epsilon, delta, groups, threshold)
