"""What clinicians ask of a REDCap data set `cohort`, and the truth on its raw records."""

from __future__ import annotations

from typing import Final

from support.exports.clinical_question import Question

_VISITS: Final = {"max_groups": 3, "max_rows": 1}
_EVENTS: Final = {"max_groups": 4, "max_rows": 8}


def _base(key: str, raw: str) -> Question:
    return Question(
        f"SELECT {key} AS k, COUNT(*) AS n FROM cohort GROUP BY k",
        f"SELECT {raw} AS k, count(*) FROM base GROUP BY k",
        1,
    )


def _visit(value: str, raw: str) -> Question:
    """Return a mean of a value at each visit."""
    return Question(
        f"SELECT redcap_event_name AS visit, AVG({value}) AS mean FROM visit GROUP BY visit",
        f"SELECT redcap_event_name, avg({raw}) FROM visits GROUP BY ALL",
        1,
        terms=_VISITS,
    )


def _sex(value: str, raw: str) -> Question:
    """Return a mean of a value at the first visit, by sex."""
    return Question(
        f"SELECT c.sex_label AS sex, AVG({value}) AS mean FROM visit v JOIN cohort c ON "
        "c.record_id = v.record_id WHERE v.redcap_event_name = 'baseline_arm_1' GROUP BY sex",
        "SELECT CASE b.sex WHEN '1' THEN 'Male' WHEN '2' THEN 'Female' ELSE 'Other' END AS s, "
        f"avg({raw}) FROM visits v JOIN base b ON b.record_id = v.record_id WHERE "
        "v.redcap_event_name = 'baseline_arm_1' GROUP BY s",
        1,
        terms={"max_groups": 1, "max_rows": 1},
    )


QUESTIONS: Final = (
    Question("SELECT COUNT(*) AS n FROM cohort", "SELECT count(*) FROM base"),
    _base("sex_label", "CASE sex WHEN '1' THEN 'Male' WHEN '2' THEN 'Female' ELSE 'Other' END"),
    _base("site", "site"),
    _base(
        "site_label", "CASE site WHEN 'BE' THEN 'Bern' WHEN 'ZH' THEN 'Zürich' ELSE 'Genève' END"
    ),
    _base("race___2", "race___2"),
    _base("date_trunc('year', consent_date)", "date_trunc('year', consent_date::DATE)::DATE"),
    Question(
        "SELECT COUNT(*) AS n FROM cohort WHERE race____88 = 1",
        "SELECT count(*) FROM base WHERE race____88 = '1'",
    ),
    Question(
        "SELECT COUNT(*) AS n FROM cohort WHERE age >= 65 AND sex = 2",
        "SELECT count(*) FROM base WHERE age::INT >= 65 AND sex = '2'",
    ),
    Question(
        "SELECT AVG(height) AS height FROM cohort",
        "SELECT avg(height::INT) FROM base WHERE height <> 'UNK'",
    ),
    Question(
        "SELECT sex, AVG(height) AS height FROM cohort GROUP BY sex",
        "SELECT sex, avg(height::INT) FROM base WHERE height <> 'UNK' GROUP BY sex",
        1,
        terms={"max_groups": 1, "max_rows": 1},
    ),
    Question(
        "SELECT redcap_event_name AS visit, COUNT(*) AS n FROM visit GROUP BY visit",
        "SELECT redcap_event_name, count(*) FROM visits GROUP BY ALL",
        1,
        terms=_VISITS,
    ),
    _visit("sbp", "pressure"),
    _visit("weight", "kg"),
    _visit("smoker", "smoker::INT"),
    _visit("phq1 + phq2", "phq1::INT + phq2::INT"),
    _visit("pain", "pain::INT"),
    _sex("v.sbp", "v.pressure"),
    _sex("v.weight", "v.kg"),
    Question(
        "SELECT phq1_label AS answer, COUNT(*) AS n FROM visit WHERE redcap_event_name = "
        "'month_12_arm_1' GROUP BY answer",
        "SELECT CASE phq1 WHEN '0' THEN 'Not at all' WHEN '1' THEN 'Several days' WHEN '2' THEN "
        "'More than half the days' ELSE 'Nearly every day' END AS k, count(*) FROM visits WHERE "
        "redcap_event_name = 'month_12_arm_1' GROUP BY k",
        1,
        terms={"max_groups": 1, "max_rows": 1},
    ),
    Question(
        "SELECT COUNT(DISTINCT record_id) AS n FROM visit WHERE sbp >= 140",
        "SELECT count(DISTINCT record_id) FROM visits WHERE pressure >= 140",
    ),
    Question(
        "SELECT visit_complete AS status, COUNT(*) AS n FROM visit GROUP BY status",
        "SELECT visit_complete, count(*) FROM visits GROUP BY ALL",
        1,
        terms={"max_groups": 3, "max_rows": 3},
    ),
    Question(
        "SELECT ae_term_label AS term, COUNT(*) AS n FROM adverse_events GROUP BY term",
        "SELECT CASE ae_term WHEN '1' THEN 'Headache' WHEN '2' THEN 'Nausea' WHEN '3' THEN 'Fall' "
        "ELSE 'Other' END AS k, count(*) FROM events GROUP BY k",
        1,
        terms=_EVENTS,
    ),
    Question(
        "SELECT COUNT(DISTINCT record_id) AS n FROM adverse_events WHERE ae_serious = 1",
        "SELECT count(DISTINCT record_id) FROM events WHERE ae_serious = '1'",
    ),
    Question(
        "SELECT AVG(ae_grade) AS grade FROM adverse_events",
        "SELECT avg(ae_grade::INT) FROM events WHERE ae_grade <> '-99'",
        terms={"max_rows": 8},
    ),
    Question(
        "SELECT c.site AS site, COUNT(DISTINCT a.record_id) AS n FROM adverse_events a JOIN cohort "
        "c ON c.record_id = a.record_id WHERE a.ae_grade = 3 GROUP BY site",
        "SELECT b.site, count(DISTINCT a.record_id) FROM events a JOIN base b ON b.record_id = "
        "a.record_id WHERE a.ae_grade = '3' GROUP BY ALL",
        1,
        terms={"max_groups": 1, "max_rows": 1},
    ),
    Question(
        "SELECT AVG(n) AS falls FROM (SELECT record_id, COUNT(*) AS n FROM adverse_events WHERE "
        "ae_term = 3 GROUP BY record_id)",
        "SELECT avg(n) FROM (SELECT count(*) AS n FROM events WHERE ae_term = '3' GROUP BY "
        "record_id)",
    ),
)
