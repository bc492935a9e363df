"""Read a REDCap export: the records as CSV, and the data dictionary that says what they mean.

Each form becomes a table. The first form is the main table, with one row for every record. A row of
the export is a row of a further form's table if the form has data in it. What a person's rows
become depends on that person's rows and on the dictionary alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.ready_made.export_files import (
    TEXTS,
    files_of,
    records,
)
from sfumato.features.data_sets.ready_made.ready_made_card import (
    ROWS_PER_PERSON,
    ExportTable,
    ReadExport,
    Terms,
    check_only,
    most_tables,
)
from sfumato.features.data_sets.ready_made.redcap_dictionary import (
    TITLES,
    Field,
    Made,
    columns_of,
    status_of,
)
from sfumato.system.csv_writer import write_rows

EVENT, REPEAT, INSTANCE = (
    "redcap_event_name",
    "redcap_repeat_instrument",
    "redcap_repeat_instance",
)
SITE: Final = "redcap_data_access_group"
MAX_ROWS: Final = 5  # rows of a person in a form's table that count in one group
Row = Mapping[str, str]


@dataclass(frozen=True)
class _Form:
    """A form: its table's name, and its columns."""

    name: str
    table: str
    columns: tuple[Made, ...]

    def is_in(self, row: Row) -> bool:
        """Return True if a row of the export has data of this form."""
        repeated = row.get(REPEAT, "")
        if repeated:
            return repeated.casefold() == self.name.casefold()
        return any(row.get(one.source, "") for one in self.columns if one.is_data) or any(
            row.get(one.source, "") in ("1", "Checked") and "___" in one.source
            for one in self.columns
            if not one.is_data
        )


def read_redcap(folder: Path, work: Path, terms: Terms) -> ReadExport:
    """Return the tables of a REDCap export in a folder.

    Args:
        folder: The folder with the records and the data dictionary.
        work: A private folder for the tables.
        terms: What the owner says about the export.

    Returns:
        The tables, what was assumed, and what is not taken.

    Raises:
        Refused: `source-unreadable` if one of the two files is missing or does not fit the other.
    """
    fields, found, events = _files(folder)
    unit = fields[0].name
    names = [name.casefold() for name in next(records(found), [])]
    forms, notes = _forms(fields, names, terms)
    tables = [
        ExportTable(
            "" if place == 0 else form.table,
            str(work / f"{place}.tsv"),
            {
                **_about(names, events, is_first=place == 0),
                **{c.name: c.body for c in form.columns},
            },
            MAX_ROWS if place else 1,
            ROWS_PER_PERSON if place else 1,
            comments={one.name: one.comment for one in form.columns if one.comment},
        )
        for place, form in enumerate(forms)
    ]
    taken, beyond = most_tables(tables)
    has_twice = _write(found, unit, forms[: len(taken)], taken)
    if beyond:
        notes.left_out.append(f"forms beyond the twenty tables of a card: {', '.join(beyond)}")
    return ReadExport(
        "redcap",
        unit,
        taken,
        ("",),
        tuple(_assumed(notes, forms, names, terms)),
        tuple(notes.left_out),
        (f"Some records have the form {forms[0].name!r} several times; the first is taken.",)
        if has_twice
        else (),
    )


@dataclass(frozen=True)
class _Notes:
    """What is said about fields while their columns are made."""

    unbounded: list[str]
    left_out: list[str]


def _assumed(
    notes: _Notes, forms: Sequence[_Form], names: Sequence[str], terms: Terms
) -> Iterator[str]:
    first, last = terms.years
    own = forms[0].name
    yield (
        f"The main table is the form {own!r}, with one row for each record: the first one with "
        "data. Each further form is a table of its own."
    )
    yield (
        "Codes, ranges and types come from the dictionary. Codes that it does not have are in no "
        "group, and numbers outside a range are moved to its nearest bound."
    )
    yield f"Dates without a range are between {first} and {last}."
    if notes.unbounded:
        yield (
            "The dictionary has no range for "
            f"{', '.join(notes.unbounded)}. SUM and AVG of these are refused until you write "
            "lower and upper on the card, from knowledge."
        )
    if EVENT in names or REPEAT in names:
        yield f"At most {MAX_ROWS} rows of a person count in one group of a form."
    if not terms.missing:
        yield (
            "REDCap's own codes for missing values (NI, UNK, NASK, ...) count as empty. If your "
            "project has others, such as -99, name them with --missing."
        )


# --- the files -----------------------------------------------------------------------------------


def _files(folder: Path) -> tuple[list[Field], Path, tuple[str, ...]]:
    """Return the fields of the dictionary, the file of records, and the project's events."""
    dictionaries: list[tuple[Path, list[Field]]] = []
    events: tuple[str, ...] = ()
    others: list[tuple[Path, list[str]]] = []
    for path in files_of(folder, TEXTS):
        rows = records(path)
        titles = [one.casefold() for one in next(rows, [])]
        if _place(titles, "name") is not None and _place(titles, "kind") is not None:
            dictionaries.append((path, list(_fields(titles, rows))))
        elif {"unique_event_name", "form"} <= set(titles):
            place = titles.index("unique_event_name")
            found = (row[place].strip() for row in rows if place < len(row))
            events = tuple(dict.fromkeys(filter(None, found)))
        else:
            others.append((path, titles))
    if len(dictionaries) != 1 or not dictionaries[0][1]:
        what = "no data dictionary" if not dictionaries else "no single data dictionary with fields"
        raise Refused(
            "source-unreadable",
            f"The folder has {what}.",
            "Download it in REDCap (Data Dictionary, as CSV), and put it beside the records.",
        )
    fields = dictionaries[0][1]
    fitting = [path for path, titles in others if fields[0].name.casefold() in titles]
    if len(fitting) != 1:
        known = ", ".join(path.name for path in fitting) or "none"
        raise Refused(
            "source-unreadable",
            f"One file must have the records, with the column {fields[0].name!r} of the "
            f"dictionary's first field; found: {known}.",
            "Export all records as CSV, raw data, and put that file beside the dictionary.",
        )
    return fields, fitting[0], events


