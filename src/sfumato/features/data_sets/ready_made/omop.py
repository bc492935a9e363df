"""Read an export of the OMOP Common Data Model 5.4: a text or Parquet file for each table.

Tables of people are taken as they are. Only the vocabulary's CONCEPT file is rewritten, because
Athena writes it as tab-separated text without quoting.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.ready_made.export_files import (
    TEXTS,
    chosen,
    column_names,
    encoding_of,
    records,
    tables_of,
    text_lines,
    write_table,
)
from sfumato.features.data_sets.ready_made.ready_made_card import (
    VALUE,
    ExportTable,
    ReadExport,
    Terms,
    check_only,
)

UNIT: Final = "person_id"
NULLS: Final = ("", "\\N", "NULL", "NA")
_CONCEPT: Final[Json] = {"type": "integer"}
_ID: Final[Json] = {"type": "text"}  # the number of a visit: only to join and to count
_DATE: Final[Json] = {"type": "date"}
_LOOKS: Final = 1000  # lines that are looked at for the format of dates
_FORMATS: Final = (  # how texts write a date, and the format that the card names
    (re.compile(r"\d{4}-\d\d-\d\d"), ""),
    (re.compile(r"\d{8}"), "%Y%m%d"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "%Y-%m-%dT%H:%M:%SZ"),
)


def _keys(*concepts: int) -> Json:
    return {"type": "integer", "keys": [*concepts, 0]}


def _whole(lower: int, upper: int) -> Json:
    return {"type": "integer", "lower": lower, "upper": upper}


@dataclass(frozen=True)
class _Standard:
    """What the standard says of one table: its columns, and how many rows of a person count."""

    columns: Mapping[str, Json]
    max_rows: int
    rows_per_person: int


_PERSON: Final = _Standard(
    {
        "gender_concept_id": _keys(8507, 8532, 8521, 8551, 8570),
        "year_of_birth": _whole(1900, 2100),
        "month_of_birth": _whole(1, 12),
        "race_concept_id": _keys(8515, 8516, 8522, 8527, 8552, 8557, 8657),
        "ethnicity_concept_id": _keys(38003563, 38003564),
    },
    1,
    1,
)
_VISITS: Final = (  # the visit concepts of the standard vocabulary that people use most
    9201, 9202, 9203, 262, 581476, 581477, 581458, 581478, 581385, 5083, 8756, 32036, 32037,
    42898160, 38004193,
)  # fmt: skip
TABLES: Final[Mapping[str, _Standard]] = {
    "observation_period": _Standard(
        {
            "observation_period_start_date": _DATE,
            "observation_period_end_date": _DATE,
            "period_type_concept_id": _CONCEPT,
        },
        1,
        20,
    ),
    "visit_occurrence": _Standard(
        {
            "visit_occurrence_id": _ID,
            "visit_concept_id": _keys(*_VISITS),
            "visit_start_date": _DATE,
            "visit_end_date": _DATE,
            "visit_type_concept_id": _CONCEPT,
            "admitted_from_concept_id": _CONCEPT,
            "discharged_to_concept_id": _CONCEPT,
        },
        10,
        1000,
    ),
    "condition_occurrence": _Standard(
        {
            "condition_concept_id": _CONCEPT,
            "condition_start_date": _DATE,
            "condition_end_date": _DATE,
            "condition_type_concept_id": _CONCEPT,
            "condition_status_concept_id": _CONCEPT,
            "visit_occurrence_id": _ID,
            "condition_source_concept_id": _CONCEPT,
        },
        5,
        1000,
    ),
    "drug_exposure": _Standard(
        {
            "drug_concept_id": _CONCEPT,
            "drug_exposure_start_date": _DATE,
            "drug_exposure_end_date": _DATE,
            "drug_type_concept_id": _CONCEPT,
            "refills": _whole(0, 100),
            "quantity": VALUE,
            "days_supply": _whole(0, 366),
            "route_concept_id": _CONCEPT,
            "visit_occurrence_id": _ID,
            "drug_source_concept_id": _CONCEPT,
        },
        5,
        1000,
    ),
    "procedure_occurrence": _Standard(
        {
            "procedure_concept_id": _CONCEPT,
            "procedure_date": _DATE,
            "procedure_type_concept_id": _CONCEPT,
            "modifier_concept_id": _CONCEPT,
            "quantity": _whole(0, 100),
            "visit_occurrence_id": _ID,
            "procedure_source_concept_id": _CONCEPT,
        },
        5,
        1000,
    ),
    "measurement": _Standard(
        {
            "measurement_concept_id": _CONCEPT,
            "measurement_date": _DATE,
            "measurement_type_concept_id": _CONCEPT,
            "operator_concept_id": _CONCEPT,
            "value_as_number": VALUE,
            "value_as_concept_id": _CONCEPT,
            "unit_concept_id": _CONCEPT,
            "visit_occurrence_id": _ID,
            "measurement_source_concept_id": _CONCEPT,
        },
        10,
        1000,
    ),
    "observation": _Standard(
        {
            "observation_concept_id": _CONCEPT,
            "observation_date": _DATE,
            "observation_type_concept_id": _CONCEPT,
            "value_as_number": VALUE,
            "value_as_concept_id": _CONCEPT,
            "qualifier_concept_id": _CONCEPT,
            "unit_concept_id": _CONCEPT,
            "visit_occurrence_id": _ID,
            "observation_source_concept_id": _CONCEPT,
        },
        10,
        1000,
    ),
    "death": _Standard(
        {"death_date": _DATE, "death_type_concept_id": _CONCEPT, "cause_concept_id": _CONCEPT},
        1,
        1,
    ),
}
_NAMES: Final[Mapping[str, Json]] = {
    "concept_id": _CONCEPT,
    "concept_name": {"type": "text"},
    "domain_id": {"type": "text"},
    "vocabulary_id": {"type": "text"},
    "concept_class_id": {"type": "text"},
    "standard_concept": {"type": "text", "keys": ["S", "C"]},
    "concept_code": {"type": "text"},
}
_MEANINGS: Final = {
    "gender_concept_id": "8507 = male, 8532 = female, 8521 = other, 8551 = unknown, "
    "8570 = ambiguous, 0 = no matching concept",
    "race_concept_id": "8515 = Asian, 8516 = Black, 8522 = other, 8527 = White, 8552 = unknown, "
    "8557 = Pacific Islander, 8657 = American Indian, 0 = no matching concept",
    "ethnicity_concept_id": "38003563 = Hispanic, 38003564 = not Hispanic, 0 = no matching concept",
    "visit_concept_id": "9201 = inpatient, 9202 = outpatient, 9203 = emergency, 262 = emergency "
    "and inpatient, 581477 = office, 581476 = home, 5083 = telehealth",
}


def read_omop(folder: Path, work: Path, terms: Terms) -> ReadExport:
    """Return the tables of an OMOP export in a folder.

    Args:
        folder: The folder of the export.
        work: A private folder for copies.
        terms: What the owner says about the export.

    Returns:
        The tables, what was assumed, and what is not taken.

    Raises:
        Refused: `source-unreadable` if there is no table of persons, or if it cannot be read.
    """
    found = tables_of(folder)
    if "person" not in found:
        raise Refused(
            "source-unreadable",
            "The folder has no file person.csv, PERSON.csv or person.parquet.",
            "Give the folder with one file for each table of OMOP CDM 5.4.",
        )
    names = [name for name in (*TABLES, "concept") if name in found]
    check_only(terms, names)
    taken = [name for name in names if terms.takes(name)]
    notes = _Notes([], [])
    first, last = terms.years
    born = {**_PERSON.columns, "year_of_birth": _whole(1900, max(last, 1901))}
    person = _Standard(born, _PERSON.max_rows, _PERSON.rows_per_person)
    tables = [_table("person", person, found["person"], terms, notes)]
    tables += [
        _table(name, TABLES[name], found[name], terms, notes) for name in taken if name in TABLES
    ]
    if "concept" in taken:
        tables.append(_concepts(found["concept"], work))
    return ReadExport(
        "omop",
        UNIT,
        tuple(tables),
        NULLS,
        tuple(_assumed(first, last, has_names="concept" in taken)),
        (*notes.left_out, *_left_out(found, taken, notes.absent)),
    )


@dataclass(frozen=True)
class _Notes:
    """What is said about tables while they are read."""

    absent: list[str]  # tables and columns of the standard that the export does not have
    left_out: list[str]


def _assumed(first: int, last: int, *, has_names: bool) -> Iterator[str]:
    yield f"Dates are between {first} and {last}; other dates are moved to the nearest of these."
    yield (
        "value_as_number and quantity are between 0 and 1000, in steps of 0.01: the standard has "
        "no bounds. A question narrows them: LEAST(GREATEST(value_as_number, 60), 260)."
    )
    yield (
        "The keys of gender, race, ethnicity and visits are the standard's concepts. Rows with "
        "another concept are in no group of these columns."
    )
    if not has_names:
        yield (
            "There is no table concept, so answers show the numbers of concepts. With CONCEPT.csv "
            "of Athena in the folder, questions can join their names."
        )


def _left_out(found: Mapping[str, Path], taken: list[str], absent: list[str]) -> Iterator[str]:
    known = {"person", *TABLES, "concept"}
    others = [name for name in found if name not in known]
    if others:
        yield f"other tables: {', '.join(others)}"
    unwanted = [name for name in (*TABLES, "concept") if name in found and name not in taken]
    if unwanted:
        yield f"tables that --only leaves out: {', '.join(unwanted)}"
    missing = [*(name for name in TABLES if name not in found), *absent]
    if missing:
        yield f"not in the export: {', '.join(missing)}"


def _table(name: str, standard: _Standard, path: Path, terms: Terms, notes: _Notes) -> ExportTable:
    names = column_names(path)
    there = chosen(standard.columns, names)
    if UNIT not in {one.casefold() for one in names}:
        raise Refused(
            "source-unreadable",
            f"{path.name} has no column {UNIT}.",
            "Give tables of OMOP CDM 5.4 whose first line has the names of the standard.",
        )
    dates = [column for column in there if standard.columns[column]["type"] == "date"]
    written = _date_formats(path, [there[column] for column in dates])
    columns = {
        column: terms.day(written.get(there[column], "")) if column in dates else body
        for column, body in standard.columns.items()
        if column in there
    }
    absent = [column for column in standard.columns if column not in there]
    notes.absent.extend(f"{name}.{column}" for column in absent)
    others = [one for one in names if one not in there.values() and one.casefold() != UNIT]
    if others:
        notes.left_out.append(f"{path.name}: {', '.join(one.casefold() for one in others)}")
    comments = {column: text for column, text in _MEANINGS.items() if column in columns}
    return ExportTable(
        name,
        str(path),
        columns,
        standard.max_rows,
        standard.rows_per_person,
        encoding=_encoding(path),
        comments=comments,
    )


def _encoding(path: Path) -> str:
    if not path.name.casefold().endswith(TEXTS):
        return "utf-8"
    return encoding_of(path).removesuffix("-sig")


def _date_formats(path: Path, columns: list[str]) -> dict[str, str]:
    """Return how a text file writes the dates of these columns: the format of most cells.

    The format is on the card, so it is public. It is that of most of the first cells, so that no
    single person decides it.
    """
    if not path.name.casefold().endswith(TEXTS):
        return {}
    found: dict[str, Counter[str]] = {column: Counter() for column in columns}
    rows = records(path)
    names = next(rows, [])
    places = {column: names.index(column) for column in columns}
    for _, row in zip(range(_LOOKS), rows, strict=False):
        for column, place in places.items():
            cell = row[place].strip() if place < len(row) else ""
            if cell not in NULLS:
                fits = (form for pattern, form in _FORMATS if pattern.fullmatch(cell))
                found[column][next(fits, "")] += 1
    return {column: forms.most_common(1)[0][0] for column, forms in found.items() if forms}


def _concepts(path: Path, work: Path) -> ExportTable:
    """Return the public table of concepts, rewritten if it is text."""
    columns = chosen(_NAMES, column_names(path))
    if not {"concept_id", "concept_name"} <= set(columns):
        raise Refused(
            "source-unreadable",
            f"{path.name} has no columns concept_id and concept_name.",
            "Give the file CONCEPT.csv of Athena, or remove it from the folder.",
        )
    file = str(path)
    if path.name.casefold().endswith(TEXTS):
        cells = _cells(path, list(columns.values()))
        file = write_table(work / "concept.tsv", list(columns), cells)
    shown = {name: body for name, body in _NAMES.items() if name in columns}
    return ExportTable("concept", file, shown, key="concept_id")


def _cells(path: Path, wanted: list[str]) -> Iterator[list[str]]:
    """Yield the wanted cells; a tab-separated file has no quotes, as Athena writes it."""
    lines = text_lines(path)
    first = next(lines, "")
    if first.count("\t") >= len(wanted) - 1:
        rows: Iterator[list[str]] = (line.rstrip("\r\n").split("\t") for line in lines)
        names = [name.strip().strip('"') for name in first.rstrip("\r\n").split("\t")]
    else:
        rows = records(path)
        names = next(rows, [])
    places = [names.index(name) for name in wanted]
    for row in rows:
        if len(row) > 1:  # no empty line
            yield [row[place].strip() if place < len(row) else "" for place in places]
