"""What clinicians ask of an OMOP data set `cohort`, and the truth on its raw files."""

from __future__ import annotations

from typing import Final

from support.exports.clinical_question import Question

_AGE: Final = "FLOOR((2023 - p.year_of_birth) / 20) * 20"
_RAW_AGE: Final = "(2023 - p.year_of_birth::INT) // 20 * 20"
_SYSTOLIC: Final = "LEAST(GREATEST(m.value_as_number, 60), 260)"
ONE: Final = {"max_groups": 1}
EACH: Final = {"max_groups": 1, "max_rows": 1}


def _person(key: str, raw: str) -> Question:
    """Return a count of people by what the table of people says of them."""
    return Question(
        f"SELECT {key} AS k, COUNT(*) AS n FROM cohort p GROUP BY k",
        f"SELECT {raw} AS k, count(*) FROM person p GROUP BY k",
        1,
    )


def _ill(concept: int, key: str, raw: str) -> Question:
    """Return a count of people with a condition, by what the table of people says of them."""
    return Question(
        f"SELECT {key} AS k, COUNT(DISTINCT c.person_id) AS n FROM condition_occurrence c JOIN "
        f"cohort p ON p.person_id = c.person_id WHERE c.condition_concept_id = {concept} "
        "GROUP BY k",
        f"SELECT {raw} AS k, count(DISTINCT c.person_id) FROM condition_occurrence c JOIN person p "
        f"ON p.person_id = c.person_id WHERE c.condition_concept_id = '{concept}' GROUP BY k",
        1,
        terms=EACH,
    )


def _with_drug(condition: int, drug: int) -> Question:
    return Question(
        "SELECT COUNT(DISTINCT c.person_id) AS n FROM condition_occurrence c JOIN drug_exposure d "
        f"ON d.person_id = c.person_id WHERE c.condition_concept_id = {condition} AND "
        f"d.drug_concept_id = {drug}",
        "SELECT count(DISTINCT person_id) FROM condition_occurrence WHERE condition_concept_id = "
        f"'{condition}' AND person_id IN (SELECT person_id FROM drug_exposure WHERE "
        f"drug_concept_id = '{drug}')",
        terms=EACH,
    )


