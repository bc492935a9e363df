"""A site's part of a federation: agreements, and rounds of sums over sites."""

from sfumato.services.federated.rounds import Rounds
from sfumato.services.federated.sites import STAGES, Asked, Sites

__all__ = ["STAGES", "Asked", "Rounds", "Sites"]
