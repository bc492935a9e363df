"""The data card: all public facts about a data set, signed by its owner before any query.

The card states the privacy unit: either the column that names the person, or each row. It also
states the default contribution bounds of a person (`max_groups`, `max_rows`), and the people's
privacy budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.dp.budget import Budget, read_delta, read_epsilon
from sfumato.dp.refusal import Refused
from sfumato.vault.budget_windows import UNITS
from sfumato.vault.card.airlock_terms import AirlockTerms, read_airlock
from sfumato.vault.card.bids import (
    PARTICIPANTS,
    Folders,
    phenotype_path,
    read_bids,
    read_description,
)
from sfumato.vault.card.bids_metadata import BidsMetadata, read_metadata
from sfumato.vault.card.cell_formats import (
    PLAIN,
    UTF8,
    FileFormat,
    NumberFormat,
    read_file_format,
    read_number_format,
)
from sfumato.vault.card.columns import Column, read_columns, sql_name
from sfumato.vault.card.field_readers import (
    all_faults,
    as_count,
    as_table,
    as_text,
    as_texts,
    bad_card,
    refusals,
)
from sfumato.vault.card.secure_average_terms import AverageTerms, read_averages

ROW: Final = "row"
MAX_TABLES: Final = 20
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
ALONE, TWO_PEOPLE = "owner", "two people"  # who may raise a cap of the data set
NAMED: Final = "name must have at most 63 letters, digits, - and _, and begin with a letter"


@dataclass(frozen=True)
class Limits:
    """The most rows and the longest texts that are copied into a prepared table.

    The limits are public, and are set with a margin (soundness rule 13).
    """

    rows: int = 1_000_000_000
    rows_per_person: int = 1000
    text_length: int = 200


@dataclass(frozen=True)
class Table:
    """One table of a data set: either rows of its people, or public rows with a unique key."""

    name: str
    columns: tuple[Column, ...]
    unit: str | None = None  # the column that names the person; None for public rows
    key: str | None = None  # the unique column of a public table
    max_rows: int = 1
    limits: Limits = field(default_factory=Limits)
    hidden: tuple[str, ...] = ()
    file: FileFormat = UTF8

    @property
    def is_public(self) -> bool:
        """Say whether the table's rows are public, so that they belong to no person."""
        return self.key is not None


@dataclass(frozen=True)
class Card:
    """The data card: all public facts about a data set, signed by its owner."""

    name: str
    unit: str
    people: str
    version: str
    budget: Budget
    columns: tuple[Column, ...]
    hidden: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ("",)
    user_cap: Budget | None = None
    group_cap: Budget | None = None
    who: tuple[str, ...] = ()
    max_groups: int = 1
    max_rows: int = 1
    size: int | None = None
    delta_per_request: Fraction = Fraction(0)
    limits: Limits = field(default_factory=Limits)
    tables: tuple[Table, ...] = ()  # further tables, besides the card's own
    raised_by_two: bool = False  # raising a cap of the data set needs a second person
    bids: tuple[str, ...] | None = None  # file patterns of each person's folder, for BIDS
    folders: Folders | None = None  # limits of people's folders, if they are kept
    description: str = ""  # the owner's dataset_description.json as JSON text; public
    airlock: AirlockTerms | None = (
        None  # who reviews files that leave without noise; None: no file leaves
    )
    window: str | None = None  # the calendar window to which budget and caps apply; None: all time
    # terms for sums over sites without noise; None: not allowed
    averages: AverageTerms | None = None
    file: FileFormat = UTF8  # the format of the rows' file, if it is a text file
    # True if rows were appended: a person's rows of earlier versions count first
    appended: bool = False
    # README and sidecars of a BIDS folder; public
    metadata: BidsMetadata = field(default_factory=BidsMetadata)

    @property
    def every_table(self) -> tuple[Table, ...]:
        """Return all tables of the data set, starting with the table of the card itself."""
        unit = self.unit if self.by_person else None
        own = Table(
            self.name, self.columns, unit, None, self.max_rows, self.limits, self.hidden, self.file
        )
        return own, *self.tables

    @property
    def names_formats(self) -> bool:
        """Say whether the card declares a text file format that isn't the default."""
        tables = self.every_table
        return any(table.file != UTF8 for table in tables) or any(
            column.date_format or column.number_format != PLAIN
            for table in tables
            for column in table.columns
        )

    @property
    def by_person(self) -> bool:
        """Say whether the privacy unit is a person with all their rows, not a single row."""
        return self.unit != ROW

    def lets_ask(self, groups: tuple[str, ...]) -> bool:
        """Say whether members of these groups may query the data set; by default no group may."""
        return any(group in self.who for group in groups)

    def index(self, name: str) -> int:
        """Return the position of a column on the data card.

        Refuse a name that the card doesn't declare.
        """
        for place, column in enumerate(self.columns):
            if column.name.casefold() == name.casefold():
                return place
        if self.by_person and name.casefold() == self.unit.casefold():
            raise Refused(
                "unknown-column",
                f"{name!r} names the person, so a question cannot use it as a column.",
                f"Write COUNT(DISTINCT {self.unit}), or one row for each person: "
                f"(SELECT {self.unit}, COUNT(*) AS n … GROUP BY {self.unit}).",
                column=name,
            )
        names = {column.name.casefold(): column.name for column in self.columns}
        found = [names[one] for one in get_close_matches(name.casefold()[:60], names, n=2)]
        near = [repr(one) for one in found]
        quoted = [sql_name(one) for one in found if sql_name(one) != one]
        raise Refused(
            "unknown-column",
            f"The data card of {self.name!r} names no column {name!r}.",
            (f"Did you mean {' or '.join(near)}? " if near else "")
            + (f"In SQL: {' or '.join(quoted)}. " if quoted else "")
            + f"See the columns with `sfumato card {self.name}`.",
            column=name,
        )

    def column(self, name: str) -> Column:
        """Return the column with that name, or refuse a name that the data card doesn't declare."""
        return self.columns[self.index(name)]


