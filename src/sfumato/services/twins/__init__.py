"""Look-alike data: from the card alone, or from private marginals that are paid for."""

from sfumato.services.twins.private import Bought, PrivateTwins
from sfumato.services.twins.twins import Twins, Wanted

__all__ = ["Bought", "PrivateTwins", "Twins", "Wanted"]
