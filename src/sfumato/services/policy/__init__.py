"""What an owner decides of their data sets: who may ask, how much, and when to stop."""

from sfumato.services.policy.caps import CapAsked, Caps, check_second
from sfumato.services.policy.confirmations import Confirmations
from sfumato.services.policy.policy import Policy

__all__ = ["CapAsked", "Caps", "Confirmations", "Policy", "check_second"]