# --- reading ----------------------------------------------------------------------------------

_CARD_KEYS: Final = {
    "unit", "people", "version", "budget", "nulls", "caps", "ask", "columns", "max_groups",
    "max_rows", "size", "delta_per_request", "limits", "tables", "bids", "airlock",
    "secure_average", "decimal", "thousands", "encoding", "header", "window", "appended",
}  # fmt: skip


def read_card(name: str, shape: Mapping[str, object]) -> Card:
    """Read the owner's data card; one refusal lists the faults of all of its parts."""
    try:
        return _read_card(name, shape)
    except Refused as refused:
        found = refused
    raise all_faults(found, refusals([lambda: _check_name(name), *_readers(shape)]))


def _readers(shape: Mapping[str, object]) -> Iterator[Callable[[], object]]:
    """Yield readers of single parts of a card, to find every fault of a card that is refused."""

    def table(value: object) -> Mapping[str, object]:
        return value if isinstance(value, Mapping) else {}

    def part(reader: Callable[..., object], key: str, *more: object) -> Callable[[], object]:
        return lambda: reader(shape[key], *more) if key in shape else None

    yield lambda: as_table(shape, "card", _CARD_KEYS)
    yield lambda: _budget(shape.get("budget"), "budget", Fraction(0))
    yield part(_unit, "unit")
    caps = table(shape.get("caps"))
    yield part(as_table, "caps", "caps", {"user", "group", "raise"})
    yield lambda: _raised_by_two(caps.get("raise", ALONE))
    yield from (partial(_optional_budget, caps, of, Fraction(0)) for of in ("user", "group"))
    yield part(as_table, "ask", "ask", {"who"})
    yield lambda: as_texts(table(shape.get("ask")).get("who", []), "ask.who")
    yield lambda: read_number_format(shape, "the card", PLAIN)
    yield lambda: read_file_format(shape, UTF8)
    for name in ("people", "version"):
        yield part(as_text, name, name)
    for name in ("max_groups", "max_rows", "size"):
        yield part(as_count, name, name)
    yield part(as_texts, "nulls", "nulls")
    yield part(read_delta, "delta_per_request", "delta_per_request")
    yield part(_read_limits, "limits")
    yield part(_window, "window")
    yield part(_appended, "appended")
    yield part(read_airlock, "airlock")
    yield part(read_averages, "secure_average")
    yield part(as_table, "columns", "columns", None)
    for name, one in table(shape.get("columns")).items():
        yield partial(read_columns, {name: one})
    unit = str(shape.get("unit", ROW))
    for name, one in table(shape.get("tables")).items():
        yield partial(_read_table, name, unit, one, (PLAIN, UTF8))
    yield part(read_bids, "bids", unit)


