"""Local differential privacy: people randomise their own answers before anything is stored.

- `frequency_oracle.py`: the interface of randomisers for one answer among several
- `numeric_response.py`: the interface of randomisers for numbers
- `ballot_split.py`: several questions in one ballot
- `randomiser_registry.py`: builds a randomiser from its JSON parameters
- `randomiser_choice.py`: chooses the most accurate randomiser

For clients in other languages, docs/reference/local.md specifies how a client uses each random
word.
"""

from sfumato.dp.local.ballot_split import Sampled, Split, choices, leaves, randomise_ballots
from sfumato.dp.local.frequency_estimation import Shares
from sfumato.dp.local.frequency_oracle import (
    Oracle,
    Randomiser,
    Tally,
    nothing,
    randomise,
    randomise_one,
    simulate,
    tally,
)
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of, worst_ratio
from sfumato.dp.local.mean_estimation import (
    Mean,
    NumberTally,
    estimate_mean,
    randomise_numbers,
    simulate_numbers,
    tally_numbers,
)
from sfumato.dp.local.numeric_response import Numbers
from sfumato.dp.local.permanent_response import Device, PermanentResponse, PrivacyLoss, lifetime
from sfumato.dp.local.randomiser_choice import best_ballot, best_numbers, best_oracle, candidates
from sfumato.dp.local.randomiser_registry import numbers_of, oracle_of, randomiser_of
from sfumato.dp.local.sample_size import (
    influence_on_mean,
    influence_on_share,
    margin_of,
    margin_of_mean,
    people_for,
    people_for_mean,
)
from sfumato.dp.local.shuffle_amplification import amplified
from sfumato.dp.local.simplex_projection import likeliest, nearest
from sfumato.dp.local.two_coins import FAIR, Estimate, TwoCoins

# names of version 0.1
best = best_oracle
Waves = PermanentResponse
moved_share = influence_on_share
moved_mean = influence_on_mean

__all__ = [
    "FAIR",
    "Device",
    "Estimate",
    "Law",
    "Mean",
    "NumberTally",
    "Numbers",
    "Oracle",
    "PermanentResponse",
    "PrivacyLoss",
    "Randomiser",
    "Sampled",
    "Shares",
    "Split",
    "Tally",
    "TwoCoins",
    "amplified",
    "best_ballot",
    "best_numbers",
    "best_oracle",
    "candidates",
    "choices",
    "epsilon_of",
    "estimate_mean",
    "influence_on_mean",
    "influence_on_share",
    "leaves",
    "lifetime",
    "likeliest",
    "margin_of",
    "margin_of_mean",
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
