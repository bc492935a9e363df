"""What an owner does: add a data set with its card, enrol users, thaw what was stopped."""

from sfumato.core.ports import Described
from sfumato.services.data_sets.card_text import card_shape
from sfumato.services.data_sets.data_sets import DataSets
from sfumato.services.data_sets.proposed import proposed_card
from sfumato.services.data_sets.source import Source

__all__ = [
    "DataSets",
    "Described",
    "Source",
    "card_shape",
    "proposed_card",
]