def _read_card(name: str, shape: Mapping[str, object]) -> Card:
    _check_name(name)
    as_table(shape, "card", _CARD_KEYS)
    budget = _budget(shape.get("budget"), "budget", Fraction(0))
    caps = as_table(shape.get("caps", {}), "caps", {"user", "group", "raise"})
    ask = as_table(shape.get("ask", {}), "ask", {"who"})
    unit = _unit(shape.get("unit", ROW))
    numbers = read_number_format(shape, "the card", PLAIN)
    file = read_file_format(shape, UTF8)
    columns, hidden = read_columns(as_table(shape.get("columns", {}), "columns", None), numbers)
    limits = _read_limits(shape.get("limits", {}))
    _check_keys(columns, limits)
    tables = _read_tables(
        name, unit, as_table(shape.get("tables", {}), "tables", None), (numbers, file)
    )
    bids, folders = read_bids(shape["bids"], unit) if "bids" in shape else (None, None)
    described = as_table(shape.get("bids", {}), "bids", None).get("description")
    if tables and any("." in column.name for column in columns):
        raise bad_card("on a card with several tables, a column's name must not contain a point")
    delta_per_request = read_delta(shape.get("delta_per_request", 0), "delta_per_request")
    card = Card(
        name=name,
        unit=unit,
        people=as_text(shape.get("people", name), "people"),
        version=as_text(shape.get("version", "1"), "version"),
        budget=budget,
        columns=columns,
        hidden=hidden,
        nulls=as_texts(shape.get("nulls", [""]), "nulls"),
        user_cap=_optional_budget(caps, "user", budget.delta),
        group_cap=_optional_budget(caps, "group", budget.delta),
        who=as_texts(ask.get("who", []), "ask.who"),
        max_groups=as_count(shape.get("max_groups", 1), "max_groups"),
        max_rows=as_count(shape.get("max_rows", 1), "max_rows"),
        size=None if "size" not in shape else as_count(shape["size"], "size"),
        delta_per_request=delta_per_request,
        limits=limits,
        tables=tables,
        raised_by_two=_raised_by_two(caps.get("raise", ALONE)),
        bids=bids,
        folders=folders,
        description="" if described is None else read_description(described),
        airlock=read_airlock(shape["airlock"]) if "airlock" in shape else None,
        window=_window(shape.get("window")),
        averages=read_averages(shape["secure_average"]) if "secure_average" in shape else None,
        file=file,
        appended=_appended(shape.get("appended", False)),
    )
    return replace(card, metadata=read_metadata(shape.get("bids", {}), _described(card)))


def _described(card: Card) -> dict[str, tuple[str | None, tuple[Column, ...]]]:
    """Return the BIDS sidecar of each table: its path, the person column, and the columns."""
    own, *others = card.every_table
    paths = {f"{phenotype_path(table.name)}.json": table for table in others}
    tables = {PARTICIPANTS: own, **paths}
    return {path: (table.unit, table.columns) for path, table in tables.items()}


def check_unit(shape: Mapping[str, object]) -> None:
    """Refuse a new data card without a privacy unit.

    For older cards without one, the unit is a row.
    """
    if "unit" not in shape:
        missing = bad_card(
            'the card does not name the privacy unit: write unit = "COLUMN" with the column that '
            'names the person, or unit = "row" if no person has several rows'
        )
        raise all_faults(missing, refusals(_readers(shape)))


def _unit(word: object) -> str:
    if word == "":  # a proposed card has "" if no column seems to name a person
        raise bad_card('unit is empty: write the column that names the person, or "row"')
    return as_text(word, "unit")


def _appended(value: object) -> bool:
    if not isinstance(value, bool):
        raise bad_card("appended must be true or false; sfumato append sets it")
    return value


def _window(word: object) -> str | None:
    if word is not None and word not in UNITS:
        raise bad_card(f"window must be one of {', '.join(UNITS)}")
    return None if word is None else str(word)


def _raised_by_two(word: object) -> bool:
    if word not in (ALONE, TWO_PEOPLE):
        raise bad_card(f"caps.raise must be {ALONE!r} or {TWO_PEOPLE!r}")
    return word == TWO_PEOPLE


