"""Whoever has every file and every log line cannot say whose report is whose.

The worst case: everybody answers at once after their token was signed, one after the other, and
the order of the signatures is known (the ledger has it). What is tried is every order that the
stored reports could betray: that of the rows, that of the bytes in the files, that of the export.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import sfumato
from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.ports import Ballot, StoredSurvey
from sfumato.features.surveys.randomised_report import token_digest
from sfumato.features.surveys.respondent_client import Prepared
from sfumato.features.surveys.store import STEP, SqlSurveys
from sfumato.features.surveys.tally import nothing
from sfumato.server.ipc.call_metrics import UNWRITTEN, CallMetrics
from sfumato.storage.sqlite_ledger import open_forgetful_records
from sfumato.vault.ledger_entries import Entry
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, design, device

PEOPLE = 130  # three growths of the store, and a step of what is shown


@dataclass(frozen=True)
class Left:
    """What a vault leaves behind when everybody has answered."""

    ready: list[Prepared]  # in the order in which their tokens were signed
    files: dict[Path, bytes]  # while the survey was open
    entries: list[Entry]
    export: list[str]  # the marks, as anybody may read them
    folder: Path


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    folder = tmp_path_factory.mktemp("left")
    with sfumato.open(make_vault(folder)) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        codes = house.call("invite-to-survey", {"survey": survey, "count": PEOPLE})["codes"]
        assert isinstance(codes, list)
        ready = [device().answer(house, survey, code, TRUTHS) for code in codes]
        files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        house.call("close-survey", {"survey": survey})
        found = house.call("survey-reports", {"survey": survey})["reports"]
        assert isinstance(found, list)
        entries = list(house.house.ledger.store.entries())
    return Left(ready, files, entries, [one["mark"] for one in found], folder)


def correlation(places: Sequence[float]) -> float:
    """Return the rank correlation of where a report lies with when its token was signed."""
    ranks = np.argsort(np.argsort(np.array(places)))
    return float(np.corrcoef(ranks, np.arange(len(places)))[0, 1])


def hits(places: Sequence[float]) -> int:
    """Return how many reports the order of their places pairs with the right signature."""
    return int((np.argsort(np.argsort(np.array(places))) == np.arange(len(places))).sum())


def is_chance(places: Sequence[float]) -> bool:
    """Say whether the order tells nothing: once in ten thousand it says no for a random one."""
    return abs(correlation(places)) < 4 / (len(places) ** 0.5) and hits(places) < 9


def test_an_order_that_is_kept_is_found() -> None:
    assert not is_chance(range(PEOPLE))
    assert not is_chance([n // 8 for n in range(PEOPLE)])


def stored(left: Left, table: str) -> str:
    """Return the bodies of a table's rows, as they were while the survey was open."""
    raw = sqlite3.connect(":memory:")
    raw.deserialize(left.files[left.folder / "vault" / "surveys.sqlite"])
    text = "\n".join(body for (body,) in raw.execute(f"SELECT body FROM {table}"))
    raw.close()
    return text


def test_no_file_of_a_vault_has_the_order_of_the_reports(left: Left) -> None:
    """Look at the shown reports and the others apart: anybody may read which ones are shown."""
    content = left.files[left.folder / "vault" / "surveys.sqlite"]
    digests = [token_digest(one.token) for one in left.ready]
    shown = stored(left, "survey_shown")
    for is_shown in (True, False):
        mine = [digest.encode() for digest in digests if (digest in shown) is is_shown]
        assert len(mine) >= STEP
        assert is_chance([content.find(digest) for digest in mine])
        assert is_chance([content.rfind(digest) for digest in mine])


def test_a_report_is_in_its_rows_and_nowhere_else(left: Left) -> None:
    """A freed page that was not wiped would tell an earlier state, and so who came when."""
    rows = stored(left, "survey_parts") + stored(left, "survey_shown")
    for one in left.ready:
        digest = token_digest(one.token)
        for path, content in left.files.items():
            wanted = rows.count(digest) if path.name == "surveys.sqlite" else 0
            assert content.count(digest.encode()) == wanted, path


def test_rows_and_export_have_no_order_of_time(left: Left) -> None:
    assert is_chance([left.export.index(one.mark) for one in left.ready])
    raw = sqlite3.connect(left.folder / "vault" / "surveys.sqlite")
    rows = raw.execute("SELECT body FROM survey_parts ORDER BY rowid").fetchall()
    raw.close()
    text = "\n".join(body for (body,) in rows)
    assert is_chance([text.find(token_digest(one.token)) for one in left.ready])
    for (body,) in rows:
        assert body.split("\n") == sorted(body.split("\n"))


def test_the_same_reports_in_another_order_leave_the_same_rows(tmp_path: Path) -> None:
    """The store is a function of the set: history is not in it, so it cannot be read out of it."""
    survey = read_survey(design())
    reports = [(DICE.draw(32).hex(), f"0.0.{n % 3} 1.0.{n % 4}") for n in range(300)]
    kept = []
    for name, order in (("one", reports), ("two", list(reversed(reports)))):
        records = open_forgetful_records(tmp_path / name)
        store = SqlSurveys(records, DICE)
        store.add(StoredSurvey("s", "owner", "text", "open"), 10, nothing(survey))
        for token, said in order:
            assert store.take(Ballot("s", token, said)) == "counted"
        parts = records.rows("SELECT name, body FROM survey_parts ORDER BY name")
        kept.append((parts, records.rows("SELECT depth, tally FROM surveys")))
        store.shut()
    assert kept[0] == kept[1]
    assert len(kept[0][0]) == 8  # 300 reports, 64 of a part at most


def test_no_line_is_logged_of_a_ballot() -> None:
    lines: list[str] = []
    tally = CallMetrics(lines.append)
    for verb in ("survey", "survey-token", "survey-report", "survey-sheet", "survey-estimates"):
        tally.note(verb, "", None)
    assert [json.loads(line)["verb"] for line in lines] == ["survey-estimates"]
    assert "survey-report" in UNWRITTEN


def test_nothing_finer_than_a_day_is_kept(left: Left) -> None:
    charges = [entry for entry in left.entries if entry.kind == "charged"]
    assert len(charges) == PEOPLE
    assert {charge.at[10:] for charge in charges} == {"T00:00:00+00:00"}
    raw = sqlite3.connect(left.folder / "vault" / "surveys.sqlite")
    tables = ("surveys", "survey_invitations", "survey_parts", "survey_shown")
    rows = [str(row) for table in tables for row in raw.execute(f"SELECT * FROM {table}")]
    raw.close()
    assert not [row for row in rows if re.search(r"\d\d:\d\d", row.replace('":', ""))]


def test_nothing_of_a_token_is_where_its_signature_was_asked_for(left: Left) -> None:
    text = "".join(entry.body for entry in left.entries)
    for one in left.ready:
        for word in (token_digest(one.token), one.token.hex(), one.signature.hex(), one.mark):
            assert word not in text
    assert '"said"' not in text
    assert left.ready[0].said not in text
