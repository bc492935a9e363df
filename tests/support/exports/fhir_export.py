"""A synthetic FHIR bulk export: NDJSON files, some compressed, several for one type.

It has references in four forms, codings in several orders, days of which only the year is known,
panels with components, prescriptions with contained and separate medications, mistakes, types of
resources that nobody reads, names and addresses.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

Json = dict[str, Any]  # Any: JSON
_SCT, _LOINC = "http://snomed.info/sct", "http://loinc.org"
_RX: Final = "http://www.nlm.nih.gov/research/umls/rxnorm"
_ICD: Final = "http://hl7.org/fhir/sid/icd-10-cm"
_V3: Final = "http://terminology.hl7.org/CodeSystem/v3-ActCode"
_US: Final = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
CONDITIONS: Final = (
    ("59621000", "Essential hypertension", "I10", 0.3),
    ("44054006", "Diabetes mellitus type 2", "E11.9", 0.12),
    ("195967001", "Asthma", "J45", 0.1),
    ("35489007", "Depressive disorder", "F32.9", 0.1),
    ("13645005", "Chronic obstructive lung disease", "J44", 0.05),
)
DRUGS: Final = (
    ("860975", "metformin 500 MG", "44054006"),
    ("314076", "lisinopril 10 MG", "59621000"),
    ("895994", "albuterol inhaler", "195967001"),
)
RACES: Final = ("2106-3", "2054-5", "2028-9")


def write_fhir(folder: Path, people: int, seed: int = 3) -> Path:
    """Write the export of so many patients into a folder, and return it."""
    folder.mkdir(parents=True)
    made = _Made(np.random.default_rng(seed))
    for n in range(people):
        made.patient(n)
    half = len(made.encounters) // 2
    _lines(folder / "Patient.ndjson.gz", made.patients)
    _lines(folder / "Encounter.000.ndjson", made.encounters[:half])
    _lines(folder / "Encounter.001.ndjson", made.encounters[half:])
    _lines(folder / "Condition.ndjson", made.conditions)
    _lines(folder / "Observation.1.ndjson.gz", made.observations[::2])
    _lines(folder / "Observation.2.ndjson", made.observations[1::2])
    _lines(folder / "MedicationRequest.ndjson", made.requests)
    _lines(folder / "Medication.ndjson", [_medication(0, "med-0"), _medication(1, "med-1")])
    names = {"resourceType": "Practitioner", "id": "dr-1", "name": [{"family": "House"}]}
    report = {
        "resourceType": "DiagnosticReport",
        "id": "r1",
        "subject": {"reference": "Patient/p0"},
    }
    _lines(folder / "other.ndjson", [names, report])
    return folder


def raw_fhir(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return the raw lines as JSON, and views of them that DuckDB's JSON paths make."""
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE lines AS SELECT json AS j, json->>'$.resourceType' AS kind FROM "
        f"read_ndjson_objects(['{folder}/*.ndjson', '{folder}/*.ndjson.gz'])"
    )
    raw.execute(
        "CREATE VIEW patient AS SELECT j->>'$.id' AS id, j->>'$.gender' AS gender, "
        "left(j->>'$.birthDate', 4)::INT AS born, j->>'$.deceasedDateTime' AS died, "
        "list_filter((j->'$.extension')::JSON[], lambda e: e->>'$.url' LIKE '%us-core-race')[1]"
        "->>'$.extension[0].valueCoding.code' AS race FROM lines WHERE kind = 'Patient'"
    )
    who = "regexp_extract(j->>'$.subject.reference', '([^/:]+?)(/_history/.*)?$', 1) AS who"
    raw.execute(
        f"CREATE VIEW encounter AS SELECT {who}, j->>'$.class.code' AS class, "
        "left(j->>'$.period.start', 10)::DATE AS day FROM lines WHERE kind = 'Encounter' AND "
        "j->>'$.status' <> 'entered-in-error' AND j->>'$.subject.reference' IS NOT NULL"
    )
    snomed = f"lambda c: c->>'$.system' = '{_SCT}'"
    raw.execute(
        f"CREATE VIEW condition AS SELECT {who}, "
        f"list_filter((j->'$.code.coding')::JSON[], {snomed})[1]->>'$.code' AS code, "
        "left(j->>'$.onsetDateTime', 4)::INT AS year FROM lines WHERE kind = 'Condition' AND "
        "coalesce(j->>'$.verificationStatus.coding[0].code', '') <> 'entered-in-error'"
    )
    raw.execute(
        f"CREATE VIEW observation AS SELECT {who}, j->>'$.code.coding[0].code' AS code, "
        "(j->>'$.valueQuantity.value')::DOUBLE AS value, "
        "j->>'$.valueCodeableConcept.coding[0].code' AS coded, "
        "(j->>'$.component[0].valueQuantity.value')::DOUBLE AS systolic, "
        "(j->>'$.component[1].valueQuantity.value')::DOUBLE AS diastolic "
        "FROM lines WHERE kind = 'Observation' AND j->>'$.status' <> 'entered-in-error'"
    )
    raw.execute(
        f"CREATE VIEW request AS SELECT {who}, left(j->>'$.authoredOn', 10)::DATE AS day, "
        "j->>'$.status' AS status, coalesce(j->>'$.medicationCodeableConcept.coding[0].code', "
        "j->>'$.contained[0].code.coding[0].code', CASE j->>'$.medicationReference.reference' "
        f"WHEN 'Medication/med-0' THEN '{DRUGS[0][0]}' WHEN 'Medication/med-1' THEN "
        f"'{DRUGS[1][0]}' END) AS code FROM lines WHERE kind = 'MedicationRequest'"
    )
    return raw