def _check_keys(columns: tuple[Column, ...], limits: Limits) -> None:
    if any(len(k.text) > limits.text_length for c in columns for k in c.keys or ()):
        raise bad_card("a key is longer than limits.text_length, so no row would match it")


def _read_tables(
    card: str, unit: str, shape: Mapping[str, object], formats: tuple[NumberFormat, FileFormat]
) -> tuple[Table, ...]:
    tables = tuple(_read_table(name, unit, body, formats) for name, body in shape.items())
    names = [card.casefold(), *(table.name.casefold() for table in tables)]
    if len(set(names)) < len(names):
        raise bad_card("two tables have the same name, or names that differ only in letter case")
    if len(tables) > MAX_TABLES:
        raise bad_card(f"the card has more than {MAX_TABLES} tables")
    return tables


_TABLE_KEYS: Final = {
    "public", "key", "unit", "max_rows", "limits", "columns", "decimal", "thousands", "encoding",
    "header",
}  # fmt: skip


def _read_table(
    name: str, unit: str, shape: object, formats: tuple[NumberFormat, FileFormat]
) -> Table:
    """Read a further table of the data card; its file format defaults to the card's."""
    where = f"tables.{name}"
    body = as_table(shape, where, _TABLE_KEYS)
    if not NAME.fullmatch(name):
        raise bad_card(f"a table's {NAMED}")
    numbers = read_number_format(body, where, formats[0])
    file = read_file_format(body, formats[1])
    columns, hidden = read_columns(
        as_table(body.get("columns", {}), f"{where}.columns", None), numbers
    )
    if any("." in column.name for column in columns):
        raise bad_card("on a card with several tables, a column's name must not contain a point")
    limits = _read_limits(body.get("limits", {}))
    _check_keys(columns, limits)
    if body.get("public", False) is True:
        key = _public_key(where, body, columns)
        return Table(name, columns, None, key, limits=limits, hidden=hidden, file=file)
    if body.get("public", False) is not False or "key" in body:
        raise bad_card(f"{where} has a key, so it must be public = true")
    if unit == ROW:
        raise bad_card(
            f"{where} is not public, but the unit of the card is a row, so it has no people"
        )
    return Table(
        name,
        columns,
        as_text(body.get("unit", unit), f"{where}.unit"),
        None,
        as_count(body.get("max_rows", 1), f"{where}.max_rows"),
        limits,
        hidden,
        file,
    )


def _public_key(where: str, body: Mapping[str, object], columns: tuple[Column, ...]) -> str:
    """Return the name of a public table's key column, whose values are unique."""
    if "unit" in body or "max_rows" in body:
        raise bad_card(
            f"{where} is public: its rows belong to nobody, so it takes no unit and no max_rows"
        )
    wanted = as_text(body.get("key"), f"{where}.key").casefold()
    found = [column.name for column in columns if column.name.casefold() == wanted]
    if not found:
        raise bad_card(f"{where}.key must be one of its columns")
    return found[0]


def _read_limits(shape: object) -> Limits:
    body = as_table(shape, "limits", {"rows", "rows_per_person", "text_length"})
    counts = {key: as_count(value, f"limits.{key}") for key, value in body.items()}
    limits = Limits(**counts)
    if limits.rows > 10**10 or limits.rows_per_person > 10**6 or limits.text_length > 10**4:
        raise bad_card("limits are larger than sfumato can hold")
    return limits


def _optional_budget(caps: Mapping[str, object], key: str, delta: Fraction) -> Budget | None:
    return _budget(caps[key], f"caps.{key}", delta) if key in caps else None


def _budget(shape: object, name: str, delta: Fraction) -> Budget:
    if shape is None:
        raise bad_card("There is no budget: write budget = { epsilon = 1.0, delta = 0 }")
    if not isinstance(shape, Mapping):
        word = name.rpartition(".")[2]
        raise bad_card(f"{name} must be a table: write {word} = {{ epsilon = 1.0, delta = 0 }}")
    body = as_table(shape, name, {"epsilon", "delta"})
    if "epsilon" not in body:
        raise bad_card(f"{name} needs an epsilon")
    epsilon = read_epsilon(body["epsilon"], f"{name}.epsilon")
    return Budget(epsilon, read_delta(body.get("delta", delta), f"{name}.delta"))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise bad_card(f"a data set's {NAMED}")
