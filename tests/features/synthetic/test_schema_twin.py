"""A schema twin is as the card says, comes from nothing else, and passes the asker's filters."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused, case, col
from sfumato.app.vault import OpenVault
from sfumato.features.synthetic.client import Twin
from sfumato.features.synthetic.schema import SchemaTwinRequest
from sfumato.features.synthetic.schema_twin import schema_tables
from sfumato.features.synthetic.service import Twins
from sfumato.vault.card.data_card import read_card
from sfumato.vault.engine_port import Engine
from sfumato.vault.users import Caller
from support.small_vaults import (
    PATIENTS_CARD,
    card,
    make_vault,
    open_with,
    patients_vault,
    run,
    write_csv,
)

CARD = """
unit = "who"
people = "{people}"
budget = {{ epsilon = 1000 }}
nulls = ["n/a", ""]
size = 400
max_rows = 3
limits = {{ rows = 10000, rows_per_person = 50 }}
[columns.town]
type = "text"
[columns.cost]
type = "number"
lower = 0
upper = 50
step = 0.25
missing = 0.2
[columns.day]
type = "date"
lower = 2026-01-01
upper = 2026-12-31
[columns.ward]
type = "text"
keys = ["north", "south", "east"]
[columns.urgent]
type = "boolean"
[tables.people]
limits = {{ rows = 10000, rows_per_person = 1 }}
columns = {{ sex = {{ type = "text", keys = ["f", "m"] }}, age = {{ type = "integer", lower = 0, upper = 99 }} }}
[tables.towns]
public = true
key = "town"
columns = {{ town = {{ type = "text" }}, coast = {{ type = "boolean" }}, homes = {{ type = "integer", lower = 1, upper = 9 }} }}
"""  # noqa: E501  # a card in lines
FILTERS = (
    "SELECT COUNT(*) AS n FROM visits WHERE cost > 49.5 AND ward = 'east' AND urgent",
    "SELECT ward, COUNT(*) AS n FROM visits WHERE cost IS NULL GROUP BY ward",
    "SELECT ward, urgent, COUNT(*) AS n FROM visits WHERE day = '2026-02-28' GROUP BY ward, urgent",
    "SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM visits WHERE cost < 1 GROUP BY m",
    "SELECT FLOOR(cost / 10) * 10 AS bin, COUNT(*) AS n FROM visits WHERE NOT urgent GROUP BY bin",
    "SELECT COUNT(*) AS n FROM visits WHERE town LIKE 'Rio%' AND cost BETWEEN 7 AND 7.5",
    "SELECT COUNT(*) AS n FROM visits WHERE NOT (cost < 49 OR ward IN ('north', 'south'))",
    "SELECT COUNT(*) AS n FROM visits WHERE extract(month FROM day) = 3 AND cost * 2 > 99",
    "SELECT sex, COUNT(*) AS n FROM visits v JOIN people p ON v.who = p.who WHERE age > 97"
    " AND cost = 3.25 GROUP BY sex",
    "SELECT coast, COUNT(*) AS n FROM visits v JOIN towns t ON v.town = t.town WHERE homes = 9"
    " GROUP BY coast",
    "SELECT COUNT(*) AS n FROM (SELECT who, SUM(cost) AS spent, COUNT(*) AS times FROM visits"
    " WHERE urgent GROUP BY who) WHERE spent > 60 AND times >= 2",
)  # fmt: skip


def visits(folder: Path) -> OpenVault:
    rows = [(f"p{i}", "A", 1, "2026-01-01", "north", "yes") for i in range(9)]
    header = ("who", "town", "cost", "day", "ward", "urgent")
    source = write_csv(folder / "v.csv", header, rows)
    tables = {
        "people": write_csv(folder / "p.csv", ("who", "sex", "age"), [("p1", "f", 3)]),
        "towns": write_csv(folder / "t.csv", ("town", "coast", "homes"), [("A", "yes", 3)]),
    }
    return open_with(folder, "visits", source, CARD.format(people="real"), tables=tables)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with visits(tmp_path_factory.mktemp("visits")) as opened:
        yield opened


def test_the_twin_has_the_cards_tables_names_types_bounds_steps_and_keys(vault: OpenVault) -> None:
    twin = vault["visits"].twin(seed="one")
    rows = twin.rows("visits")
    assert list(rows[0]) == ["who", "town", "cost", "day", "ward", "urgent"]
    costs = [Fraction(row["cost"]) for row in rows if row["cost"] != "n/a"]
    assert min(costs) < 3
    assert max(costs) > 47
    assert all(0 <= cost <= 50 and (cost * 4).denominator == 1 for cost in costs)
    days = [date.fromisoformat(row["day"]) for row in rows if row["day"] != "n/a"]
    assert date(2026, 1, 1) <= min(days) < max(days) <= date(2026, 12, 31)
    assert {row["ward"] for row in rows} == {"north", "south", "east", "n/a"}
    assert {row["urgent"] for row in rows} == {"true", "false", "n/a"}


def test_as_many_values_are_missing_as_the_card_declares_and_few_others(vault: OpenVault) -> None:
    rows = vault["visits"].twin(rows=4000, seed="one").rows("visits")
    assert sum(row["cost"] == "n/a" for row in rows) / len(rows) == pytest.approx(0.2, abs=0.03)
    for name in ("town", "day", "ward", "urgent"):
        gone = sum(row[name] == "n/a" for row in rows) / len(rows)
        assert gone == pytest.approx(0.05, abs=0.02)


def test_people_and_public_keys_meet_across_tables(vault: OpenVault) -> None:
    twin = vault["visits"].twin(seed="one")
    mine, people, towns = (twin.rows(name) for name in ("visits", "people", "towns"))
    each = Counter(row["who"] for row in mine)
    assert set(each) == {row["who"] for row in people}
    assert set(each.values()) == {1, 2, 3}
    assert max(Counter(row["who"] for row in people).values()) == 1
    assert max(Counter(row["town"] for row in towns).values()) == 1
    assert {row["town"] for row in mine} <= {"n/a", *(row["town"] for row in towns)}
    assert "n/a" not in {row["town"] for row in towns}


def test_a_seed_decides_every_byte_and_another_seed_another_twin(vault: OpenVault) -> None:
    one, again, other = (vault["visits"].twin(seed=seed) for seed in ("a", "a", "b"))
    assert one.files == again.files
    assert one.rows() != other.rows()
    drawn = vault["visits"].twin()
    assert vault["visits"].twin(seed=str(drawn.stamp["seed"])).files == drawn.files


class NoEngine:
    """An engine that nobody may touch."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the engine's {name} was used")


