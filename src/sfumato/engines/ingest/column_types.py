"""Guess the names and types of a source's columns for a proposed card; no value and no bounds.

The owner is also told which well-known words for missing values its first rows have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.boolean_words import boolean_format
from sfumato.engines.ingest.cell_format_hints import are_like_thousands, formats_of_dates
from sfumato.engines.ingest.csv_layout import (
    MISSING_MARKERS,
    check_column_names,
    guessed_encoding,
    is_text_file,
    text_layout,
)
from sfumato.engines.ingest.file_conversion import converted
from sfumato.engines.ingest.missing_words import missing_words
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.ingest.source_errors import reported
from sfumato.engines.ingest.source_files import open_source, paths_of
from sfumato.engines.shared.locked_connection import Room, open_locked
from sfumato.engines.shared.message_frames import Header
from sfumato.system.csv_writer import NO_VALUE
from sfumato.vault.card.cell_formats import THOUSANDS
from sfumato.vault.card.data_card import Limits

Format = Mapping[str, str | list[str]]
_SAMPLE: Final = 1000
_PATTERNS: Final = (  # a column's type is the first pattern that all its values match
    (
        "integer",
        re.compile("[+-]?(0|[1-9][0-9]{0,17})"),
    ),  # 02100 is a text, because its leading zero is significant
    ("number", re.compile("[+-]?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)(e[+-]?[0-9]{1,3})?")),
    ("date", re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")),
    ("timestamp", re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}[ t][0-9]{2}:[0-9]{2}(:[0-9.]+)?")),
)
# If every comma is followed by exactly three digits, it may be a thousands separator, and nothing
# is proposed. The same with points: they are thousands separators if another column has decimal
# commas. Otherwise the proposed card names the point as the decimal mark.
_COMMAS: Final = re.compile(r"[+-]?((0|[1-9][0-9]*)|[1-9][0-9]{0,2}([.][0-9]{3})+)(,[0-9]+)?")
_THOUSANDS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
# the proposed card names the decimal mark, because only the owner can be sure of it
_POINT: Final = {"decimal": "."}
_COMMA_AND_POINT: Final = {"decimal": ",", "thousands": "."}  # for a file with decimal commas
_WHOLE: Final = r"[+-]?(0|[1-9][0-9]*|[1-9][0-9]{0,2}"
_SPACED: Final = (  # thousands separators as in France and Switzerland
    (" ", re.compile(_WHOLE + r"([ \u00a0\u202f][0-9]{3})+)([.,][0-9]+)?")),
    ("'", re.compile(_WHOLE + r"(['\u2019][0-9]{3})+)([.,][0-9]+)?")),
)


def column_types(room: Room, message: Header) -> Header:
    """Guess the name, type and format of each column of a source, from a thousand rows.

    A refusal is returned, not raised.
    """
    source, table = str(message["source"]), message.get("inner_table")
    inner = None if table is None else str(table)
    order = TableOrder(0, source, inner, None, None, (), (), Limits())
    try:
        order = converted(order, Path(str(message["work"])), _SAMPLE)
        if is_text_file(order.source):
            return _of_text(order)
        return _of_table(room, order)
    except Refused as refused:
        return {"refused": reported(refused)}


def text_columns(source: str) -> Header:
    """Guess as `column_types` does for a CSV or TSV file, of which no copy is ever needed."""
    try:
        return _of_text(TableOrder(0, source, None, None, None, (), (), Limits()))
    except Refused as refused:
        return {"refused": reported(refused)}


def _of_text(order: TableOrder) -> Header:
    encoding = guessed_encoding(order.source)
    layout = text_layout(order.source, order.file, encoding, is_ours=order.kinds is not None)
    cells = [
        [row[place].strip() for row in layout.rows if place < len(row)]
        for place in range(len(layout.names))
    ]
    check_column_names(layout.names, cells)
    named = [place for place, name in enumerate(layout.names) if name.strip()]
    texts = [[text for text in cells[i] if text != NO_VALUE] for i in named]
    return _said([layout.names[i] for i in named], texts, encoding)


def _of_table(room: Room, order: TableOrder) -> Header:
    paths = paths_of(order.source)
    connection = open_locked(":memory:", replace(room, paths=paths), read_only=False)
    try:
        source = open_source(connection, order)
        sample = f"CREATE TEMP TABLE sample AS SELECT * FROM ({source.sql}) LIMIT {_SAMPLE}"
        connection.execute(sample)
        texts = [_texts(connection, f"c{place}") for place in range(len(source.names))]
        return _said(source.names, texts, "utf-8")
    finally:
        connection.close()


def _texts(connection: duckdb.DuckDBPyConnection, column: str) -> list[str]:
    found = connection.execute(f"SELECT {column} FROM sample WHERE {column} IS NOT NULL").fetchall()
    return [str(text) for (text,) in found]


def _said(names: Sequence[str], texts: Sequence[Sequence[str]], encoding: str) -> Header:
    found = [_type([t for t in column if t.casefold() not in MISSING_MARKERS]) for column in texts]
    has_commas = any(formats.get("decimal") == "," for _, formats in found)
    columns = [
        (name, kind, _COMMA_AND_POINT if has_commas and formats == _POINT else formats)
        for name, (kind, formats) in zip(names, found, strict=True)
    ]
    markers = [
        [name, missing_words(column, kind)]
        for (name, kind, _), column in zip(columns, texts, strict=True)
    ]
    return {
        "columns": [list(column) for column in columns],
        "encoding": encoding,
        "markers": [[name, found] for name, found in markers if found],
    }


def _type(texts: Sequence[str]) -> tuple[str, Format]:
    """Return the column type that all texts match, with the card's format settings for them."""
    words = boolean_format(texts)
    if words is not None:
        return "boolean", words
    for kind, pattern in _PATTERNS:
        if texts and all(pattern.fullmatch(text.lower()) for text in texts):
            return kind, _POINT if are_like_thousands(texts, ".") else {}
    commas = [text for text in texts if "," in text]
    is_sure = not all(_THOUSANDS.fullmatch(text) for text in commas)
    if is_sure and all(_COMMAS.fullmatch(text) for text in texts):
        dotted = {"thousands": "."} if any("." in text for text in texts) else {}
        return "number", {"decimal": ",", **dotted}
    for mark, pattern in _SPACED:
        decimals = [point for point in ",." if any(point in text for text in texts)]
        has_mark = any(set(text) & set(THOUSANDS[mark]) for text in texts)
        if has_mark and len(decimals) < 2 and all(pattern.fullmatch(text) for text in texts):
            kind = "number" if decimals else "integer"
            decimal = {"decimal": decimals[0]} if decimals else {}
            return kind, {**decimal, "thousands": mark}
    fitting = formats_of_dates(texts, 1)
    if len(fitting) == 1:  # if several formats match, only the owner can choose
        return "timestamp" if "%H" in fitting[0] else "date", {"format": fitting[0]}
    return "text", {}
