"""Serialise an order to prepare or split a table for the worker: card facts and paths, no salt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.engines.shared.message_frames import Header
from sfumato.query.expression import Constant
from sfumato.sandbox.ports import BlockColumn, SplitOrder, StudyOrder
from sfumato.vault.card.bids import with_sidecars
from sfumato.vault.card.cell_formats import UTF8, BooleanWords, FileFormat, NumberFormat
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card, Limits, Table
from sfumato.vault.engine_port import AppendOrder, PrepareOrder, SourceFile, WithdrawOrder

# subfolder of the work folder that holds people's files during preparation
FOLDERS: Final = "folders"


@dataclass(frozen=True)
class TableOrder:
    """Order to the worker to prepare one table: source, columns, limits, contribution bounds."""

    place: int  # index of the table on the card
    source: str
    inner_table: str | None
    unit: str | None  # the column that identifies the person; None if rows belong to no person
    key: int | None  # index of the unique column of a public table
    columns: tuple[Column, ...]
    nulls: tuple[str, ...]
    limits: Limits
    bounds: tuple[int, int] = (1, 1)  # the card's max_groups and max_rows
    name: str = ""
    file: FileFormat = UTF8
    accepted: tuple[str, ...] = ()  # columns whose unreadable cells may become null
    # of a text copy of a file with types: each column's kind; None if the owner's file is text
    kinds: tuple[str, ...] | None = None

    def nulls_of(self, column: str | None) -> tuple[str, ...]:
        """Return the missing-value markers of a column: the card's, and its own if it has any."""
        name = (column or "").strip().casefold()
        own = (one.nulls for one in self.columns if one.name.strip().casefold() == name)
        return (*self.nulls, *next(own, ()))


@dataclass(frozen=True)
class FolderOrder:
    """Order to the worker to import the people's BIDS files: source, patterns and limits."""

    source: str | None  # a BIDS folder, or None
    patterns: tuple[str, ...]
    people: int  # most persons with a folder
    person_bytes: int  # most bytes of one person's files


@dataclass(frozen=True)
class Order:
    """Order to the worker to prepare all tables of a data set."""

    work: str  # the private work folder
    tables: tuple[TableOrder, ...]
    sketches: tuple[tuple[str, str], ...]
    different: tuple[tuple[str, str, str], ...] = ()
    folders: FolderOrder | None = None
    earlier: tuple[str, ...] = ()  # sketches of the rows to which these are appended


def order_header(order: PrepareOrder, work: Path) -> Header:
    """Return the message that asks the worker to prepare the tables of an order."""
    card = order.card
    pairs = zip(card.every_table, order.sources, strict=True)
    return {
        "do": "prepare",
        "work": str(work),
        "tables": [
            {**_table_json(table, source, card), "accepted": _accepted(order, table)}
            for table, source in pairs
        ],
        "sketches": [[domain, str(Path(path).absolute())] for domain, path in order.sketches],
        "different": [
            [domain, str(Path(own).absolute()), str(Path(other).absolute())]
            for domain, own, other in order.different
        ],
        "folders": _folders_json(order),
    }


def append_header(order: AppendOrder, work: Path) -> Header:
    """Return the message that asks the worker to prepare the appended rows of an order."""
    rows, card = order.rows, order.rows.card
    pairs = zip(order.places, rows.sources, strict=True)
    return {
        "do": "append",
        "work": str(work),
        "before": str(Path(order.before).absolute()),
        "tables": [
            {
                **_table_json(card.every_table[place], source, card),
                "accepted": _accepted(rows, card.every_table[place]),
                "place": place,
            }
            for place, source in pairs
        ],
        "sketches": [[domain, str(Path(path).absolute())] for domain, path in rows.sketches],
        "different": [],
        "folders": None,
        "earlier": [str(Path(path).absolute()) for path in order.earlier],
    }


def withdraw_header(order: WithdrawOrder, work: Path) -> Header:
    """Return the message that asks the worker to copy a table without one person's rows."""
    nothing = SourceFile("", None)
    tables = [
        {**_table_json(table, nothing, order.card), "accepted": []}
        for table in order.card.every_table
    ]
    return {
        "do": "withdraw",
        "work": str(work),
        "before": str(Path(order.before).absolute()),
        "person": order.person,
        "tables": tables,
        "sketches": [],
        "different": [],
        "folders": None,
    }


def _accepted(order: PrepareOrder, table: Table) -> list[str]:
    """Return the columns of a table whose unreadable cells the owner accepts as empty.

    The owner names a column as `column` or `table.column`.
    """
    named = {name.strip().casefold() for name in order.accept_unreadable}
    return [
        column.name
        for column in table.columns
        if {column.name.casefold(), f"{table.name}.{column.name}".casefold()} & named
    ]


def _folders_json(order: PrepareOrder) -> list[object] | None:
    folders = order.card.folders
    if folders is None:
        return None
    source = None if order.folder is None else str(Path(order.folder).absolute())
    patterns = with_sidecars(order.card.bids or ())
    return [source, list(patterns), folders.people, folders.person_mb << 20]


def split_header(order: SplitOrder, spill: Path, do: str = "split") -> Header:
    """Return the message that asks the worker to split a table into blocks of persons.

    Only this message contains the secret key.
    """
    return {
        "do": do,
        "table": str(Path(order.table).absolute()),
        "person": order.person,
        "columns": _seen_json(order.columns),
        "blocks": order.blocks,
        "key": order.key.hex(),
        "target": str(Path(order.target).absolute()),
        "spill": str(spill.absolute()),
        "study": None if order.study is None else _study_json(order.study),
    }


