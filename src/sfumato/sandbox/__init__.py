"""Where strangers' programs run beside the data: nothing of the host, no network, one voice."""

from sfumato.sandbox.bubblewrap import Bubblewrap, slot_s
from sfumato.sandbox.environment import Environment, environment
from sfumato.sandbox.environments import Environments
from sfumato.sandbox.report import held_in_words, why_not
from sfumato.sandbox.runtimes import Runtime, program, read_runtime
from sfumato.sandbox.squash import can_unfold

__all__ = [
    "Bubblewrap",
    "Environment",
    "Environments",
    "Runtime",
    "can_unfold",
    "environment",
    "held_in_words",
    "program",
    "read_runtime",
    "slot_s",
    "why_not",
]
