"""What an owner does: add a data set with its card, enrol users, thaw what was stopped."""

from sfumato.services.data_sets.data_sets import DataSets, Source, card_shape

__all__ = ["DataSets", "Source", "card_shape"]