def test_no_engine_is_opened_for_a_schema_twin(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = NoEngine()
    monkeypatch.setattr(type(vault.house.engine), "measure", NoEngine().__getattr__)
    object.__setattr__(vault.house.desk.queries.door, "engine", engine)
    assert vault["visits"].twin(FILTERS[0]).rows()
    assert set(Twins.__dataclass_fields__) & {"engine", "table"} == set()


def test_the_twin_of_a_card_is_the_same_whatever_rows_lie_behind_it(tmp_path: Path) -> None:
    def twin(folder: Path, ages: range) -> Twin:
        rows = [(f"p{n}", "x", age, "10001", age) for n, age in enumerate(ages)]
        header = ("patient_id", "name", "age", "zip", "salary")
        folder.mkdir()
        source = write_csv(folder / "p.csv", header, rows)
        with open_with(folder, "patients", source, PATIENTS_CARD) as opened:
            return opened["patients"].twin(seed="s")

    assert twin(tmp_path / "a", range(9)).files == twin(tmp_path / "b", range(50, 90)).files


@pytest.mark.parametrize("place", range(len(FILTERS)))
def test_every_group_of_the_question_has_rows_in_its_twin(
    vault: OpenVault, tmp_path: Path, place: int
) -> None:
    """The twin is added as a data set of its own, and the engine itself is asked."""
    sql = FILTERS[place]
    folder = vault["visits"].twin(sql, rows=1, seed="s").save(tmp_path / "t")
    files = {name: folder / f"{name}.schema-twin.csv" for name in ("visits", "people", "towns")}
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("visits", files.pop("visits"), card(CARD.format(people="t")), tables=files)
        answer = opened["visits"].ask(sql, epsilon=200)
    assert len(answer) > 0
    counts: Any = [row[answer.columns.index("n")] for row in answer.rows]
    assert min(counts) >= 1


def test_a_builders_question_has_its_twin_too(vault: OpenVault) -> None:
    data = vault["visits"]
    asked = (
        data.where(col("cost") > 49).group_by(late=case((col("urgent"), 1), otherwise=0)).count()
    )
    twin = data.twin(asked, rows=1, seed="s")
    assert twin.stamp["for"] == json.loads(json.dumps(twin.stamp["for"]))
    found = Counter(row["urgent"] for row in twin.rows("visits") if row["cost"] > "49")
    assert min(found["true"], found["false"]) >= 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits WHERE ward = 'west'",
        "SELECT COUNT(*) FROM visits WHERE cost > 50",
        "SELECT COUNT(*) FROM visits WHERE cost > 5 AND cost < 5",
        "SELECT COUNT(*) FROM visits WHERE day < '2026-01-01'",
    ],
)
def test_what_the_card_does_not_allow_is_refused(vault: OpenVault, sql: str) -> None:
    with pytest.raises(Refused) as refused:
        vault["visits"].twin(sql)
    assert refused.value.code == "twin-not-possible"


