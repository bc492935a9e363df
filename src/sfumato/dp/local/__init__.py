"""Local differential privacy: people add noise to their own answers, before anything is stored.

`oracle.py` is the interface of one answer among several, `number.py` that of numbers, `ballot.py`
puts questions together, `kinds.py` reads parameters; `choose.py` takes the best. docs/local.md says
which word does what, for clients in other languages.
"""

from sfumato.core.local.ballot import Sampled, Split, choices, leaves, randomise_ballots
from sfumato.core.local.choose import best, best_ballot, best_numbers, candidates
from sfumato.core.local.estimate import Shares
from sfumato.core.local.kinds import numbers_of, oracle_of, randomiser_of
from sfumato.core.local.law import Law, epsilon_of, worst_ratio
from sfumato.core.local.mean import (
    Mean,
    NumberTally,
    estimate_mean,
    randomise_numbers,
    simulate_numbers,
    tally_numbers,
)
from sfumato.core.local.number import Numbers
from sfumato.core.local.oracle import (
    Oracle,
    Randomiser,
    Tally,
    nothing,
    randomise,
    randomise_one,
    simulate,
    tally,
)
from sfumato.core.local.permanent import Device, Kept, Waves, lifetime
from sfumato.core.local.respondents import (
    margin_of,
    margin_of_mean,
    moved_mean,
    moved_share,
    people_for,
    people_for_mean,
)
from sfumato.core.local.shuffle import amplified
from sfumato.core.local.simplex import likeliest, nearest
from sfumato.core.local.two_coins import FAIR, Estimate, TwoCoins

__all__ = [
    "FAIR",
    "Device",
    "Estimate",
    "Kept",
    "Law",
    "Mean",
    "NumberTally",
    "Numbers",
    "Oracle",
    "Randomiser",
    "Sampled",
    "Shares",
    "Split",
    "Tally",
    "TwoCoins",
    "Waves",
    "amplified",
    "best",
    "best_ballot",
    "best_numbers",
    "candidates",
    "choices",
    "epsilon_of",
    "estimate_mean",
    "leaves",
    "lifetime",
    "likeliest",
    "margin_of",
    "margin_of_mean",
    "moved_mean",
    "moved_share",
    "nearest",
    "nothing",
    "numbers_of",
    "oracle_of",
    "people_for",
    "people_for_mean",
    "randomise",
    "randomise_ballots",
    "randomise_numbers",
    "randomise_one",
    "randomiser_of",
    "simulate",
    "simulate_numbers",
    "tally",
    "tally_numbers",
    "worst_ratio",
]
