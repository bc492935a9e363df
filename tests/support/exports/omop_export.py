"""A synthetic export of OMOP CDM 5.4, as hospitals write it: each file in its own way.

Upper-case names, compressed and Parquet files, three spellings of days, people without a day of
birth, rows without a person, local codes, free text, tables of eras, and a vocabulary of Athena
whose names have quotes in them.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

FIRST, LAST = date(2015, 1, 1), date(2023, 12, 31)
GENDERS: Final = (8507, 8532, 8551)
VISITS: Final = (9202, 9201, 9203, 581477, 5083)
# concept -> name, code, chance of a person at forty
CONDITIONS: Final = {
    320128: ("Essential hypertension", "59621000", 0.30),
    201826: ("Type 2 diabetes mellitus", "44054006", 0.12),
    432867: ("Hyperlipidemia", "55822004", 0.22),
    255573: ('Chronic obstructive "lung" disease', "13645005", 0.06),
    440383: ("Depressive disorder", "35489007", 0.10),
    381591: ("Cerebrovascular disease", "62914000", 0.03),
    4329847: ("Myocardial infarction", "22298006", 0.02),
}
DRUGS: Final = {
    1503297: ("metformin", "6809", 201826, 0.8),
    1308216: ("lisinopril", "29046", 320128, 0.5),
    1545958: ("atorvastatin", "83367", 432867, 0.6),
    715939: ("escitalopram", "321988", 440383, 0.4),
    1125315: ("acetaminophen", "161", 0, 0.3),
}
SYSTOLIC, DIASTOLIC, WEIGHT, HBA1C = 3004249, 3012888, 3025315, 3004410
PROCEDURES: Final = {4230911: "Electrocardiogram", 4336464: "Coronary artery bypass graft"}
SMOKER: Final = 4298794
DEATH_CAUSES: Final = (4329847, 381591, 255573, 0)
_FROM_SOURCE: Final = "MRN"  # what must never be taken: it is in person_source_value


def write_omop(folder: Path, people: int, seed: int = 1) -> Path:
    """Write the export of so many people into a folder, and return it."""
    folder.mkdir(parents=True)
    made = _Made(folder, people, np.random.default_rng(seed))
    made.persons()
    made.visits()
    made.conditions()
    made.drugs()
    made.measurements()
    made.others()
    _concepts(folder / "vocabulary")
    return folder


def raw_omop(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return the raw export as tables with types, read by DuckDB alone: where the truth is from."""
    raw = duckdb.connect()

    def csv_of(name: str, day: str, *days: str) -> None:
        read = f"read_csv('{folder / name}', all_varchar = true, nullstr = ['', 'NULL'])"
        cast = "".join(
            f", strptime(left({one}, {len(day) + 2}), '{day}')::DATE AS {one}" for one in days
        )
        left = f" EXCLUDE ({', '.join(days)})" if days else ""
        table = name.partition(".")[0].casefold()
        raw.execute(f"CREATE TABLE {table} AS SELECT *{left}{cast} FROM {read}")

    csv_of("PERSON.csv", "")
    csv_of("VISIT_OCCURRENCE.csv", "%Y-%m-%d", "visit_start_date", "visit_end_date")
    csv_of("condition_occurrence.csv", "%Y%m%d", "condition_start_date", "condition_end_date")
    csv_of("drug_exposure.csv.gz", "%Y-%m-%d", "drug_exposure_start_date", "drug_exposure_end_date")
    csv_of("procedure_occurrence.tsv", "%Y-%m-%d", "procedure_date")
    csv_of("observation.csv", "%Y-%m-%d", "observation_date")
    csv_of("death.csv", "%Y-%m-%d", "death_date")
    raw.execute(
        f"CREATE TABLE measurement AS SELECT * FROM read_parquet('{folder}/measurement.parquet')"
    )
    return raw


