"""Ready-made data cards for an owner's export in a standard: OMOP, FHIR, REDCap or BIDS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sfumato.features.data_sets.ready_made.reader import READERS, read_export
from sfumato.features.data_sets.ready_made.ready_made_card import (
    ExportTable,
    ReadExport,
    Terms,
    ready_made_card,
)

__all__ = [
    "STANDARDS",
    "ExportTable",
    "ReadExport",
    "Terms",
    "read_export",
    "ready_made_card",
    "terms_of_card",
]

STANDARDS: Final = tuple(READERS)


def terms_of_card(card: Mapping[str, Any]) -> Terms:  # Any: TOML
    """Return the terms with which an export is read again for a data card of it."""
    tables = card.get("tables", {})
    nulls = card.get("nulls", [])
    return Terms(
        missing=tuple(map(str, nulls)) if isinstance(nulls, list) else (),
        only=tuple(tables) if isinstance(tables, Mapping) else (),
    )