def _place(titles: Sequence[str], what: str) -> int | None:
    return next((titles.index(one) for one in TITLES[what] if one in titles), None)


def _fields(titles: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Field]:
    places = {what: _place(titles, what) for what in TITLES}
    for row in rows:

        def cell(what: str, row: list[str] = row) -> str:
            place = places[what]
            return row[place].strip() if place is not None and place < len(row) else ""

        if cell("name"):
            yield Field(
                cell("name").casefold(),
                cell("form") or "records",
                cell("kind").casefold(),
                cell("choices"),
                cell("validation").casefold(),
                cell("low"),
                cell("high"),
                cell("identifier").casefold() in ("y", "yes", "1", "true"),
            )


# --- the tables ----------------------------------------------------------------------------------


def _forms(
    fields: Sequence[Field], names: Sequence[str], terms: Terms
) -> tuple[list[_Form], _Notes]:
    """Return the forms with the columns that are taken, the first form first."""
    by_form: dict[str, list[Made]] = {}
    reasons: dict[str, list[str]] = {}
    unbounded, absent = [], []
    for one in fields[1:]:
        made, reason = columns_of(one, terms)
        if reason:
            reasons.setdefault(reason, []).append(one.name)
        there = [column for column in made if column.source in names]
        absent += [one.name] if made and not there else []
        for column in there:
            is_number = column.body["type"] in ("integer", "number")
            if is_number and "lower" not in column.body and "keys" not in column.body:
                unbounded.append(column.name)
        by_form.setdefault(one.form, []).extend(there)
    own = fields[0].form
    check_only(terms, [form for form in by_form if form != own])
    wanted = [own, *(form for form in by_form if form != own and terms.takes(form))]
    forms = []
    for form in wanted:
        status = status_of(form)
        columns = [*by_form.get(form, []), *([status] if status.name in names else [])]
        if columns or form == own:
            forms.append(_Form(form, _table_name(form), tuple(columns)))
    left_out = [f"{reason}: {', '.join(found)}" for reason, found in reasons.items()]
    if absent:
        left_out.append(f"not in the records: {', '.join(absent)}")
    return forms, _Notes(unbounded, [*left_out, *_unknown(fields, names)])


def _table_name(form: str) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in form)
    return (plain if plain[:1].isalpha() else f"form_{plain}")[:63]


def _unknown(fields: Sequence[Field], names: Sequence[str]) -> Iterator[str]:
    """Yield a note about columns of the records that the dictionary does not have."""
    known = {one.name for one in fields} | {f"{one.form}_complete" for one in fields}
    known |= {EVENT, REPEAT, INSTANCE, SITE}
    others = [name for name in names if name.partition("___")[0] not in known]
    if others:
        yield f"not in the dictionary: {', '.join(others)}"


def _about(names: Sequence[str], events: tuple[str, ...], *, is_first: bool) -> dict[str, Json]:
    """Return the columns that say which event and instance a row is, and which site's."""
    found: dict[str, Json] = {}
    if EVENT in names and not is_first:
        found[EVENT] = {"type": "text", **({"keys": list(events)} if events else {})}
    if INSTANCE in names and not is_first:
        found[INSTANCE] = {"type": "integer", "lower": 1, "upper": 100}
    if SITE in names and is_first:
        found[SITE] = {"type": "text"}
    return found


def _write(path: Path, unit: str, forms: Sequence[_Form], tables: Sequence[ExportTable]) -> bool:
    """Write the rows of each form's table; the main table gets every record once.

    Return True if a record has several rows of the main table's form.
    """
    has_twice = False
    with ExitStack() as stack:
        rows = records(path)
        names = [name.casefold() for name in next(rows, [])]
        writers = [
            _writer(stack, form, table, unit) for form, table in zip(forms, tables, strict=True)
        ]
        seen: dict[str, bool] = {}  # record -> whether it is in the main table
        for cells in rows:
            row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
            record = row.get(unit, "")
            for place, (form, write) in enumerate(zip(forms, writers, strict=True)):
                if not record or not form.is_in(row):
                    continue
                if place == 0 and seen.get(record):
                    has_twice = True
                    continue
                write(row)
                seen[record] = seen.get(record, False) or place == 0
            if record:
                seen.setdefault(record, False)
        for record, is_main in seen.items():
            if not is_main:
                writers[0]({unit: record})
    return has_twice


def _writer(stack: ExitStack, form: _Form, table: ExportTable, unit: str) -> Callable[[Row], None]:
    place = Path(table.file)
    file = stack.enter_context(place.open("w", encoding="utf-8", newline=""))
    about = [name for name in (EVENT, INSTANCE, SITE) if name in table.columns]
    write_rows(file, [[unit, *about, *(one.name for one in form.columns)]], "\t")

    def write(row: Row) -> None:
        cells = [row.get(unit, ""), *(row.get(name, "") for name in about)]
        cells += [one.spell(row.get(one.source, "")) for one in form.columns]
        write_rows(file, [cells], "\t")

    return write
