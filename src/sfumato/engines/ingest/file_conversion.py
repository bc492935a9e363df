"""Convert an owner's file that DuckDB does not read itself into one that it reads.

The copy is in a private folder of the worker, which is deleted when the request ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sfumato.engines.ingest.cell_format_sql import TEXT
from sfumato.engines.ingest.csv_layout import in_utf8, is_text_file
from sfumato.engines.ingest.formats.arrow_file import arrow_to_parquet
from sfumato.engines.ingest.formats.compressed_file import unpack
from sfumato.engines.ingest.formats.json_lines import json_lines
from sfumato.engines.ingest.formats.spreadsheet import spreadsheet
from sfumato.engines.ingest.formats.sqlite_table import is_sqlite, sqlite_table
from sfumato.engines.ingest.formats.statistics_file import statistics_file
from sfumato.engines.ingest.formats.zip_file import unzip
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.ingest.source_errors import mixed_column
from sfumato.engines.shared.disk_full import spare_kept
from sfumato.system.row_files import (
    ARROW,
    COMPRESSED,
    LINES,
    SHARED,
    SHEETS,
    SQLITE,
    STATISTICS,
    ZIPPED,
    row_suffix,
)
from sfumato.system.typed_rows import CellKinds, TypedRows, write_typed
from sfumato.vault.card.cell_formats import PLAIN

_READERS: Final[Mapping[str, Callable[[str, str | None], TypedRows]]] = {
    **dict.fromkeys(LINES, lambda source, _table: json_lines(source)),
    **dict.fromkeys((*SQLITE, *SHARED), sqlite_table),
    **dict.fromkeys(SHEETS, spreadsheet),
    **dict.fromkeys(STATISTICS, lambda source, _table: statistics_file(source)),
}

_TYPED: Final = "TYPED"  # the kind of a column with other values than texts


def converted(order: TableOrder, work: Path, most: int | None = None) -> TableOrder:
    """Return the order with a source that DuckDB reads: the owner's file, or a copy in `work`.

    Args:
        order: The order to read one table.
        work: A private folder for the copies.
        most: Convert only that many rows; for a file that is only looked at.
    """
    with spare_kept(work):
        return _converted(order, work, most)


def _converted(order: TableOrder, work: Path, most: int | None) -> TableOrder:
    suffix = row_suffix(order.source)
    if suffix is None or not Path(order.source).is_file():
        return order
    if suffix.endswith(COMPRESSED):
        target = work / f"unpacked-{order.place}{Path(suffix).stem}"
        unpack(order.source, target, is_sample=most is not None)
        return _converted(replace(order, source=str(target)), work, most)
    if suffix in ZIPPED:
        stem = work / f"unzipped-{order.place}"
        found = unzip(order.source, order.inner_table, stem, is_sample=most is not None)
        inside = replace(order, source=str(found.path), inner_table=found.inner_table)
        return _converted(inside, work, most)
    if suffix in ARROW:
        target = work / f"arrow-{order.place}.parquet"
        arrow_to_parquet(order.source, target, most)
        return replace(order, source=str(target))
    if suffix in _READERS and (suffix not in SHARED or is_sqlite(order.source)):
        return _typed(order, work, most)
    if most is None and is_text_file(order.source):
        copy = work / f"utf8-{order.place}{suffix}"
        return replace(order, source=in_utf8(order.source, order.file, copy))
    return order


def _typed(order: TableOrder, work: Path, most: int | None) -> TableOrder:
    suffix = row_suffix(order.source) or ""
    found = _READERS[suffix](order.source, order.inner_table)
    target = work / f"typed-{order.place}.tsv"
    file = replace(order.file, encoding="utf-8")
    if found.has_schema:
        file = replace(file, names=None, is_header_sure=True)
    elif file.names is not None:
        found = found.named(file.names)
    written = write_typed(found, target, most, has_names=file.names is None)
    _check_formats(order, found.names, written)
    kinds = tuple(_TYPED if kind.values else TEXT for kind in written)
    return replace(order, source=str(target), kinds=kinds, file=file)


def _check_formats(order: TableOrder, names: Sequence[str], written: Sequence[CellKinds]) -> None:
    """Refuse a column of numbers and texts that has a format: it would be right for one of both."""
    mixed = [
        name.strip().casefold()
        for name, kind in zip(names, written, strict=True)
        if kind.values and kind.numerals
    ]
    for column in order.columns:
        if column.number_format != PLAIN and column.name.strip().casefold() in mixed:
            raise mixed_column(column.name)