class _Made:
    """The tables while they are made; what is true of a person is kept from table to table."""

    def __init__(self, folder: Path, people: int, dice: np.random.Generator) -> None:
        self.folder, self.dice, self.people = folder, dice, people
        self.ids = [10_000_019 + 7 * n for n in range(people)]
        self.born = dice.integers(1930, 2010, people)
        self.gender = dice.choice(GENDERS, people, p=(0.48, 0.5, 0.02))
        self.visit_ids: dict[int, list[tuple[int, date]]] = {}
        self.ill: dict[int, set[int]] = {}

    def day(self) -> date:
        return FIRST + timedelta(days=int(self.dice.integers(0, (LAST - FIRST).days + 1)))

    def persons(self) -> None:
        names = (
            "PERSON_ID,GENDER_CONCEPT_ID,YEAR_OF_BIRTH,MONTH_OF_BIRTH,DAY_OF_BIRTH,BIRTH_DATETIME,"
            "RACE_CONCEPT_ID,ETHNICITY_CONCEPT_ID,LOCATION_ID,PROVIDER_ID,CARE_SITE_ID,"
            "PERSON_SOURCE_VALUE,GENDER_SOURCE_VALUE"
        )
        races = self.dice.choice((8527, 8516, 8515, 0), self.people, p=(0.7, 0.13, 0.07, 0.1))
        rows = (
            (
                one, self.gender[n], self.born[n], int(self.dice.integers(1, 13)) if n % 3 else "",
                "", "", races[n], 38003563 if n % 9 == 0 else 38003564, n % 50, n % 20, 1,
                f"{_FROM_SOURCE}{one}", "F",
            )
            for n, one in enumerate(self.ids)
        )  # fmt: skip
        _csv(self.folder / "PERSON.csv", names.split(","), rows)

    def visits(self) -> None:
        names = (
            "visit_occurrence_id,person_id,visit_concept_id,visit_start_date,visit_start_datetime,"
            "visit_end_date,visit_type_concept_id,provider_id,care_site_id,visit_source_value"
        )
        rows: list[tuple[object, ...]] = []
        for n, one in enumerate(self.ids):
            for _ in range(int(self.dice.poisson(3 + (2030 - self.born[n]) / 40))):
                day, kind = self.day(), int(self.dice.choice(VISITS, p=(0.6, 0.1, 0.1, 0.15, 0.05)))
                until = day + timedelta(days=int(self.dice.poisson(5)) if kind == 9201 else 0)
                key = 2**53 + len(rows)  # a hashed number, larger than a double can tell apart
                self.visit_ids.setdefault(one, []).append((key, day))
                rows.append((key, one, kind, day, f"{day} 08:30:00", until, 32817, 3, 1, "ward 3"))
        rows.append((2**53 + len(rows), "", 9202, FIRST, "", FIRST, 32817, 3, 1, "nobody"))
        _csv(self.folder / "VISIT_OCCURRENCE.csv", names.split(","), rows)

    def conditions(self) -> None:
        names = (
            "condition_occurrence_id,person_id,condition_concept_id,condition_start_date,"
            "condition_end_date,condition_type_concept_id,stop_reason,visit_occurrence_id,"
            "condition_source_value"
        )
        rows: list[tuple[object, ...]] = []
        for n, one in enumerate(self.ids):
            age = 2023 - self.born[n]
            for concept, (name, code, chance) in CONDITIONS.items():
                if self.dice.random() >= min(0.9, chance * age / 40):
                    continue
                self.ill.setdefault(one, set()).add(concept)
                for _ in range(1 + int(self.dice.poisson(0.6))):
                    day = self.day().strftime("%Y%m%d")
                    visits = self.visit_ids.get(one, [("", FIRST)])
                    rows.append(
                        (len(rows), one, concept, day, "NULL", 32020, f"seen by Dr {name[:3]}",
                         visits[0][0], f"{code} of {one}")
                    )  # fmt: skip
        _csv(self.folder / "condition_occurrence.csv", names.split(","), rows)

    def drugs(self) -> None:
        names = (
            "drug_exposure_id,person_id,drug_concept_id,drug_exposure_start_date,"
            "drug_exposure_end_date,drug_type_concept_id,quantity,days_supply,sig,lot_number"
        )
        rows: list[tuple[object, ...]] = []
        for one in self.ids:
            for concept, (_, _, condition, chance) in DRUGS.items():
                is_due = condition == 0 or condition in self.ill.get(one, ())
                if not is_due or self.dice.random() >= chance:
                    continue
                for _ in range(1 + int(self.dice.poisson(1))):
                    day, supply = self.day(), int(self.dice.choice((30, 60, 90)))
                    until = day + timedelta(days=supply)
                    text = f'{supply} tablets, "one daily"'
                    rows.append(
                        (len(rows), one, concept, f"{day} 00:00:00", f"{until} 00:00:00", 32838,
                         supply, supply, text, "L-77")
                    )  # fmt: skip
        _csv(self.folder / "drug_exposure.csv.gz", names.split(","), rows)

    def measurements(self) -> None:
        rows: list[tuple[object, ...]] = []
        for n, one in enumerate(self.ids):
            base = 112 + (2023 - self.born[n]) / 4 + (4 if self.gender[n] == 8507 else 0)
            for _, day in self.visit_ids.get(one, [])[:3]:
                high = round(float(self.dice.normal(base, 10)), 0)
                rows.append((len(rows), one, SYSTOLIC, day, high, 8876, "120 mmHg", None))
                rows.append((len(rows), one, DIASTOLIC, day, round(high * 0.62), 8876, "", None))
            if 201826 in self.ill.get(one, ()):
                value = round(float(self.dice.normal(7.4, 0.9)), 1)
                rows.append((len(rows), one, HBA1C, self.day(), value, 8554, "", None))
            if n % 4 == 0:
                weight = round(float(self.dice.normal(78, 12)), 2)
                rows.append((len(rows), one, WEIGHT, self.day(), weight, 9529, "", None))
            if n % 50 == 0:  # not measured
                rows.append((len(rows), one, SYSTOLIC, self.day(), None, 8876, "refused", None))
        raw = duckdb.connect()
        raw.execute(
            "CREATE TABLE m (measurement_id BIGINT, person_id BIGINT, measurement_concept_id "
            "INTEGER, measurement_date DATE, value_as_number DOUBLE, unit_concept_id INTEGER, "
            "value_source_value VARCHAR, visit_occurrence_id BIGINT)"
        )
        path = self.folder / "m.csv"
        _csv(path, [f"c{n}" for n in range(8)], rows)
        raw.execute(f"INSERT INTO m SELECT * FROM read_csv('{path}', header = true, nullstr = '')")
        raw.execute(f"COPY m TO '{self.folder / 'measurement.parquet'}' (FORMAT parquet)")
        path.unlink()

    def others(self) -> None:
        procedures: list[tuple[object, ...]] = []
        observations: list[tuple[object, ...]] = []
        deaths: list[tuple[object, ...]] = []
        eras: list[tuple[object, ...]] = []
        for n, one in enumerate(self.ids):
            for concept, chance in ((4230911, 0.25), (4336464, 0.02)):
                if self.dice.random() < chance:
                    done = (len(procedures), one, concept, self.day(), 32817, 1, "by hand")
                    procedures.append(done)
            if self.dice.random() < 0.2:
                seen = (len(observations), one, SMOKER, self.day(), 32817, "", "smokes at home")
                observations.append(seen)
            if self.dice.random() < max(0.01, (2023 - self.born[n] - 50) / 200):
                cause = int(self.dice.choice(DEATH_CAUSES))
                deaths.append((one, f"{self.day()}", 32817, cause, "I21.9"))
            eras.append((n, one, 320128, FIRST, LAST, 1))
        names = (
            "procedure_occurrence_id\tperson_id\tprocedure_concept_id\tprocedure_date"
            "\tprocedure_type_concept_id\tquantity\tprocedure_source_value"
        )
        _csv(self.folder / "procedure_occurrence.tsv", names.split("\t"), procedures, "\t")
        names = (
            "observation_id,person_id,observation_concept_id,observation_date,"
            "observation_type_concept_id,value_as_number,value_as_string"
        )
        _csv(self.folder / "observation.csv", names.split(","), observations)
        names = "person_id,death_date,death_type_concept_id,cause_concept_id,cause_source_value"
        _csv(self.folder / "death.csv", names.split(","), deaths)
        names = (
            "condition_era_id,person_id,condition_concept_id,condition_era_start_date,"
            "condition_era_end_date,condition_occurrence_count"
        )
        _csv(self.folder / "CONDITION_ERA.csv", names.split(","), eras)
        note = [(1, self.ids[0], "Mrs Miller was seen in the garden of her house.")]
        _csv(self.folder / "note.csv", ["note_id", "person_id", "note_text"], note)
        source = [("City hospital", "2024-01-15", "v5.4.1")]
        names = "cdm_source_name,source_release_date,cdm_version"
        _csv(self.folder / "CDM_SOURCE.csv", names.split(","), source)


