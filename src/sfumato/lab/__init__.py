"""Attacks on synthetic data: why leaving out names, or adding home-made noise, hides nobody."""

from sfumato.core.crowd.subsets import Uniqueness
from sfumato.lab.attacks.linkage import Between, Linkage, in_bands, link, uniqueness
from sfumato.lab.attacks.loo import (
    Guessed,
    Rebuilt,
    attack_broken_release,
    attack_private_mean,
    rebuild,
)

__all__ = [
    "Between",
    "Guessed",
    "Linkage",
    "Rebuilt",
    "Uniqueness",
    "attack_broken_release",
    "attack_private_mean",
    "in_bands",
    "link",
    "rebuild",
    "uniqueness",
]
