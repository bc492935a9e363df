"""How a FHIR bulk export is flattened: references, codings, components, partial days."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sfumato.client.ready_made import Terms, read_export
from sfumato.dp.refusal import Refused

TERMS = Terms(years=(2015, 2023))
SCT, LOINC = "http://snomed.info/sct", "http://loinc.org"
WHO = {"reference": "Patient/p1"}


def rows(folder: Path, table: str, *resources: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows that a table gets of these resources."""
    text = "".join(json.dumps(one) + "\n" for one in resources)
    (folder / "part.ndjson").write_text(text, "utf-8")
    with read_export("fhir", str(folder), TERMS) as export:
        found = next(one for one in export.tables if one.name == table)
        with open(found.file, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t"))


def condition(**more: object) -> dict[str, Any]:
    return {"resourceType": "Condition", "subject": WHO, **more}


def coding(system: str, code: str, display: str = "") -> dict[str, str]:
    return {"system": system, "code": code, **({"display": display} if display else {})}


@pytest.mark.parametrize(
    ("reference", "person"),
    [
        ("Patient/p1", "p1"),
        ("urn:uuid:0f0f-1", "0f0f-1"),
        ("https://fhir.example.org/r4/Patient/p1", "p1"),
        ("Patient/p1/_history/2", "p1"),
        ("Group/g1", None),
        ("", None),
    ],
)
def test_a_reference_names_the_patient(reference: str, person: str | None, tmp_path: Path) -> None:
    found = rows(tmp_path, "condition", condition(subject={"reference": reference}))
    assert [row["patient_id"] for row in found] == ([] if person is None else [person])


def test_the_coding_of_the_wanted_system_is_taken_else_the_first(tmp_path: Path) -> None:
    local, standard = coding("http://local", "x1", "own"), coding(SCT, "38341003", "Hypertension")
    found = rows(
        tmp_path,
        "condition",
        condition(code={"coding": [local, standard], "text": "says Dr House"}),
        condition(code={"coding": [{"system": SCT}, local]}),
        condition(code={"text": "only words"}),
        condition(),
    )
    about = [(row["code"], row["code_system"], row["display"]) for row in found]
    assert about == [
        ("38341003", "SNOMED", "Hypertension"),
        ("x1", "other", "own"),
        ("", "", ""),
        ("", "", ""),
    ]


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("2019", "2019-01-01"),
        ("2019-07", "2019-07-01"),
        ("2019-07-31", "2019-07-31"),
        ("2019-07-31T23:30:00+02:00", "2019-07-31"),
        ("unknown", ""),
    ],
)
def test_a_partial_day_is_its_first_day(written: str, day: str, tmp_path: Path) -> None:
    assert rows(tmp_path, "condition", condition(onsetDateTime=written))[0]["onset_date"] == day


def test_each_component_is_a_row_with_its_panel(tmp_path: Path) -> None:
    parts = [
        {"code": {"coding": [coding(LOINC, code)]}, "valueQuantity": {"value": value, "unit": "mm"}}
        for code, value in (("8480-6", 120), ("8462-4", 80.5))
    ]
    panel = {
        "resourceType": "Observation", "subject": WHO, "status": "final", "component": parts,
        "code": {"coding": [coding(LOINC, "85354-9")]}, "effectiveDateTime": "2020-01-02",
    }  # fmt: skip
    found = rows(tmp_path, "observation", panel)
    about = [(row["code"], row["panel_code"], row["value"], row["unit"]) for row in found]
    assert about == [("8480-6", "85354-9", "120", "mm"), ("8462-4", "85354-9", "80.5", "mm")]


def test_values_of_an_observation_are_numbers_codes_or_nothing(tmp_path: Path) -> None:
    def seen(**value: object) -> dict[str, Any]:
        return {"resourceType": "Observation", "subject": WHO, **value}

    found = rows(
        tmp_path,
        "observation",
        seen(valueQuantity={"value": 5, "comparator": "<", "code": "mg"}),
        seen(valueInteger=7),
        seen(valueCodeableConcept={"coding": [coding(SCT, "1", "yes")]}),
        seen(valueBoolean=False),
        seen(valueString="Mrs Miller said no"),
        seen(dataAbsentReason={"text": "refused"}),
        seen(status="entered-in-error", valueInteger=9),
    )
    about = [
        tuple(row[one] for one in ("value", "unit", "comparator", "value_code")) for row in found
    ]
    assert about == [
        ("5", "mg", "<", ""),
        ("7", "", "", ""),
        ("", "", "", "1"),
        ("", "", "", "false"),
        ("", "", "", ""),
        ("", "", "", ""),
    ]