def test_hidden_columns_and_real_names_are_not_in_the_twin(tmp_path: Path) -> None:
    with sfumato.open(patients_vault(tmp_path)) as opened:
        twin = opened["patients"].twin()
    assert list(twin.rows()[0]) == ["patient_id", "age", "zip", "salary"]
    assert all(row["patient_id"].startswith("twin-") for row in twin.rows())
    assert "canary" not in str(twin.files)


def test_what_it_is_stands_in_its_name_and_in_its_files(vault: OpenVault, tmp_path: Path) -> None:
    twin = vault["visits"].twin(seed="s", rows=10)
    place = twin.save(tmp_path / "mine.zip")
    assert place.name == "mine.schema-twin.zip"
    with zipfile.ZipFile(place) as archive:
        names = archive.namelist()
        stamp = json.loads(archive.read("visits.schema-twin/TWIN.json"))
    assert all(name.startswith("visits.schema-twin/") for name in names)
    assert (stamp["twin"], stamp["guarantee"], stamp["epsilon"]) == (
        "schema-twin",
        "schema-only",
        0,
    )
    assert stamp["seed"] == "s"
    before = place.read_bytes()
    assert twin.save(tmp_path / "mine.zip").read_bytes() == before


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv"])
def test_a_twin_of_several_files_is_not_written_under_a_tables_name(
    name: str, vault: OpenVault, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="several files"):
        vault["visits"].twin(rows=10).save(tmp_path / name)
    assert not list(tmp_path.glob("mine*"))


def test_a_twin_costs_nothing_and_the_ledger_says_nothing_of_it(vault: OpenVault) -> None:
    before = vault.house.ledger.store.head()
    vault["visits"].twin(FILTERS[1])
    assert vault.house.ledger.store.head() == before


def test_who_may_not_ask_gets_no_twin(vault: OpenVault) -> None:
    with pytest.raises(Refused) as refused:
        vault.house.desk.twins.schema(
            Caller("eve", frozenset({"read"})), SchemaTwinRequest(data_set="visits")
        )
    assert refused.value.code == "unknown-data-set"


def test_a_twin_that_is_too_large_is_refused(vault: OpenVault) -> None:
    with pytest.raises(Refused) as refused:
        vault["visits"].twin(rows=10**6)
    assert refused.value.code == "too-large"


