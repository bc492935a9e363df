"""A synthetic REDCap export: a study with three visits, repeated events, and a data dictionary.

It has identifiers, notes of several lines, checkboxes, days as Germans and Americans write them,
decimal commas, codes for missing values, forms that nobody filled in, and a field without a range.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

EVENTS: Final = ("baseline_arm_1", "month_6_arm_1", "month_12_arm_1")
_TITLES: Final = (
    "Variable / Field Name", "Form Name", "Section Header", "Field Type", "Field Label",
    "Choices, Calculations, OR Slider Labels", "Field Note",
    "Text Validation Type OR Show Slider Number", "Text Validation Min", "Text Validation Max",
    "Identifier?", "Branching Logic (Show field only if...)", "Required Field?",
    "Custom Alignment", "Question Number (surveys only)", "Matrix Group Name", "Matrix Ranking?",
    "Field Annotation",
)  # fmt: skip
_LIKERT: Final = (
    "0, Not at all | 1, Several days | 2, More than half the days | 3, Nearly every day"
)
_RACES: Final = "1, White | 2, Black | 3, Asian | -88, Other"
_TERMS: Final = "1, Headache | 2, Nausea | 3, Fall | 4, Other"
_GRADES: Final = "1, Mild | 2, Moderate | 3, Severe | -99, Not known"
_FIELDS: Final = (  # name, form, type, choices, validation, min, max, identifier
    ("record_id", "demographics", "text", "", "", "", "", ""),
    ("first_name", "demographics", "text", "", "", "", "", "y"),
    ("email", "demographics", "text", "", "email", "", "", "y"),
    ("dob", "demographics", "text", "", "date_dmy", "", "", "y"),
    ("consent_date", "demographics", "text", "", "date_dmy", "2015-01-01", "today", ""),
    ("age", "demographics", "calc", "rounddown(datediff([dob],'today','y'))", "", "", "", ""),
    ("sex", "demographics", "radio", "1, Male | 2, <b>Female</b> | 9, Other", "", "", "", ""),
    ("site", "demographics", "dropdown", "BE, Bern | ZH, Zürich | GE, Genève", "", "", "", ""),
    ("race", "demographics", "checkbox", _RACES, "", "", "", ""),
    ("height", "demographics", "text", "", "number", "100", "250", ""),
    ("history", "demographics", "notes", "", "", "", "", ""),
    ("info", "demographics", "descriptive", "", "", "", "", ""),
    ("visit_date", "visit", "text", "", "date_mdy", "", "", ""),
    ("sbp", "visit", "text", "", "integer", "60", "260", ""),
    ("weight", "visit", "text", "", "number_1dp_comma_decimal", "30", "250", ""),
    ("smoker", "visit", "yesno", "", "", "", "", ""),
    ("pain", "visit", "slider", "none | some | worst", "number", "", "", ""),
    ("phq1", "visit", "radio", _LIKERT, "", "", "", ""),
    ("phq2", "visit", "radio", _LIKERT, "", "", "", ""),
    ("crp", "visit", "text", "", "number_1dp", "", "", ""),
    ("seen_at", "visit", "text", "", "time", "", "", ""),
    ("ae_term", "adverse_events", "dropdown", _TERMS, "", "", "", ""),
    ("ae_other", "adverse_events", "text", "", "", "", "", ""),
    ("ae_date", "adverse_events", "text", "", "date_ymd", "2015-01-01", "2023-12-31", ""),
    ("ae_grade", "adverse_events", "radio", _GRADES, "", "", "", ""),
    ("ae_serious", "adverse_events", "truefalse", "", "", "", "", ""),
    ("followup_alive", "followup", "yesno", "", "", "", "", ""),
    ("followup_date", "followup", "text", "", "datetime_seconds_dmy", "", "", ""),
)  # fmt: skip
_BOXES: Final = ("race___1", "race___2", "race___3", "race____88")
_FORMS: Final = ("demographics", "visit", "adverse_events", "followup")


def write_redcap(folder: Path, people: int, seed: int = 2) -> Path:
    """Write the export of so many records into a folder, and return it."""
    folder.mkdir(parents=True)
    _dictionary(folder / "Study_DataDictionary_2024-01-15.csv")
    names = _names()
    made = _Made(np.random.default_rng(seed))
    with (folder / "Study_DATA_2024-01-15_1012.csv").open(
        "w", encoding="utf-8-sig", newline=""
    ) as f:
        writer = csv.DictWriter(f, names, restval="")
        writer.writeheader()
        for n in range(people):
            writer.writerows(made.rows(f"R-{n:06d}"))
    return folder


def raw_redcap(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return the raw records as one table `raw` of texts, and views of each form's rows."""
    raw = duckdb.connect()
    path = next(folder.glob("*_DATA_*.csv"))
    raw.execute(
        f"CREATE TABLE raw AS SELECT * FROM read_csv('{path}', all_varchar = true, nullstr = '')"
    )
    raw.execute("CREATE VIEW base AS SELECT * FROM raw WHERE consent_date IS NOT NULL")
    raw.execute(
        "CREATE VIEW visits AS SELECT *, strptime(visit_date, '%Y-%m-%d')::DATE AS day, "
        "CASE WHEN sbp SIMILAR TO '[0-9]+' THEN sbp::INT END AS pressure, "
        "replace(weight, ',', '.')::DOUBLE AS kg FROM raw "
        "WHERE redcap_repeat_instrument IS NULL AND visit_date IS NOT NULL"
    )
    raw.execute(
        "CREATE VIEW events AS SELECT * FROM raw WHERE redcap_repeat_instrument = 'adverse_events'"
    )
    return raw


