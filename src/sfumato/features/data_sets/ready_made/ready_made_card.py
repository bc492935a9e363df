"""What an export in a standard becomes: tables with their columns, and the data card of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import MAX_TABLES

FIRST_YEAR: Final = 2000  # of dates, if the owner names no years
TABLE_ROWS: Final = 10_000_000  # of a table of people; times 1000 rows, a join of two is allowed
ROWS_PER_PERSON: Final = 1000  # of one table that are kept
TEXT_LENGTH: Final = 255  # as long as the name of an OMOP concept; all tables need the same
MAX_GROUPS: Final = 5  # groups of a GROUP BY in which one person counts
VALUE: Final = {  # a number whose meaning another column says: no standard has bounds for it
    "type": "number", "lower": 0, "upper": 1000, "step": Decimal("0.01"),
}  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """What the owner says about an export, besides where it is.

    Args:
        budget: The privacy budget of the people, (epsilon, delta); None if it is not chosen yet.
        years: The first and the last year of dates.
        missing: Codes that mean that a value is missing, besides those of the standard.
        only: The tables to take, besides the one of people; empty for all.
    """

    budget: tuple[Decimal, Decimal] | None = None
    years: tuple[int, int] = (FIRST_YEAR, FIRST_YEAR)
    missing: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def day(self, written: str = "") -> Json:
        """Return the card of a date column; its bounds come from the years, never from rows.

        `written` is the format of its texts, if it is not ISO 8601.
        """
        first, last = self.years
        body: Json = {"type": "date", "lower": date(first, 1, 1), "upper": date(last, 12, 31)}
        return {**body, "format": written} if written else body

    def takes(self, table: str) -> bool:
        """Return True if the owner wants this table."""
        return not self.only or table.casefold() in {one.casefold() for one in self.only}


@dataclass(frozen=True)
class ExportTable:
    """One table of an export: its file, its columns, and how many rows of a person count."""

    name: str
    file: str
    columns: Mapping[str, Json]
    max_rows: int = 1
    rows_per_person: int = 1
    key: str | None = None  # the unique column of a public table
    encoding: str = "utf-8"
    comments: Mapping[str, str] = field(default_factory=dict)  # by column, for the draft card


@dataclass(frozen=True)
class ReadExport:
    """An export that was read by the rules of a standard.

    Args:
        standard: The name of the standard.
        unit: The column that names the person, in every table of people.
        tables: The tables; the first has one row for each person.
        nulls: Cells that count as empty.
        assumed: What was assumed, for the owner to check.
        left_out: What of the export is not taken.
        from_rows: What the rows showed while they were read; for the owner alone.
    """

    standard: str
    unit: str
    tables: tuple[ExportTable, ...]
    nulls: tuple[str, ...] = ("",)
    assumed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    from_rows: tuple[str, ...] = ()

    def files(self, card: Mapping[str, object]) -> tuple[str, dict[str, str]]:
        """Return the file of the main table, and the files of the other tables of a card."""
        tables = card.get("tables", {})
        names = {one.casefold() for one in tables} if isinstance(tables, Mapping) else set()
        own, *others = self.tables
        return own.file, {one.name: one.file for one in others if one.name.casefold() in names}


def ready_made_card(name: str, export: ReadExport, terms: Terms) -> Json:
    """Return the data card of an export; without a budget in `terms`, it still needs one."""
    own, *others = export.tables
    nulls = [*export.nulls, *(code for code in terms.missing if code not in export.nulls)]
    card: Json = {
        "unit": export.unit,
        "people": name,
        "version": "1",
        **({} if terms.budget is None else {"budget": _budget(terms.budget)}),
        "nulls": nulls,
        "max_groups": MAX_GROUPS,
        "max_rows": own.max_rows,
        "header": True,
        **_encoding(own),
        "limits": _limits(own),
        "ask": {"who": ["researchers"]},
        "columns": dict(own.columns),
    }
    if others:
        card["tables"] = {one.name: _table(one) for one in others}
    return card


def most_tables(
    tables: Sequence[ExportTable],
) -> tuple[tuple[ExportTable, ...], tuple[str, ...]]:
    """Return the tables that fit on one card, and the names of those that do not."""
    own, *others = tables
    return (own, *others[:MAX_TABLES]), tuple(one.name for one in others[MAX_TABLES:])


def check_only(terms: Terms, names: Sequence[str]) -> None:
    """Refuse the name of a table that the export does not have."""
    known = {name.casefold() for name in names}
    for one in terms.only:
        if one.casefold() not in known:
            raise Refused(
                "source-unreadable",
                f"The export has no table {one!r}.",
                f"Name some of {', '.join(names)}.",
            )


def _budget(budget: tuple[Decimal, Decimal]) -> Json:
    epsilon, delta = budget
    return {"epsilon": epsilon, "delta": delta}


def _encoding(table: ExportTable) -> Json:
    return {} if table.encoding == "utf-8" else {"encoding": table.encoding}


def _limits(table: ExportTable) -> Json:
    """Return limits that let any two tables be joined: by the person, or by a text."""
    length: Json = {"text_length": TEXT_LENGTH}
    if table.key is not None:
        return length
    return {"rows": TABLE_ROWS, "rows_per_person": table.rows_per_person, **length}


def _table(table: ExportTable) -> Json:
    kind: Json = {"max_rows": table.max_rows}
    if table.key is not None:
        kind = {"public": True, "key": table.key}
    return {
        **kind,
        "header": True,
        **_encoding(table),
        "limits": _limits(table),
        "columns": dict(table.columns),
    }