def test_a_medication_is_its_own_a_contained_or_another_resource(tmp_path: Path) -> None:
    def drug(name: str) -> dict[str, Any]:
        coded = {"coding": [coding("http://www.nlm.nih.gov/research/umls/rxnorm", name)]}
        return {"resourceType": "Medication", "id": name, "code": coded}

    def request(**how: object) -> dict[str, Any]:
        return {"resourceType": "MedicationRequest", "subject": WHO, **how}

    found = rows(
        tmp_path,
        "medication_request",
        request(medicationCodeableConcept=drug("a")["code"]),
        request(contained=[drug("b")], medicationReference={"reference": "#b"}),
        request(medicationReference={"reference": "Medication/c"}),  # comes later in the file
        request(medicationReference={"reference": "Medication/lost"}),
        request(medication={"concept": drug("d")["code"]}),  # R5
        drug("c"),
    )
    assert [row["code"] for row in found] == ["a", "b", "c", "", "d"]


def test_a_patient_has_a_year_of_birth_and_no_name(tmp_path: Path) -> None:
    race = {"url": "ombCategory", "valueCoding": {"code": "2106-3"}}
    url = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-race"
    patient = {
        "resourceType": "Patient", "id": "p1", "birthDate": "1950-02", "gender": "female",
        "name": [{"family": "Miller"}], "deceasedDateTime": "2021",
        "extension": [{"url": url, "extension": [race]}],
        "maritalStatus": {"coding": [{"code": "M"}]},
    }  # fmt: skip
    found = rows(tmp_path, "", patient, {"resourceType": "Patient", "id": "p2"})
    assert list(found[0].values()) == [
        "p1", "female", "1950", "true", "2021-01-01", "M", "White", "",
    ]  # fmt: skip
    assert list(found[1].values()) == ["p2", "", "", "false", "", "", "", ""]


def test_several_files_of_a_type_are_one_table_whatever_they_are_called(tmp_path: Path) -> None:
    line = json.dumps(condition()) + "\n"
    with gzip.open(tmp_path / "Condition.2.ndjson.gz", "wt") as file:
        file.write(line)
    (tmp_path / "0001.jsonl").write_text(f"\n{line}\n")
    assert len(rows(tmp_path, "condition", condition())) == 3


def test_unknown_types_and_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text('{"resourceType": "Bundle"}')
    (tmp_path / "a.ndjson").write_text('{"resourceType": "Practitioner", "id": "d"}\n')
    with read_export("fhir", str(tmp_path), TERMS) as export:
        left_out = " ".join(export.left_out)
    assert "Practitioner" in left_out
    assert "bundle.json" in left_out


@pytest.mark.parametrize("line", ['{"resourceType": "Patient", "id": "secret', "[1]", "7"])
def test_a_line_that_is_no_resource_is_named_by_its_number_alone(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(f"{json.dumps(condition())}\n{line}\n")
    with pytest.raises(Refused) as refused, read_export("fhir", str(tmp_path), TERMS):
        pass
    assert "Line 2 of a.ndjson" in refused.value.cause
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("table", "resource"),
    [
        ("encounter", {"resourceType": "Encounter", "status": "entered-in-error"}),
        (
            "condition",
            {
                "resourceType": "Condition",
                "verificationStatus": {"coding": [{"code": "entered-in-error"}]},
            },
        ),
        ("observation", {"resourceType": "Observation", "status": "entered-in-error"}),
        ("medication_request", {"resourceType": "MedicationRequest", "status": "entered-in-error"}),
    ],
)
def test_mistakes_are_left_out(table: str, resource: dict[str, Any], tmp_path: Path) -> None:
    right = {key: value for key, value in resource.items() if "tatus" not in key}
    assert len(rows(tmp_path, table, {**resource, "subject": WHO})) == 0
    assert len(rows(tmp_path, table, {**right, "subject": WHO})) == 1
