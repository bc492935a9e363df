"""The lab: linkage and leave-one-out attacks, the Laplace mechanism for any query, sensitivity."""

from sfumato.dp.anonymity.uniqueness import Uniqueness
from sfumato.lab.attacks.leave_one_out import (
    Guessed,
    Rebuilt,
    attack_broken_release,
    attack_private_mean,
    rebuild,
)
from sfumato.lab.attacks.linkage import Between, Linkage, in_bands, link, uniqueness
from sfumato.lab.empirical_sensitivity import empirical_sensitivity, parallel_databases
from sfumato.lab.laplace_of_any_query import empirical_laplacian_mechanism, laplacian_mechanism

__all__ = [
    "Between",
    "Guessed",
    "Linkage",
    "Rebuilt",
    "Uniqueness",
    "attack_broken_release",
    "attack_private_mean",
    "empirical_laplacian_mechanism",
    "empirical_sensitivity",
    "in_bands",
    "laplacian_mechanism",
    "link",
    "parallel_databases",
    "rebuild",
    "uniqueness",
]
