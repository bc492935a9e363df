"""Choose the reader of an export by the name of its standard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.ready_made.bids_tables import read_bids
from sfumato.features.data_sets.ready_made.export_files import opened_export
from sfumato.features.data_sets.ready_made.fhir import read_fhir
from sfumato.features.data_sets.ready_made.omop import read_omop
from sfumato.features.data_sets.ready_made.ready_made_card import ReadExport, Terms
from sfumato.features.data_sets.ready_made.redcap import read_redcap

READERS: Final[Mapping[str, Callable[[Path, Path, Terms], ReadExport]]] = {
    "bids": read_bids,
    "fhir": read_fhir,
    "omop": read_omop,
    "redcap": read_redcap,
}


@contextmanager
def read_export(standard: str, source: str, terms: Terms) -> Iterator[ReadExport]:
    """Read an export on this machine; its tables exist as files during the block.

    Args:
        standard: "omop", "fhir", "redcap" or "bids".
        source: The folder of the export, or its zip file.
        terms: What the owner says about the export.

    Yields:
        The tables, what was assumed, and what is not taken.

    Raises:
        Refused: `source-unreadable` if it is no export of that standard.
    """
    if standard not in READERS:
        raise Refused(
            "source-unreadable",
            f"sfumato knows no standard {standard!r}.",
            f"Name one of {', '.join(READERS)}.",
        )
    with opened_export(source) as (folder, work):
        yield READERS[standard](folder, work, terms)