BIDS = """
unit = "participant_id"
budget = { epsilon = 1 }
[bids]
files = ["anat/{sub}_T1w.nii.gz", "func/{sub}_bold.json", "func/{sub}_task-rest_events.tsv"]
[columns.age]
type = "integer"
lower = 18
upper = 90
[columns.Height]
type = "number"
lower = 100
upper = 220
missing = 0.5
[columns.sex]
type = "text"
keys = ["m", "f"]
"""


def test_a_card_that_describes_a_bids_folder_gives_one(tmp_path: Path) -> None:
    rows = [("sub-01", 30, 170, "m")]
    source = write_csv(tmp_path / "p.csv", ("participant_id", "age", "Height", "sex"), rows)
    with open_with(tmp_path, "study", source, BIDS) as opened:
        folder = opened["study"].twin(rows=20, seed="s").save(tmp_path / "look")
        people = opened["study"].twin(rows=20, seed="s").rows("participants")
    assert folder.name == "look.schema-twin"
    assert len(people) == 20
    assert {"n/a"} < {row["Height"] for row in people}
    for row in people:
        name = row["participant_id"]
        assert (folder / name / "anat" / f"{name}_T1w.nii.gz").read_bytes() == b""
        assert json.loads((folder / name / "anat" / f"{name}_T1w.json").read_text())
        assert (folder / name / "func" / f"{name}_task-rest_events.tsv").exists()
    meaning = json.loads((folder / "participants.json").read_text())
    assert meaning["sex"]["Levels"] == {"m": "declared", "f": "declared"}
    description = json.loads((folder / "dataset_description.json").read_text())
    assert {"Name", "BIDSVersion"} <= set(description)
    assert "schema-twin" in description["Name"]


PHENOTYPE = """
[tables.scores]
columns = { iq = { type = "integer", lower = 40, upper = 160 }, hand = { type = "text", keys = ["l", "r"] } }
"""  # noqa: E501  # a card in lines


@pytest.mark.parametrize("kind", ["schema", "dp"])
def test_other_tables_lie_under_phenotype_with_what_their_columns_mean(
    tmp_path: Path, kind: str
) -> None:
    rows = [(f"sub-{n:02d}", 30, 170, "m") for n in range(30)]
    source = write_csv(tmp_path / "p.csv", ("participant_id", "age", "Height", "sex"), rows)
    scores = [(f"sub-{n:02d}", 100, "l") for n in range(30)]
    tables = {"scores": write_csv(tmp_path / "s.csv", ("participant_id", "iq", "hand"), scores)}
    with open_with(tmp_path, "study", source, BIDS + PHENOTYPE, tables=tables) as opened:
        study = opened["study"]
        made = study.twin(rows=20, seed="s") if kind == "schema" else study.dp_twin(
            epsilon=1, delta=0, rows=20, seed="s"
        )  # fmt: skip
        folder = made.save(tmp_path / "look")
    people = {row["participant_id"] for row in made.rows("participants")}
    found = made.rows("scores")
    assert list(found[0]) == ["participant_id", "iq", "hand"]
    assert people & {row["participant_id"] for row in found}
    assert (folder / "phenotype" / "scores.tsv").is_file()
    meaning = json.loads((folder / "phenotype" / "scores.json").read_text())
    assert (meaning["iq"]["Minimum"], meaning["iq"]["Maximum"]) == (40, 160)
    assert meaning["hand"]["Levels"] == {"l": "declared", "r": "declared"}
    description = json.loads((folder / "dataset_description.json").read_text())
    assert f"{kind}-twin" in description["Name"]


@pytest.mark.parametrize(
    ("bids", "unit"),
    [
        ({"files": ["../{sub}_x"]}, "participant_id"),
        ({"files": ["/etc/{sub}_x"]}, "participant_id"),
        ({"files": ["anat/T1w.nii"]}, "participant_id"),
        ({"files": []}, "who"),
        ({"folders": []}, "participant_id"),
    ],
)
def test_a_card_with_another_folder_is_refused(bids: dict[str, object], unit: str) -> None:
    with pytest.raises(Refused) as refused:
        read_card("x", {"unit": unit, "budget": {"epsilon": 1}, "bids": bids})
    assert refused.value.code == "bad-card"