def _concepts(folder: Path) -> None:
    """Write CONCEPT.csv as Athena does: with tabs, and quotes that mean nothing."""
    folder.mkdir()
    rows = [(one, name, "Condition", "SNOMED", code) for one, (name, code, _) in CONDITIONS.items()]
    rows += [(one, name, "Drug", "RxNorm", code) for one, (name, code, *_) in DRUGS.items()]
    rows += [(one, name, "Procedure", "SNOMED", str(one)) for one, name in PROCEDURES.items()]
    rows += [(9201, "Inpatient Visit", "Visit", "Visit", "IP")]
    rows += [(9202, "Outpatient Visit", "Visit", "Visit", "OP")]
    rows += [(9203, '"Emergency" Room Visit', "Visit", "Visit", "ER")]
    names = (
        "concept_id", "concept_name", "domain_id", "vocabulary_id", "concept_class_id",
        "standard_concept", "concept_code", "valid_start_date", "valid_end_date", "invalid_reason",
    )  # fmt: skip
    lines = ["\t".join(names)]
    for one, name, domain, vocabulary, code in rows:
        cells = (str(one), name, domain, vocabulary, "Class", "S", code, "19700101", "20991231", "")
        lines.append("\t".join(cells))
    (folder / "CONCEPT.csv").write_text("\n".join(lines) + "\n", "utf-8")


def _csv(
    path: Path, names: Sequence[str], rows: Iterable[Sequence[object]], separator: str = ","
) -> None:
    opened: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:  # type: ignore[attr-defined]  # either is a file
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(names)
        writer.writerows(rows)
