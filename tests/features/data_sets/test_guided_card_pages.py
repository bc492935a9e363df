"""The guided form offers what a card can have, though its page may not import the card."""

from __future__ import annotations

from sfumato.features.data_sets import guided_card_pages
from sfumato.vault.card import columns


def test_the_form_offers_the_types_of_a_card() -> None:
    assert guided_card_pages.TYPES == columns.TYPES
    assert guided_card_pages.NUMERIC == columns.NUMERIC