def _study_json(study: StudyOrder) -> list[object]:
    tables = [[t.name, t.place, t.person, _seen_json(t.columns)] for t in study.beside]
    return [study.turns, study.kept, tables]


def _seen_json(columns: Sequence[BlockColumn]) -> list[object]:
    return [[c.name, c.place, c.type, str(c.step)] for c in columns]


def _table_json(table: Table, source: SourceFile, card: Card) -> Header:
    limits = table.limits
    names = [column.name for column in table.columns]
    return {
        "source": str(Path(source.path).absolute()),
        "inner_table": source.inner_table,
        "unit": table.unit,
        "key": None if table.key is None else names.index(table.key),
        "columns": [_column_json(column) for column in table.columns],
        "nulls": list(card.nulls),
        "limits": [limits.rows, limits.rows_per_person, limits.text_length],
        "bounds": [card.max_groups, table.max_rows],
        "name": table.name,
        "file": [
            table.file.encoding,
            None if table.file.names is None else list(table.file.names),
            table.file.is_header_sure,
        ],
    }


def _column_json(column: Column) -> Header:
    words = column.boolean_words
    return {
        "name": column.name,
        "type": column.type,
        "lower": column.lower,
        "upper": column.upper,
        "step": str(column.step),
        "keys": None if column.keys is None else [[key.kind, key.text] for key in column.keys],
        "formats": [
            column.number_format.decimal,
            column.number_format.thousands,
            column.date_format,
        ],
        "nulls": list(column.nulls),
        "words": None if words is None else [list(words.true), list(words.false)],
    }


def read_order(message: Header) -> Order:
    """Parse the order to prepare tables, from a message of the parent process."""
    match message:
        case {
            "work": str(work),
            "tables": list(tables),
            "sketches": list(sketches),
            "different": list(different),
            "folders": None | list() as folders,
            **more,
        }:
            return Order(
                work,
                tuple(_read_table(table.get("place", n), table) for n, table in enumerate(tables)),
                tuple((str(domain), str(path)) for domain, path in sketches),
                tuple((str(domain), str(own), str(other)) for domain, own, other in different),
                None if folders is None else _read_folders(folders),
                _texts(more.get("earlier", [])),
            )
        case _:
            raise Bug("an order that is none")


def _texts(shape: object) -> tuple[str, ...]:
    match shape:
        case list(texts):
            return tuple(map(str, texts))
        case _:
            raise Bug("a list of texts that is none")


def _read_folders(shape: list[object]) -> FolderOrder:
    match shape:
        case [None | str() as source, list(patterns), int(people), int(person_bytes)]:
            return FolderOrder(source, tuple(map(str, patterns)), people, person_bytes)
        case _:
            raise Bug("an order of folders that is none")


def _read_table(place: int, shape: object) -> TableOrder:
    match shape:
        case {
            "source": str(source),
            "inner_table": None | str() as inner_table,
            "unit": None | str() as unit,
            "key": None | int() as key,
            "columns": list(columns),
            "nulls": list(nulls),
            "limits": [int(rows), int(rows_per_person), int(text_length)],
            "bounds": [int(max_groups), int(max_rows)],
            "name": str(name),
            "file": [str(encoding), None | list() as names, bool(is_header_sure)],
            "accepted": list(accepted),
        }:
            return TableOrder(
                place,
                source,
                inner_table,
                unit,
                key,
                tuple(_read_column(column) for column in columns),
                tuple(str(null) for null in nulls),
                Limits(rows, rows_per_person, text_length),
                (max_groups, max_rows),
                name,
                FileFormat(
                    encoding, None if names is None else tuple(map(str, names)), is_header_sure
                ),
                tuple(map(str, accepted)),
            )
        case _:
            raise Bug("a table's order that is none")


def _read_column(shape: object) -> Column:
    match shape:
        case {
            "name": str(name),
            "type": "integer" | "number" | "text" | "boolean" | "date" | "timestamp" as kind,
            "lower": None | int() as lower,
            "upper": None | int() as upper,
            "step": str(step),
            "keys": None | list() as keys,
            "formats": [str(decimal), str(thousands), str(date_format)],
            "nulls": list(nulls),
            "words": None | list() as words,
        }:
            constants = None if keys is None else tuple(Constant(k, t) for k, t in keys)
            return Column(
                name,
                kind,
                lower,
                upper,
                Fraction(step),
                constants,
                number_format=NumberFormat(decimal, thousands),
                date_format=date_format,
                nulls=tuple(map(str, nulls)),
                boolean_words=None
                if words is None
                else BooleanWords(*(tuple(map(str, one)) for one in words)),
            )
        case _:
            raise Bug("a column that is none")


def path_of_block(target: str, block: int) -> str:
    """Return the path of the file with the rows of a block of persons."""
    return str(Path(target, f"{block}.tsv"))


def path_of_turn(target: str, turn: int) -> str:
    """Return the path of the file of one turn, the input of one person's own run."""
    return str(Path(target, f"turn-{turn}"))


def folders_of(table: str) -> Path:
    """Return the folder with the imported BIDS files of a prepared table's people."""
    return Path(table).with_suffix(".folders")


def kept_of(table: str) -> Path:
    """Return the folder with the stored results of per-person runs, one subfolder per program."""
    return Path(table).with_suffix(".kept")
