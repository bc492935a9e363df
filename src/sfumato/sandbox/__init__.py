"""Where strangers' programs run beside the data: nothing of the host, no network, one voice."""

from sfumato.sandbox.bubblewrap import Bubblewrap, slot_s
from sfumato.sandbox.environment import Environment, environment
from sfumato.sandbox.environments import Environments
from sfumato.sandbox.report import held_in_words, why_not

__all__ = [
    "Bubblewrap",
    "Environment",
    "Environments",
    "environment",
    "held_in_words",
    "slot_s",
    "why_not",
]
