"""Rows that arrive later are a new version: of the same people, their budget and their bounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.dp.budget import EPSILON_UNITS
from sfumato.engines.shared.prepared_table import segments_of
from sfumato.release.accounts import people_account
from support.small_vaults import card, make_vault, run, write_csv

CARD = """
unit = "who"
people = "town"
version = "1"
max_rows = 3
budget = { epsilon = 60, delta = 0 }
[columns.age]
type = "integer"
lower = 0
upper = 99
[tables.visits]
unit = "who"
max_rows = 3
[tables.visits.columns.cost]
type = "integer"
lower = 0
upper = 9
[tables.places]
public = true
key = "name"
[tables.places.columns.name]
type = "text"
"""
COUNT = "SELECT COUNT(*) AS n FROM clinic"
VISITS = "SELECT COUNT(*) AS n FROM visits"


def people(place: Path, first: int, count: int) -> Path:
    return write_csv(
        place, ("who", "age"), [(f"p{n}", n % 90) for n in range(first, first + count)]
    )


def visits(place: Path, first: int, count: int) -> Path:
    return write_csv(
        place, ("who", "cost"), [(f"p{n}", n % 9) for n in range(first, first + count)]
    )


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return a vault with a data set of 400 people, of whom 300 have a visit."""
    tables = {
        "visits": visits(tmp_path / "v.csv", 0, 300),
        "places": write_csv(tmp_path / "places.csv", ("name",), [("here",), ("there",)]),
    }
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("clinic", people(tmp_path / "a.csv", 0, 400), card(CARD), tables=tables)
        yield opened


def asked(vault: OpenVault, sql: str, op: str | None = None) -> int:
    return int(str(vault["clinic"].ask(sql, epsilon=10, op=op).rows[0][0]))


def tables(vault: OpenVault) -> set[str]:
    return {path.name for path in (vault.house.folder / "tables").glob("*.duckdb")}


def test_a_version_has_all_rows_so_far_and_the_earlier_ones_budget(
    vault: OpenVault, tmp_path: Path
) -> None:
    before = asked(vault, COUNT, op="first")
    added = vault.append(
        "clinic",
        people(tmp_path / "b.csv", 400, 30),
        version="2",
        tables={"visits": visits(tmp_path / "w.csv", 200, 150)},
    )
    assert (added.name, added.version, added.people) == ("clinic", "2", "town")
    assert abs(before - 400) < 10
    assert abs(asked(vault, COUNT) - 430) < 10
    assert abs(asked(vault, VISITS) - 450) < 10
    spent = {a.name: a.spent.epsilon for a in vault.house.ledger.store.accounts()}
    assert spent[people_account("town")] == 3 * 10 * EPSILON_UNITS
    with pytest.raises(Refused) as refused:
        vault["clinic"].ask(COUNT, epsilon=31)
    assert refused.value.code == "budget-exceeded"
    assert vault.house.ledger.verified()["ok"] is True


def test_an_answer_says_which_rows_count(vault: OpenVault, tmp_path: Path) -> None:
    later = "those of earlier versions first, otherwise chosen at random"
    assert later not in str(vault.call("price", {"data_set": "clinic", "sql": COUNT, "epsilon": 1}))
    vault.append("clinic", people(tmp_path / "b.csv", 400, 30), version="2")
    assert later in str(vault["clinic"].ask(COUNT, epsilon=10).receipt)
    vault.forget_person("clinic", "p7", version="3")  # a copy keeps the order of the rows
    assert later in str(vault.call("price", {"data_set": "clinic", "sql": COUNT, "epsilon": 1}))
    shape = card(CARD.replace('version = "1"', 'version = "4"'))
    files = {"visits": tmp_path / "v.csv", "places": tmp_path / "places.csv"}
    vault.add("clinic", tmp_path / "a.csv", shape, tables=files)
    assert later not in str(vault.call("price", {"data_set": "clinic", "sql": COUNT, "epsilon": 1}))


