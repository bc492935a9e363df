"""A site's part of a federation: agreements, rounds of sums over sites, and callers' tensors."""

from sfumato.services.federated.rounds import Rounds
from sfumato.services.federated.sites import STAGES, Asked, Sites
from sfumato.services.federated.tensors import MOST_NUMBER, Said, Tensors

__all__ = ["MOST_NUMBER", "STAGES", "Asked", "Rounds", "Said", "Sites", "Tensors"]