def test_the_command_line_writes_a_twin_and_says_what_it_is(tmp_path: Path) -> None:
    vault = patients_vault(tmp_path)
    asked = "SELECT COUNT(*) FROM patients WHERE age = 7"
    done = run(vault, "twin", "patients", "--for", asked, "--seed", "s", "-o", str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    assert "schema-only" in done.stdout
    text = (tmp_path / "t.schema-twin" / "patients.schema-twin.csv").read_text()
    assert any(line.split(",")[1] == "7" for line in text.splitlines())


def test_the_owner_is_told_what_a_twin_has_kept_and_the_twin_is_the_same(tmp_path: Path) -> None:
    vault = patients_vault(tmp_path)
    twin = ("twin", "patients", "--rows", "50", "--seed", "s", "--json")
    with sfumato.open(vault) as opened:
        made = opened["patients"].twin(rows=50, seed="s")
    (name,) = (name for name in made.files if name.endswith(".csv"))
    copy = tmp_path / "real.csv"  # as if the twin's rows were the real ones, under other names
    copy.write_text(made.files[name].replace("twin-", "real-"), "utf-8")
    plain = run(vault, *twin, "-o", str(tmp_path / "a"))
    told = run(vault, *twin, "-o", str(tmp_path / "b"), "--original", str(copy))
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)["leaks"]
    assert found["whole"] == found["rows"] == 50
    assert "leaks" not in json.loads(plain.stdout)
    files = [sorted((tmp_path / f"{one}.schema-twin").rglob("*")) for one in "ab"]
    assert [f.read_bytes() for f in files[0] if f.is_file()] == [
        f.read_bytes() for f in files[1] if f.is_file()
    ]


def test_a_thousand_values_of_a_key_are_each_as_likely() -> None:
    made = read_card("x", {"budget": {"epsilon": 1}, "columns": {"c": {"type": "boolean"}}})
    (table,) = schema_tables(made, 4000, "s")
    share = sum(row[0] is True for row in table.rows) / 4000
    assert share == pytest.approx(0.5, abs=0.05)


TWIN: dict[str, Any] = {
    "name": "visits.schema-twin",
    "stamp": {"twin": "schema-twin", "version": "1", "guarantee": "schema-only", "says": "made up"},
}
LEADS_OUT = ("../mark", "a/../../mark", "{out}/mark", "a//mark", "./mark", "..\\mark", "C:mark", "")


@pytest.mark.parametrize("suffix", ["", ".zip"])
@pytest.mark.parametrize("path", LEADS_OUT)
def test_whoever_serves_a_vault_writes_nothing_beside_a_twin(
    path: str, suffix: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    plain = {"sub-1/anat/sub-1_T1w.json": "{}", ".bidsignore": "TWIN.json\n", "a b..csv": "a\n"}
    made = Twin({**TWIN, "files": plain})
    assert made.save(tmp_path / f"good.schema-twin{suffix}").exists()
    bad = Twin({**TWIN, "files": {**plain, path.format(out=out): "stolen"}})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refused) as refused:
        bad.save(tmp_path / f"bad.schema-twin{suffix}")
    assert refused.value.code == "bad-request"
    assert sorted(tmp_path.rglob("*")) == before


NAMES_OUT = ({"name": name} for name in ("../v", "..", "..\\v", "C:v"))


@pytest.mark.parametrize("wrong", [*NAMES_OUT, {"stamp": {**TWIN["stamp"], "twin": "../t"}}])
def test_nor_does_a_twins_own_name_lead_out(wrong: dict[str, Any], tmp_path: Path) -> None:
    for place in ("good", "good.zip"):
        with pytest.raises(Refused):
            Twin({**TWIN, "files": {"v.csv": "a\n"}, **wrong}).save(tmp_path / place)
    assert list(tmp_path.iterdir()) == []