def test_only_the_tables_that_are_named_get_rows(vault: OpenVault, tmp_path: Path) -> None:
    new = visits(tmp_path / "w.csv", 390, 20)
    vault.append("clinic", None, version="2", tables={"visits": new})
    assert abs(asked(vault, COUNT) - 400) < 10
    assert abs(asked(vault, VISITS) - 320) < 10


def test_a_frame_can_be_appended(vault: OpenVault) -> None:
    pandas = pytest.importorskip("pandas")
    vault.append("clinic", pandas.DataFrame({"who": ["x", "y"] * 40, "age": 5}), version="2")
    assert abs(asked(vault, COUNT) - 406) < 10  # three rows of each count


def test_earlier_files_that_a_version_reads_are_not_forgotten(
    vault: OpenVault, tmp_path: Path
) -> None:
    for number in range(2, 5):
        new = people(tmp_path / "b.csv", 400 * number, 5)
        vault.append("clinic", new, version=str(number))
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    needed = {file.name for file in segments_of(Path(listing.table))}
    assert 1 < len(needed) < len(tables(vault)) == 4
    assert vault.owner.data_sets.forget_earlier() == 4 - len(needed)
    assert tables(vault) == needed
    assert abs(asked(vault, COUNT) - 415) < 10


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"name": "other"}, "unknown-data-set"),
        ({"version": "1"}, "data-set-exists"),
        ({"tables": {"places": "p.csv"}}, "not-allowed"),
        ({"tables": {"nothing": "p.csv"}}, "source-unreadable"),
        ({"source": None}, "source-unreadable"),
        ({"source": "gone.csv"}, "source-unreadable"),
        ({"source": "p.csv"}, "source-unreadable"),
    ],
)
def test_what_cannot_be_appended_leaves_everything_as_it_was(
    vault: OpenVault,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, object],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "p.csv", ("name",), [("everywhere",)])
    given = {"name": "clinic", "source": people(tmp_path / "b.csv", 400, 30), "version": "2"}
    given |= words
    before, entries = tables(vault), len(list(vault.house.ledger.store.entries()))
    with pytest.raises(Refused) as refused:
        vault.append(given.pop("name"), given.pop("source"), **given)  # type: ignore[arg-type]
    assert refused.value.code == code
    assert tables(vault) == before
    assert len(list(vault.house.ledger.store.entries())) == entries
    assert abs(asked(vault, COUNT) - 400) < 10


def test_more_rows_than_the_card_allows_are_refused_over_all_versions(tmp_path: Path) -> None:
    small = CARD.partition("[tables")[0].replace("[columns", "[limits]\nrows = 50\n[columns", 1)
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("clinic", people(tmp_path / "a.csv", 0, 40), card(small))
        vault.append("clinic", people(tmp_path / "b.csv", 40, 10), version="2")
        for count in (1, 60):
            with pytest.raises(Refused) as refused:
                vault.append("clinic", people(tmp_path / "c.csv", 50, count), version="3")
            assert refused.value.code == "source-too-large"


def test_people_with_a_budget_of_another_name_are_recognised_in_what_is_appended(
    vault: OpenVault, tmp_path: Path
) -> None:
    other = CARD.partition("[tables")[0].replace('"town"', '"village"')
    vault.add("other", people(tmp_path / "o.csv", 5000, 200), card(other))
    with pytest.raises(Refused) as refused:
        vault.append("clinic", people(tmp_path / "b.csv", 5000, 200), version="2")
    assert refused.value.code == "same-people"


def spread(place: Path, parts: Iterable[int], each: int) -> Path:
    """Write the first people of these parts of a thousand."""
    ids = [part * 1000 + n for part in parts for n in range(each)]
    return write_csv(place, ("who", "age"), [(f"p{n * 7919 % 1_000_003}", n % 90) for n in ids])