class _Made:
    """Resources while they are made."""

    def __init__(self, dice: np.random.Generator) -> None:
        self.dice = dice
        self.patients: list[Json] = []
        self.encounters: list[Json] = []
        self.conditions: list[Json] = []
        self.observations: list[Json] = []
        self.requests: list[Json] = []

    def day(self) -> str:
        return (date(2015, 1, 1) + timedelta(days=int(self.dice.integers(0, 3287)))).isoformat()

    def patient(self, n: int) -> None:
        dice, one = self.dice, f"p{n}"
        born = int(dice.integers(1930, 2010))
        known = ("", "-03", "-03-17")[int(dice.choice(3, p=(0.1, 0.1, 0.8)))]
        race = str(dice.choice(RACES, p=(0.7, 0.2, 0.1)))
        category = {"url": "ombCategory", "valueCoding": {"system": "urn:oid:1", "code": race}}
        person: Json = {
            "resourceType": "Patient", "id": one, "birthDate": f"{born}{known}",
            "gender": str(dice.choice(("male", "female", "other"), p=(0.48, 0.5, 0.02))),
            "name": [{"family": "Miller", "given": ["Anna"]}],
            "address": [{"line": ["1 Main Street"], "city": "Bern"}],
            "identifier": [{"value": f"MRN-{n}"}],
            "extension": [
                {"url": "http://example.org/note", "valueString": "likes cats"},
                {"url": _US + "race", "extension": [category]},
            ],
        }  # fmt: skip
        if dice.random() < 0.08:
            person["deceasedDateTime"] = f"{self.day()}T10:00:00+02:00"
        self.patients.append(person)
        reference = ({"reference": f"Patient/{one}"}, {"reference": f"urn:uuid:{one}"},
                     {"reference": f"https://fhir.example.org/r4/Patient/{one}"},
                     {"reference": f"Patient/{one}/_history/3", "display": "Miller"})  # fmt: skip
        subject = reference[n % 4]
        visits = [self.encounter(one, subject) for _ in range(int(dice.poisson(3)))]
        ill = self.condition_codes(subject, born)
        for visit in visits[:3]:
            self.pressure(subject, 105 + (2023 - born) / 4, visit)
        if "44054006" in ill:
            value = round(float(dice.normal(7.4, 0.8)), 1)
            self.observe(subject, "4548-4", {"valueQuantity": {"value": value, "unit": "%"}})
        smokes = ("449868002", "8517006", "266919005")[int(dice.choice(3, p=(0.2, 0.3, 0.5)))]
        coded = {"coding": [{"system": _SCT, "code": smokes}], "text": "told by his wife"}
        self.observe(subject, "72166-2", {"valueCodeableConcept": coded})
        for place, (_, _, why) in enumerate(DRUGS):
            for _ in range(int(dice.poisson(1.5)) if why in ill else 0):
                self.request(subject, place)

    def encounter(self, one: str, subject: Json) -> str:
        kind = str(self.dice.choice(("AMB", "EMER", "IMP"), p=(0.75, 0.1, 0.15)))
        key, day = f"e-{one}-{len(self.encounters)}", self.day()
        status = "entered-in-error" if self.dice.random() < 0.02 else "finished"
        self.encounters.append(
            {
                "resourceType": "Encounter", "id": key, "status": status, "subject": subject,
                "class": {"system": _V3, "code": kind},
                "period": {"start": f"{day}T08:00:00Z", "end": f"{day}T09:00:00Z"},
                "participant": [{"individual": {"display": "Dr House"}}],
            }
        )  # fmt: skip
        if len(self.encounters) == 7:  # one that names nobody
            self.encounters.append({**self.encounters[-1], "id": "lost", "subject": {}})
        return key

    def condition_codes(self, subject: Json, born: int) -> set[str]:
        found = set()
        for code, display, icd, chance in CONDITIONS:
            if self.dice.random() >= min(0.9, chance * (2023 - born) / 40):
                continue
            day = self.day()
            onset = day[: (4, 7, 10)[int(self.dice.choice(3, p=(0.2, 0.2, 0.6)))]]
            codings = [
                {"system": _ICD, "code": icd, "display": "billing"},
                {"system": _SCT, "code": code, "display": display},
            ]
            is_wrong = self.dice.random() < 0.03
            sure = "entered-in-error" if is_wrong else "confirmed"
            self.conditions.append(
                {
                    "resourceType": "Condition", "id": f"c{len(self.conditions)}",
                    "code": {"coding": codings, "text": f"{display}, says Dr House"},
                    "subject": subject, "onsetDateTime": onset, "note": [{"text": "free text"}],
                    "verificationStatus": {"coding": [{"code": sure}]},
                    "clinicalStatus": {"coding": [{"code": "active"}]},
                }
            )  # fmt: skip
            if not is_wrong:
                found.add(code)
        return found

    def pressure(self, subject: Json, base: float, visit: str) -> None:
        high = round(float(self.dice.normal(base, 10)))
        parts = [
            {"code": _loinc(code), "valueQuantity": {"value": value, "unit": "mmHg"}}
            for code, value in (("8480-6", high), ("8462-4", round(high * 0.62)))
        ]
        seen = {"encounter": {"reference": f"Encounter/{visit}"}, "component": parts}
        self.observe(subject, "85354-9", seen)

    def observe(self, subject: Json, code: str, more: Mapping[str, Any]) -> None:
        status = "entered-in-error" if self.dice.random() < 0.02 else "final"
        self.observations.append(
            {
                "resourceType": "Observation", "id": f"o{len(self.observations)}",
                "status": status, "subject": subject, "code": _loinc(code),
                "effectiveDateTime": self.day(), **more,
            }
        )  # fmt: skip

    def request(self, subject: Json, place: int) -> None:
        own = _medication(place, "inside")
        how: tuple[Json, ...] = (
            {"medicationCodeableConcept": own["code"]},
            {"contained": [own], "medicationReference": {"reference": "#inside"}},
            {"medicationReference": {"reference": f"Medication/med-{place}"}},
        )
        self.requests.append(
            {
                "resourceType": "MedicationRequest", "id": f"m{len(self.requests)}",
                "status": "stopped" if self.dice.random() < 0.2 else "active", "intent": "order",
                "subject": subject, "authoredOn": f"{self.day()}T12:00:00Z",
                "dosageInstruction": [{"text": "one daily"}],
                **how[len(self.requests) % (3 if place < 2 else 2)],
            }
        )  # fmt: skip


def _medication(place: int, name: str) -> Json:
    code, display, _ = DRUGS[place]
    coding = {"system": _RX, "code": code, "display": display}
    return {"resourceType": "Medication", "id": name, "code": {"coding": [coding]}}


def _loinc(code: str) -> Json:
    return {"coding": [{"system": _LOINC, "code": code, "display": f"LOINC {code}"}]}


def _lines(path: Path, resources: Iterable[Json]) -> None:
    text = "".join(json.dumps(one) + "\n" for one in resources).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
