"""What is asked of the tables of a BIDS folder, and the truth on its raw files."""

from __future__ import annotations

from typing import Final

from support.exports.clinical_question import Question

QUESTIONS: Final = (
    Question("SELECT COUNT(*) AS n FROM cohort", "SELECT count(*) FROM people"),
    Question(
        "SELECT sex, COUNT(*) AS n FROM cohort GROUP BY sex",
        "SELECT sex, count(*) FROM people GROUP BY sex",
        1,
    ),
    Question(
        'SELECT "group" AS g, COUNT(*) AS n FROM cohort GROUP BY g',
        'SELECT "group" AS g, count(*) FROM people GROUP BY g',
        1,
    ),
    Question(
        'SELECT "group" AS g, AVG(age) AS mean FROM cohort GROUP BY g',
        'SELECT "group" AS g, avg(age::DOUBLE) FROM people GROUP BY g',
        1,
    ),
    Question(
        "SELECT c.sex AS sex, COUNT(*) AS n FROM phq q JOIN cohort c ON c.participant_id = "
        "q.participant_id WHERE q.mood = 'low' GROUP BY sex",
        "SELECT p.sex, count(*) FROM phq q JOIN people p USING (participant_id) WHERE q.mood = "
        "'low' GROUP BY ALL",
        1,
    ),
)
