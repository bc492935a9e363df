"""Secure aggregation: sums over sites under masks that cancel, and survive those who drop out."""

from sfumato.core.secure.collector import Collector
from sfumato.core.secure.dithered import DitheredGrid
from sfumato.core.secure.participant import Participant
from sfumato.core.secure.private import NoisySum, noisy_sum_for
from sfumato.core.secure.rounding import Grid, PeopleGrid
from sfumato.core.secure.terms import Member, Terms, Trust, terms_for

__all__ = [
    "Collector",
    "DitheredGrid",
    "Grid",
    "Member",
    "NoisySum",
    "Participant",
    "PeopleGrid",
    "Terms",
    "Trust",
    "noisy_sum_for",
    "terms_for",
]