@pytest.mark.parametrize("is_first", [True, False])
def test_people_of_whom_each_part_has_a_few_are_recognised_too(
    tmp_path: Path, is_first: bool
) -> None:
    """Of 400 people with a budget, each of five parts of 1000 has 80."""
    plain = CARD.partition("[tables")[0]
    other, own = spread(tmp_path / "o.csv", range(5), 80), tmp_path / "a.csv"
    village = card(plain.replace('"town"', '"village"'))
    with sfumato.open(make_vault(tmp_path)) as vault:
        if is_first:
            vault.add("other", other, village)
        vault.add("clinic", spread(own, [0], 1000), card(plain))
        before = tables(vault)

        def go_on() -> None:
            for part in range(1, 5):
                vault.append("clinic", spread(own, [part], 1000), version=str(part + 1))
            vault.add("other", other, village)

        with pytest.raises(Refused) as refused:
            go_on()
        assert refused.value.code == "same-people"
        assert before < tables(vault)  # a part alone has too few of them


def test_an_encrypted_vault_refuses_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, key = tmp_path / "vault", tmp_path / "key"
    monkeypatch.setenv("SFUMATO_AT_REST_KEY", str(key))
    sfumato.create(where, anchor=tmp_path / "anchor", at_rest_key=str(key))
    with sfumato.open(where) as vault:
        vault.add("clinic", people(tmp_path / "a.csv", 0, 40), card(CARD.partition("[tables")[0]))
        with pytest.raises(Refused, match="sfumato add") as refused:
            vault.append("clinic", people(tmp_path / "b.csv", 40, 10), version="2")
    assert refused.value.code == "not-allowed"


def test_the_command_says_what_a_version_costs(vault: OpenVault, tmp_path: Path) -> None:
    folder = vault.house.folder
    vault.close()
    new = people(tmp_path / "b.csv", 400, 30)
    done = run(folder, "append", "clinic", str(new), "--version", "2")
    assert done.returncode == 0, done.stderr
    assert "their privacy budget stays as it is" in done.stdout
    done = run(folder, "append", "clinic", str(new), "--version", "2", "--json")
    assert done.returncode != 0
    assert "data-set-exists" in done.stdout + done.stderr
    done = run(folder, "append", "clinic", str(new), "--version", "3", "--json")
    shown = json.loads(done.stdout)
    assert (shown["appended"], shown["version"], shown["people"]) == ("clinic", "3", "town")


# --- one person leaves ---------------------------------------------------------------------------


def test_a_persons_rows_are_gone_from_answers_disk_and_ledger(
    vault: OpenVault, tmp_path: Path
) -> None:
    vault.append("clinic", people(tmp_path / "b.csv", 400, 30), version="2")
    new = write_csv(tmp_path / "c.csv", ("who", "age"), [("somebody", 40)] * 3)
    vault.append("clinic", new, version="3")
    other = CARD.partition("[tables")[0]
    vault.add("beside", people(tmp_path / "o.csv", 0, 200), card(other))
    beside = vault.house.catalogue.find("beside")
    made = vault.forget_person("clinic", "somebody", version="4")
    assert (made.card.version, made.others) == ("4", ("beside",))
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    assert beside is not None
    assert tables(vault) == {Path(listing.table).name, Path(beside.table).name}
    assert abs(asked(vault, COUNT) - 430) < 10
    assert abs(asked(vault, VISITS) - 300) < 10
    bodies = [entry.body for entry in vault.house.ledger.store.entries()]
    assert any(e.kind == "person-removed" for e in vault.house.ledger.store.entries())
    assert not any("somebody" in body for body in bodies)
    assert vault.house.ledger.verified()["ok"] is True
    with pytest.raises(Refused) as refused:
        vault.forget_person("clinic", "somebody", version="5")
    assert refused.value.code == "not-allowed"
    assert vault.house.catalogue.find("clinic") == listing
    vault.append("clinic", people(tmp_path / "d.csv", 430, 5), version="5")
    assert abs(asked(vault, COUNT) - 435) < 10


def test_the_command_that_removes_a_person_says_what_stays(vault: OpenVault) -> None:
    folder = vault.house.folder
    vault.close()
    done = run(folder, "forget-person", "clinic", "p7", "--version", "2")
    assert done.returncode == 0, done.stderr
    assert "What this cannot take back: released answers" in done.stdout
    done = run(folder, "forget-person", "clinic", "p7", "--version", "3")
    assert done.returncode != 0
    assert "no rows of this person" in done.stderr