class _Made:
    """Records while they are made."""

    def __init__(self, dice: np.random.Generator) -> None:
        self.dice = dice

    def rows(self, record: str) -> list[dict[str, object]]:
        dice = self.dice
        sex = int(dice.choice((1, 2, 9), p=(0.47, 0.5, 0.03)))
        born = date(1940, 1, 1) + timedelta(days=int(dice.integers(0, 24_000)))
        start = date(2016, 1, 1) + timedelta(days=int(dice.integers(0, 2000)))
        site = str(dice.choice(("BE", "ZH", "GE"), p=(0.5, 0.3, 0.2)))
        about = {"record_id": record, "redcap_data_access_group": site.casefold()}
        blank = dict.fromkeys((*_BOXES, *(f"{form}_complete" for form in _FORMS)), 0)
        first: dict[str, object] = {
            **about, **blank, "redcap_event_name": EVENTS[0],
            "redcap_survey_identifier": f"{record}@mail.example", "first_name": "Anna",
            "email": f"{record}@mail.example", "dob": born, "consent_date": start,
            "age": (start - born).days // 365, "sex": sex, "site": site,
            "height": "UNK" if dice.random() < 0.02 else int(dice.normal(170, 9)),
            "history": 'Lives with "Bob",\nat Main Street 5; fell twice.\r\nNo more.',
            "demographics_complete": 2,
        }  # fmt: skip
        first[_BOXES[int(dice.choice(4, p=(0.6, 0.2, 0.15, 0.05)))]] = 1
        if dice.random() < 0.08:
            first[_BOXES[0]] = first[_BOXES[1]] = 1
        rows = [first]
        for place, event in enumerate(EVENTS):
            if place and dice.random() < 0.2:  # a visit that was missed: REDCap writes a gray form
                if dice.random() < 0.5:
                    rows.append({**about, **blank, "redcap_event_name": event})
                continue
            row = first if place == 0 else {**about, **blank, "redcap_event_name": event}
            row |= self.visit(start + timedelta(days=180 * place), place, sex)
            if place:
                rows.append(row)
        for instance in range(int(dice.poisson(0.7))):
            rows.append({**about, **self.event(start, instance + 1)})
        return rows

    def visit(self, day: date, place: int, sex: int) -> dict[str, object]:
        dice = self.dice
        pressure = int(dice.normal(134 - 4 * place + 3 * (sex == 1), 12))
        likert = [int(one) for one in dice.choice(4, 2, p=(0.5, 0.3, 0.15, 0.05))]
        return {
            "visit_date": day,
            "sbp": "NASK" if dice.random() < 0.02 else pressure,
            "weight": f"{dice.normal(76, 12):.1f}".replace(".", ","),
            "smoker": int(dice.random() < 0.25 - 0.05 * place),
            "pain": int(dice.integers(0, 101)),
            "phq1": likert[0],
            "phq2": likert[1],
            "crp": f"{dice.gamma(2, 2):.1f}",
            "seen_at": "08:30",
            "visit_complete": int(dice.choice((1, 2), p=(0.1, 0.9))),
        }

    def event(self, start: date, instance: int) -> dict[str, object]:
        dice = self.dice
        day = start + timedelta(days=int(dice.integers(0, 365)))
        return {
            "redcap_event_name": EVENTS[0],
            "redcap_repeat_instrument": "adverse_events",
            "redcap_repeat_instance": instance,
            "ae_term": int(dice.choice((1, 2, 3, 4), p=(0.5, 0.25, 0.15, 0.1))),
            "ae_other": "slipped on the stairs, told by Mr. Miller",
            "ae_date": min(day, date(2023, 12, 31)),
            "ae_grade": int(dice.choice((1, 2, 3, -99), p=(0.55, 0.3, 0.1, 0.05))),
            "ae_serious": int(dice.random() < 0.1),
            "adverse_events_complete": 2,
        }


def _names() -> list[str]:
    about = [
        "redcap_event_name", "redcap_repeat_instrument", "redcap_repeat_instance",
        "redcap_data_access_group", "redcap_survey_identifier",
    ]  # fmt: skip
    names = ["record_id", *about]
    for form in _FORMS:
        for name, own, kind, *_ in _FIELDS[1:]:
            if own == form and kind != "descriptive":
                names += list(_BOXES) if kind == "checkbox" else [name]
        names.append(f"{form}_complete")
    return names


def _dictionary(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_TITLES)
        for name, form, kind, choices, validation, low, high, secret in _FIELDS:
            line: Sequence[str] = (
                name, form, "", kind, f"<p>{name}, as asked</p>", choices, "", validation, low,
                high, secret, "", "", "", "", "", "", "",
            )  # fmt: skip
            writer.writerow(line)
