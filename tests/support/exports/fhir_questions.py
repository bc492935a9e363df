"""What clinicians ask of a FHIR data set `cohort`, and the truth on its raw lines."""

from __future__ import annotations

from typing import Final

from support.exports.clinical_question import Question

_AGE: Final = "FLOOR((2023 - p.birth_year) / 20) * 20"
_RAW_AGE: Final = "(2023 - p.born) // 20 * 20"
EACH: Final = {"max_groups": 1, "max_rows": 1}
_FOUR: Final = {"max_groups": 1, "max_rows": 4}


def _person(key: str, raw: str) -> Question:
    return Question(
        f"SELECT {key} AS k, COUNT(*) AS n FROM cohort p GROUP BY k",
        f"SELECT {raw} AS k, count(*) FROM patient p GROUP BY k",
        1,
    )


def _ill(code: str, key: str, raw: str) -> Question:
    return Question(
        f"SELECT {key} AS k, COUNT(DISTINCT c.patient_id) AS n FROM condition c JOIN cohort p ON "
        f"p.patient_id = c.patient_id WHERE c.code = '{code}' GROUP BY k",
        f"SELECT {raw} AS k, count(DISTINCT c.who) FROM condition c JOIN patient p ON p.id = c.who "
        f"WHERE c.code = '{code}' GROUP BY k",
        1,
        terms=EACH,
    )


def _pressure(code: str, raw: str, key: str, raw_key: str) -> Question:
    return Question(
        f"SELECT {key} AS k, AVG(LEAST(GREATEST(o.value, 40), 240)) AS mean FROM observation o "
        f"JOIN cohort p ON p.patient_id = o.patient_id WHERE o.code = '{code}' GROUP BY k",
        f"SELECT {raw_key} AS k, avg(least(greatest(o.{raw}, 40), 240)) FROM observation o JOIN "
        f"patient p ON p.id = o.who WHERE o.{raw} IS NOT NULL GROUP BY k",
        1,
        terms=_FOUR,
    )


def _with_drug(condition: str, drug: str) -> Question:
    return Question(
        "SELECT COUNT(DISTINCT c.patient_id) AS n FROM condition c JOIN medication_request m ON "
        f"m.patient_id = c.patient_id WHERE c.code = '{condition}' AND m.code = '{drug}'",
        f"SELECT count(DISTINCT who) FROM condition WHERE code = '{condition}' AND who IN (SELECT "
        f"who FROM request WHERE code = '{drug}')",
        terms=EACH,
    )


