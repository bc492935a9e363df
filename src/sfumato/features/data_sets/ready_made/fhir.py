"""Read a FHIR bulk export: NDJSON files of resources, flattened into tables by fixed rules.

Each line is one resource, and its `resourceType` says which, whatever the file is called. What a
person's rows become depends on that person's resources and on the Medication resources alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.ready_made.export_files import files_of, text_lines
from sfumato.features.data_sets.ready_made.fhir_elements import (
    OTHER,
    SYSTEMS,
    Resource,
    child,
    code,
    coding,
    day,
    first_day,
    reference,
    text,
)
from sfumato.features.data_sets.ready_made.ready_made_card import (
    VALUE,
    ExportTable,
    ReadExport,
    Terms,
    check_only,
)
from sfumato.system.csv_writer import write_rows

UNIT: Final = "patient_id"
_NAMED: Final = 5  # files that are named
LINES: Final = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
_TEXT: Final[Json] = {"type": "text"}
_DATE: Final[Json] = {"type": "date"}
_SYSTEM: Final[Json] = {
    "type": "text",
    "keys": [*dict.fromkeys(SYSTEMS.values()), OTHER],
}
_CODED: Final[Mapping[str, Json]] = {"code": _TEXT, "code_system": _SYSTEM, "display": _TEXT}
Row = list[str]
Medications = Mapping[str, tuple[str, str, str]]


def _keys(*words: str) -> Json:
    return {"type": "text", "keys": list(words)}


_RACES: Final = {
    "1002-5": "American Indian or Alaska Native", "2028-9": "Asian",
    "2054-5": "Black or African American", "2076-8": "Native Hawaiian or Other Pacific Islander",
    "2106-3": "White", "2131-1": "Other Race", "ASKU": "asked but unknown", "UNK": "unknown",
}  # fmt: skip
_ETHNICITIES: Final = {"2135-2": "Hispanic or Latino", "2186-5": "Not Hispanic or Latino"}
_US_CORE: Final = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
_MISTAKE: Final = "entered-in-error"
_ORDER: Final = {
    "observation": ("LOINC", "SNOMED"),
    "condition": ("SNOMED", "ICD-10-CM", "ICD-10-GM", "ICD-10"),
    "medication": ("RxNorm", "ATC", "SNOMED"),
    "encounter": ("SNOMED",),
}


@dataclass(frozen=True)
class _Flat:
    """How resources of one type become rows of one table."""

    table: str
    columns: Mapping[str, Json]
    rows: Callable[[Resource, Medications], Iterator[Row]]
    person: Callable[[Resource], str]
    max_rows: int
    rows_per_person: int


def _subject(resource: Resource) -> str:
    return reference(resource.get("subject") or resource.get("patient"), "Patient")


def _patient(one: Resource, _: Medications) -> Iterator[Row]:
    died = day(one.get("deceasedDateTime"))
    dead = "true" if one.get("deceasedDateTime") else text(one.get("deceasedBoolean"))
    born = text(one.get("birthDate"))[:4]
    yield [
        text(one.get("gender")),
        born if born.isdigit() else "",
        dead or "false",
        died,
        code(one.get("maritalStatus")),
        _RACES.get(_of_us(one, "race"), ""),
        _ETHNICITIES.get(_of_us(one, "ethnicity"), ""),
    ]


def _of_us(patient: Resource, what: str) -> str:
    """Return the code of the first category of race or ethnicity, as US Core writes it."""
    for one in _list(patient.get("extension")):
        if child(one, "url") == _US_CORE + what:
            for inner in _list(child(one, "extension")):
                if child(inner, "url") == "ombCategory":
                    return text(child(inner, "valueCoding", "code"))
    return ""


def _encounter(one: Resource, _: Medications) -> Iterator[Row]:
    if one.get("status") == _MISTAKE:
        return
    kind = coding(one.get("type"), _ORDER["encounter"])
    reason = coding(one.get("reasonCode"), _ORDER["condition"])
    period = "period" if "period" in one else "actualPeriod"
    yield [
        text(one.get("id")),
        text(one.get("status")),
        code(one.get("class")),
        *kind,
        day(child(one, period, "start")),
        day(child(one, period, "end")),
        reason[0],
        reason[2],
    ]


def _condition(one: Resource, _: Medications) -> Iterator[Row]:
    status, sure = code(one.get("clinicalStatus")), code(one.get("verificationStatus"))
    if sure == _MISTAKE:
        return
    onset = first_day(one, "onsetDateTime", "onsetPeriod.start", "recordedDate", "assertedDate")
    yield [
        *coding(one.get("code"), _ORDER["condition"]),
        status,
        sure,
        code(one.get("category")),
        onset,
        first_day(one, "abatementDateTime", "abatementPeriod.start"),
        reference(one.get("encounter") or one.get("context"), "Encounter"),
    ]


def _observation(one: Resource, _: Medications) -> Iterator[Row]:
    """Yield a row for the value of an observation, and one for each of its components."""
    if one.get("status") == _MISTAKE:
        return
    when = first_day(
        one, "effectiveDateTime", "effectivePeriod.start", "effectiveInstant", "issued"
    )
    about = [text(one.get("status")), code(one.get("category")), when]
    visit = reference(one.get("encounter") or one.get("context"), "Encounter")
    parts = [part for part in _list(one.get("component")) if isinstance(part, Mapping)]
    panel = code_of = coding(one.get("code"), _ORDER["observation"])
    if _has_value(one) or not parts:
        yield [*code_of, "", *about, *_value(one), visit]
    for part in parts:
        yield [
            *coding(part.get("code"), _ORDER["observation"]),
            panel[0],
            *about,
            *_value(part),
            visit,
        ]


def _has_value(one: Resource) -> bool:
    return any(name.startswith("value") for name in one)


def _value(one: Resource) -> Row:
    """Return the number, unit and comparator, and the code and display, of a value[x]."""
    quantity = one.get("valueQuantity")
    number = child(quantity, "value") if quantity else one.get("valueInteger")
    coded = coding(one.get("valueCodeableConcept"), ("SNOMED", "LOINC"))
    if isinstance(one.get("valueBoolean"), bool):
        coded = (text(one["valueBoolean"]), "", "")
    return [
        _plain(number),
        text(child(quantity, "code") or child(quantity, "unit")),
        text(child(quantity, "comparator")),
        coded[0],
        coded[2],
    ]


def _plain(number: object) -> str:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return repr(number) if is_number else ""


def _medication(one: Resource, known: Medications) -> Iterator[Row]:
    if one.get("status") == _MISTAKE:
        return
    yield [
        *_drug(one, known),
        text(one.get("status")),
        text(one.get("intent")),
        day(one.get("authoredOn")),
        reference(one.get("encounter") or one.get("context"), "Encounter"),
    ]


def _drug(one: Resource, known: Medications) -> tuple[str, str, str]:
    """Return the coding of a prescribed medication: its own, of a contained or another resource."""
    own = one.get("medicationCodeableConcept") or child(one, "medication", "concept")
    if own:
        return coding(own, _ORDER["medication"])
    there = one.get("medicationReference") or child(one, "medication", "reference")
    inside = text(child(there, "reference")).removeprefix("#")
    for each in _list(one.get("contained")):
        if child(each, "id") == inside:
            return coding(child(each, "code"), _ORDER["medication"])
    return known.get(reference(there, "Medication"), ("", "", ""))


def _list(value: object) -> list[Any]:  # Any: JSON
    return value if isinstance(value, list) else []


_FLAT: Final[Mapping[str, _Flat]] = {
    "Patient": _Flat(
        "",
        {
            "gender": _keys("male", "female", "other", "unknown"),
            "birth_year": {"type": "integer", "lower": 1900, "upper": 2100},
            "deceased": {"type": "boolean"},
            "deceased_date": _DATE,
            "marital_status": _keys("A", "C", "D", "I", "L", "M", "P", "S", "T", "U", "W", "UNK"),
            "race": _keys(*_RACES.values()),
            "ethnicity": _keys(*_ETHNICITIES.values()),
        },
        _patient,
        lambda one: text(one.get("id")),
        1,
        1,
    ),
    "Encounter": _Flat(
        "encounter",
        {
            "encounter_id": _TEXT,
            "status": _keys(
                "planned", "arrived", "triaged", "in-progress", "onleave", "on-hold", "discharged",
                "completed", "finished", "cancelled", "discontinued", "unknown",
            ),
            "class": _keys(
                "AMB", "EMER", "FLD", "HH", "IMP", "ACUTE", "NONAC", "OBSENC", "PRENC", "SS", "VR"
            ),
            "type_code": _TEXT,
            "type_system": _SYSTEM,
            "type_display": _TEXT,
            "start_date": _DATE,
            "end_date": _DATE,
            "reason_code": _TEXT,
            "reason_display": _TEXT,
        },
        _encounter,
        _subject,
        10,
        1000,
    ),
    "Condition": _Flat(
        "condition",
        {
            **_CODED,
            "clinical_status": _keys(
                "active", "recurrence", "relapse", "inactive", "remission", "resolved", "unknown"
            ),
            "verification_status": _keys(
                "unconfirmed", "provisional", "differential", "confirmed", "refuted"
            ),
            "category": _TEXT,
            "onset_date": _DATE,
            "abatement_date": _DATE,
            "encounter_id": _TEXT,
        },
        _condition,
        _subject,
        5,
        1000,
    ),
    "Observation": _Flat(
        "observation",
        {
            **_CODED,
            "panel_code": _TEXT,
            "status": _keys(
                "registered", "preliminary", "final", "amended", "corrected", "cancelled", "unknown"
            ),
            "category": _keys(
                "social-history", "vital-signs", "imaging", "laboratory", "procedure", "survey",
                "exam", "therapy", "activity",
            ),
            "effective_date": _DATE,
            "value": VALUE,
            "unit": _TEXT,
            "comparator": _keys("<", "<=", ">=", ">"),
            "value_code": _TEXT,
            "value_display": _TEXT,
            "encounter_id": _TEXT,
        },
        _observation,
        _subject,
        10,
        1000,
    ),
    "MedicationRequest": _Flat(
        "medication_request",
        {
            **_CODED,
            "status": _keys(
                "active", "on-hold", "ended", "stopped", "completed", "cancelled", "draft",
                "unknown",
            ),
            "intent": _keys(
                "proposal", "plan", "order", "original-order", "reflex-order", "filler-order",
                "instance-order", "option",
            ),
            "authored_date": _DATE,
            "encounter_id": _TEXT,
        },
        _medication,
        _subject,
        5,
        1000,
    ),
}  # fmt: skip


@dataclass
class _Seen:
    """What was met while the files were read."""

    unknown: set[str] = field(default_factory=set)
    without_person: set[str] = field(default_factory=set)


def read_fhir(folder: Path, work: Path, terms: Terms) -> ReadExport:
    """Return the tables of a FHIR bulk export in a folder.

    Args:
        folder: The folder with the NDJSON files, also compressed ones.
        work: A private folder for the tables.
        terms: What the owner says about the export.

    Returns:
        The tables, what was assumed, and what is not taken.

    Raises:
        Refused: `source-unreadable` if a line is no resource, or if there are no files.
    """
    files = files_of(folder, LINES)
    if not files:
        raise Refused(
            "source-unreadable",
            "The folder has no .ndjson file.",
            "Give the folder of a FHIR bulk export: one resource on each line. A Bundle in a .json "
            "file is not read.",
        )
    check_only(terms, [flat.table for flat in _FLAT.values() if flat.table])
    wanted = {
        kind: flat for kind, flat in _FLAT.items() if not flat.table or terms.takes(flat.table)
    }
    seen, known = _Seen(), _medications(files)
    with ExitStack() as stack:
        writers = {kind: _writer(stack, flat, work, known) for kind, flat in wanted.items()}
        for path in files:
            for one in _resources(path):
                _keep(one, writers, seen)
    tables = tuple(_table(kind, flat, work, terms) for kind, flat in wanted.items())
    return ReadExport(
        "fhir",
        UNIT,
        tables,
        assumed=tuple(_assumed(terms)),
        left_out=(*_left_out(wanted, seen), *_other_files(folder, files)),
        from_rows=tuple(
            f"Some resources of the type {kind} name no patient, and are left out."
            for kind in sorted(seen.without_person)
        ),
    )


def _assumed(terms: Terms) -> Iterator[str]:
    first, last = terms.years
    yield f"Dates are between {first} and {last}; other dates are moved to the nearest of these."
    yield "A year or a month alone counts as its first day."
    yield (
        "value is between 0 and 1000, in steps of 0.01: the standard has no bounds. A question "
        "narrows them: LEAST(GREATEST(value, 60), 260)."
    )
    yield (
        "Of several codings, the one of SNOMED (conditions), LOINC (observations) or RxNorm "
        "(medications) is taken, else the first one."
    )
    yield "Each component of an observation is a row of its own, with the panel's code beside it."


def _left_out(wanted: Mapping[str, _Flat], seen: _Seen) -> Iterator[str]:
    yield "Patient: identifiers, names, addresses, telecom, contacts, photos, day of birth"
    yield "all resources: text, notes, extensions but race and ethnicity, names of other people"
    yield f"resources with the status {_MISTAKE}"
    unwanted = [flat.table for kind, flat in _FLAT.items() if kind not in wanted]
    if unwanted:
        yield f"tables that --only leaves out: {', '.join(unwanted)}"
    if seen.unknown:
        yield f"types of resources that are not read: {', '.join(sorted(seen.unknown))}"


def _other_files(folder: Path, read: list[Path]) -> Iterator[str]:
    others = [path.name for path in files_of(folder, ("",)) if path not in read]
    if others:
        more = ", ..." if len(others) > _NAMED else ""
        yield f"other files: {', '.join(others[:_NAMED])}{more}"


def _table(kind: str, flat: _Flat, work: Path, terms: Terms) -> ExportTable:
    columns = {
        name: terms.day() if body == _DATE else dict(body) for name, body in flat.columns.items()
    }
    if kind == "Patient":
        columns["birth_year"] = {
            "type": "integer",
            "lower": 1900,
            "upper": max(terms.years[1], 1901),
        }
    return ExportTable(
        flat.table, str(work / f"{kind}.tsv"), columns, flat.max_rows, flat.rows_per_person
    )


def _writer(
    stack: ExitStack, flat: _Flat, work: Path, known: Medications
) -> Callable[[Resource], bool]:
    kind = next(kind for kind, one in _FLAT.items() if one is flat)
    file = stack.enter_context((work / f"{kind}.tsv").open("w", encoding="utf-8", newline=""))
    write_rows(file, [[UNIT, *flat.columns]], "\t")

    def write(one: Resource) -> bool:
        person = flat.person(one)
        if person:
            write_rows(file, ([person, *row] for row in flat.rows(one, known)), "\t")
        return bool(person)

    return write


def _keep(one: Resource, writers: Mapping[str, Callable[[Resource], bool]], seen: _Seen) -> None:
    kind = text(one.get("resourceType"))
    if kind in writers:
        if not writers[kind](one):
            seen.without_person.add(kind)
    elif kind not in _FLAT and kind != "Medication":
        seen.unknown.add(kind[:50] or "(none)")


def _medications(files: list[Path]) -> dict[str, tuple[str, str, str]]:
    """Return the coding of each Medication resource of the export, by its id."""
    found = {}
    for path in files:
        for one in _resources(path, having='"Medication"'):
            if one.get("resourceType") == "Medication":
                found[text(one.get("id"))] = coding(one.get("code"), _ORDER["medication"])
    return found


def _resources(path: Path, having: str = "") -> Iterator[Resource]:
    """Yield the resources of a file, of those lines that have a text."""
    decoder = msgspec.json.Decoder()
    for place, line in enumerate(text_lines(path), 1):
        if not line.strip() or having not in line:
            continue
        one = _decoded(decoder, line)
        if one is None:
            raise _no_resource(path, place)
        yield one


def _decoded(decoder: msgspec.json.Decoder[Any], line: str) -> Resource | None:
    """Return the resource of a line; None if it is none."""
    try:
        one = decoder.decode(line)
    except msgspec.DecodeError:  # its message says nothing of the line
        return None
    return one if isinstance(one, Mapping) else None


def _no_resource(path: Path, place: int) -> Refused:
    return Refused(
        "source-unreadable",
        f"Line {place} of {path.name} is no FHIR resource.",
        "Each line must be one resource as JSON. Export the file again if it is cut off.",
    )