QUESTIONS: Final = (
    Question("SELECT COUNT(*) AS n FROM cohort", "SELECT count(*) FROM person"),
    _person("p.gender_concept_id", "p.gender_concept_id"),
    _person(_AGE, _RAW_AGE),
    _person("p.race_concept_id", "p.race_concept_id"),
    Question(
        f"SELECT p.gender_concept_id AS sex, {_AGE} AS age, COUNT(*) AS n FROM cohort p "
        "GROUP BY sex, age",
        f"SELECT p.gender_concept_id, {_RAW_AGE} AS age, count(*) FROM person p GROUP BY ALL",
        2,
    ),
    _ill(201826, "p.gender_concept_id", "p.gender_concept_id"),
    _ill(320128, _AGE, _RAW_AGE),
    _ill(440383, "p.ethnicity_concept_id", "p.ethnicity_concept_id"),
    Question(
        "SELECT k.concept_name AS condition, COUNT(DISTINCT c.person_id) AS n FROM "
        "condition_occurrence c JOIN concept k ON k.concept_id = c.condition_concept_id "
        "GROUP BY condition",
        "SELECT CASE condition_concept_id WHEN 320128 THEN 'Essential hypertension' WHEN 201826 "
        "THEN 'Type 2 diabetes mellitus' WHEN 432867 THEN 'Hyperlipidemia' WHEN 255573 THEN "
        "'Chronic obstructive \"lung\" disease' WHEN 440383 THEN 'Depressive disorder' WHEN 381591 "
        "THEN 'Cerebrovascular disease' ELSE 'Myocardial infarction' END AS k, "
        "count(DISTINCT person_id) FROM condition_occurrence GROUP BY k",
        1,
        terms={"max_groups": 7},
    ),
    Question(
        "SELECT condition_concept_id AS c, COUNT(*) AS n FROM condition_occurrence GROUP BY c",
        "SELECT condition_concept_id AS c, count(*) FROM condition_occurrence GROUP BY c",
        1,
        terms={"max_groups": 7, "max_rows": 10},
    ),
    Question(
        "SELECT visit_concept_id AS kind, COUNT(*) AS n FROM visit_occurrence GROUP BY kind",
        "SELECT visit_concept_id AS k, count(*) FROM visit_occurrence WHERE person_id IS NOT NULL "
        "GROUP BY k",
        1,
        terms={"max_groups": 5, "max_rows": 25},
    ),
    Question(
        "SELECT date_trunc('year', visit_start_date) AS year, COUNT(DISTINCT person_id) AS n FROM "
        "visit_occurrence WHERE visit_concept_id = 9201 GROUP BY year",
        "SELECT date_trunc('year', visit_start_date)::DATE AS y, count(DISTINCT person_id) FROM "
        "visit_occurrence WHERE visit_concept_id = '9201' GROUP BY y",
        1,
        terms={"max_groups": 9},
    ),
    Question(
        "SELECT date_trunc('year', death_date) AS year, COUNT(*) AS n FROM death GROUP BY year",
        "SELECT date_trunc('year', death_date)::DATE AS y, count(*) FROM death GROUP BY y",
        1,
    ),
    Question(
        "SELECT cause_concept_id AS cause, COUNT(*) AS n FROM death GROUP BY cause",
        "SELECT cause_concept_id AS c, count(*) FROM death GROUP BY c",
        1,
    ),
    Question(
        f"SELECT p.gender_concept_id AS sex, AVG({_SYSTOLIC}) AS mean FROM measurement m JOIN "
        "cohort p ON p.person_id = m.person_id WHERE m.measurement_concept_id = 3004249 "
        "GROUP BY sex",
        "SELECT p.gender_concept_id AS s, avg(least(greatest(m.value_as_number, 60), 260)) FROM "
        "measurement m JOIN person p ON p.person_id::BIGINT = m.person_id WHERE "
        "m.measurement_concept_id = 3004249 AND m.value_as_number IS NOT NULL GROUP BY s",
        1,
        terms={"max_groups": 1, "max_rows": 4},
    ),
    Question(
        f"SELECT {_AGE} AS age, AVG({_SYSTOLIC}) AS mean FROM measurement m JOIN cohort p ON "
        "p.person_id = m.person_id WHERE m.measurement_concept_id = 3004249 GROUP BY age",
        f"SELECT {_RAW_AGE} AS a, avg(least(greatest(m.value_as_number, 60), 260)) FROM "
        "measurement m JOIN person p ON p.person_id::BIGINT = m.person_id WHERE "
        "m.measurement_concept_id = 3004249 AND m.value_as_number IS NOT NULL GROUP BY a",
        1,
        terms={"max_groups": 1, "max_rows": 4},
    ),
    Question(
        "SELECT AVG(LEAST(value_as_number, 20)) AS hba1c FROM measurement WHERE "
        "measurement_concept_id = 3004410",
        "SELECT avg(value_as_number) FROM measurement WHERE measurement_concept_id = 3004410",
        terms=EACH,
    ),
    Question(
        "SELECT COUNT(DISTINCT person_id) AS n FROM measurement WHERE measurement_concept_id = "
        "3004249 AND value_as_number >= 140",
        "SELECT count(DISTINCT person_id) FROM measurement WHERE measurement_concept_id = 3004249 "
        "AND value_as_number >= 140",
    ),
    _with_drug(201826, 1503297),
    _with_drug(320128, 1308216),
    Question(
        "SELECT drug_concept_id AS drug, COUNT(DISTINCT person_id) AS n FROM drug_exposure "
        "GROUP BY drug",
        "SELECT drug_concept_id AS d, count(DISTINCT person_id) FROM drug_exposure GROUP BY d",
        1,
    ),
    Question(
        "SELECT AVG(days_supply) AS days FROM drug_exposure WHERE drug_concept_id = 1503297",
        "SELECT avg(days_supply::INT) FROM drug_exposure WHERE drug_concept_id = '1503297'",
        terms={"max_groups": 1, "max_rows": 12},
    ),
    Question(
        "SELECT COUNT(DISTINCT person_id) AS n FROM procedure_occurrence WHERE "
        "procedure_concept_id = 4336464 AND procedure_date >= '2020-01-01'",
        "SELECT count(DISTINCT person_id) FROM procedure_occurrence WHERE procedure_concept_id = "
        "'4336464' AND procedure_date >= DATE '2020-01-01'",
    ),
    Question(
        "SELECT AVG(n) AS visits_each FROM (SELECT person_id, COUNT(*) AS n FROM visit_occurrence "
        "GROUP BY person_id)",
        "SELECT avg(n) FROM (SELECT person_id, count(*) AS n FROM visit_occurrence WHERE person_id "
        "IS NOT NULL GROUP BY person_id)",
    ),
    Question(
        "SELECT p.gender_concept_id AS sex, COUNT(DISTINCT o.person_id) AS smokers FROM "
        "observation o JOIN cohort p ON p.person_id = o.person_id WHERE o.observation_concept_id "
        "= 4298794 GROUP BY sex",
        "SELECT p.gender_concept_id AS s, count(DISTINCT o.person_id) FROM observation o JOIN "
        "person p ON p.person_id = o.person_id GROUP BY s",
        1,
        terms=EACH,
    ),
    Question(
        "SELECT COUNT(*) AS died FROM cohort p JOIN death d ON d.person_id = p.person_id WHERE "
        "p.gender_concept_id = 8532",
        "SELECT count(*) FROM person p JOIN death d USING (person_id) WHERE "
        "p.gender_concept_id = '8532'",
    ),
)