QUESTIONS: Final = (
    Question("SELECT COUNT(*) AS n FROM cohort", "SELECT count(*) FROM patient"),
    _person("p.gender", "p.gender"),
    _person(_AGE, _RAW_AGE),
    _person(
        "p.race",
        "CASE race WHEN '2106-3' THEN 'White' WHEN '2054-5' THEN 'Black or African American' "
        "ELSE 'Asian' END",
    ),
    _person("p.deceased", "died IS NOT NULL"),
    Question(
        "SELECT date_trunc('year', deceased_date) AS year, COUNT(*) AS n FROM cohort WHERE "
        "deceased GROUP BY year",
        "SELECT make_date(left(died, 4)::INT, 1, 1) AS y, count(*) FROM patient WHERE died IS NOT "
        "NULL GROUP BY y",
        1,
    ),
    Question(
        f"SELECT p.gender AS sex, {_AGE} AS age, COUNT(*) AS n FROM cohort p GROUP BY sex, age",
        f"SELECT p.gender, {_RAW_AGE} AS age, count(*) FROM patient p GROUP BY ALL",
        2,
    ),
    _ill("59621000", "p.gender", "p.gender"),
    _ill("44054006", _AGE, _RAW_AGE),
    _ill("195967001", "p.gender", "p.gender"),
    Question(
        "SELECT display AS condition, COUNT(DISTINCT patient_id) AS n FROM condition GROUP BY "
        "condition",
        "SELECT CASE code WHEN '59621000' THEN 'Essential hypertension' WHEN '44054006' THEN "
        "'Diabetes mellitus type 2' WHEN '195967001' THEN 'Asthma' WHEN '35489007' THEN "
        "'Depressive disorder' ELSE 'Chronic obstructive lung disease' END AS k, "
        "count(DISTINCT who) FROM condition GROUP BY k",
        1,
    ),
    Question(
        "SELECT date_trunc('year', onset_date) AS year, COUNT(*) AS n FROM condition GROUP BY year",
        "SELECT make_date(year, 1, 1) AS y, count(*) FROM condition GROUP BY y",
        1,
        terms={"max_groups": 5, "max_rows": 5},
    ),
    Question(
        "SELECT class, COUNT(*) AS n FROM encounter GROUP BY class",
        "SELECT class, count(*) FROM encounter GROUP BY class",
        1,
        terms={"max_groups": 3, "max_rows": 14},
    ),
    Question(
        "SELECT date_trunc('year', start_date) AS year, COUNT(DISTINCT patient_id) AS n FROM "
        "encounter WHERE class = 'EMER' GROUP BY year",
        "SELECT date_trunc('year', day)::DATE AS y, count(DISTINCT who) FROM encounter WHERE class "
        "= 'EMER' GROUP BY y",
        1,
    ),
    Question(
        "SELECT AVG(n) AS visits_each FROM (SELECT patient_id, COUNT(*) AS n FROM encounter GROUP "
        "BY patient_id)",
        "SELECT avg(n) FROM (SELECT count(*) AS n FROM encounter GROUP BY who)",
    ),
    _pressure("8480-6", "systolic", "p.gender", "p.gender"),
    _pressure("8480-6", "systolic", _AGE, _RAW_AGE),
    _pressure("8462-4", "diastolic", "p.gender", "p.gender"),
    Question(
        "SELECT AVG(LEAST(value, 20)) AS hba1c FROM observation WHERE code = '4548-4'",
        "SELECT avg(value) FROM observation WHERE code = '4548-4'",
        terms=EACH,
    ),
    Question(
        "SELECT COUNT(DISTINCT patient_id) AS n FROM observation WHERE code = '8480-6' AND "
        "value >= 140",
        "SELECT count(DISTINCT who) FROM observation WHERE systolic >= 140",
    ),
    Question(
        "SELECT p.gender AS sex, COUNT(DISTINCT o.patient_id) AS n FROM observation o JOIN cohort "
        "p ON p.patient_id = o.patient_id WHERE o.code = '72166-2' AND o.value_code = '449868002' "
        "GROUP BY sex",
        "SELECT p.gender, count(DISTINCT o.who) FROM observation o JOIN patient p ON p.id = o.who "
        "WHERE o.code = '72166-2' AND o.coded = '449868002' GROUP BY ALL",
        1,
        terms=EACH,
    ),
    _with_drug("44054006", "860975"),
    _with_drug("59621000", "314076"),
    Question(
        "SELECT display AS drug, COUNT(DISTINCT patient_id) AS n FROM medication_request GROUP BY "
        "drug",
        "SELECT CASE code WHEN '860975' THEN 'metformin 500 MG' WHEN '314076' THEN 'lisinopril 10 "
        "MG' ELSE 'albuterol inhaler' END AS k, count(DISTINCT who) FROM request GROUP BY k",
        1,
    ),
    Question(
        "SELECT status, COUNT(*) AS n FROM medication_request GROUP BY status",
        "SELECT status, count(*) FROM request GROUP BY status",
        1,
        terms={"max_groups": 2, "max_rows": 14},
    ),
    Question(
        "SELECT COUNT(*) AS n FROM (SELECT patient_id, COUNT(*) AS n FROM condition GROUP BY "
        "patient_id HAVING COUNT(*) >= 2)",
        "SELECT count(*) FROM (SELECT who FROM condition GROUP BY who HAVING count(*) >= 2)",
    ),
)
