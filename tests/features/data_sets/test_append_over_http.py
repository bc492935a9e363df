"""Rows that arrive later, and one person who leaves, at a service: over HTTP and by the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.client.remote_vault import RemoteVault
from sfumato.features.data_sets.row_source import Source
from support.served_vault import Service, served
from support.small_vaults import card, make_vault, run, write_csv

CARD = """
unit = "who"
people = "PEOPLE"
budget = { epsilon = 90, delta = 0 }
[columns.age]
type = "integer"
lower = 0
upper = 99
[tables.visits]
unit = "who"
[tables.visits.columns.cost]
type = "integer"
lower = 0
upper = 9
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(make_vault(tmp_path_factory.mktemp("appends"))) as running:
        running.owner()
        for name, role in (("ada", "researcher"), ("olga", "owner")):
            running.user(name, role)
        yield running


def people(place: Path, prefix: str, count: int, column: str = "age") -> Path:
    return write_csv(place, ("who", column), [(f"{prefix}{n}", 5) for n in range(count)])


def added(vault: RemoteVault, place: Path, name: str) -> None:
    """Add a data set with 300 people, of whom 200 have a visit."""
    tables = {"visits": people(place / "v.csv", name, 200, "cost")}
    shape = card(CARD.replace("PEOPLE", name))
    vault.add(name, people(place / "a.csv", name, 300), shape, tables=tables)


def count(vault: RemoteVault, name: str, table: str) -> float:
    answer = vault[name].ask(f"SELECT COUNT(*) AS n FROM {table}", epsilon=10)
    return float(str(answer.rows[0][0]))


def test_rows_are_appended_and_the_budget_stays(service: Service, tmp_path: Path) -> None:
    with sfumato.connect(service.url, token=service.owner()) as vault:
        added(vault, tmp_path, "clinic")
        assert abs(count(vault, "clinic", "clinic") - 300) < 10
        new = people(tmp_path / "b.csv", "new", 50)
        made = vault.append("clinic", new, version="2")
        assert (made.name, made.version, made.people) == ("clinic", "2", "clinic")
        assert made.report is not None
        assert abs(count(vault, "clinic", "clinic") - 350) < 10
        more = people(tmp_path / "w.csv", "new", 50, "cost")
        vault.append("clinic", None, version="3", tables={"visits": more})
        assert abs(count(vault, "clinic", "visits") - 250) < 10
        with pytest.raises(Refused) as refused:  # of 90, 30 are spent
            vault["clinic"].ask("SELECT COUNT(*) AS n FROM clinic", epsilon=61, fresh=True)
    assert refused.value.code == "budget-exceeded"
    assert list((_folder(service) / "incoming").glob("*.csv")) == []  # what was sent is deleted


def _folder(service: Service) -> Path:
    arguments = service.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[arguments.index("--vault") + 1]))


def test_a_person_leaves_and_no_file_of_the_vault_names_them(
    service: Service, tmp_path: Path
) -> None:
    with sfumato.connect(service.url, token=service.owner()) as vault:
        added(vault, tmp_path, "leaving")
        somebody = write_csv(tmp_path / "s.csv", ("who", "age"), [("Sömebody-Else", 40)])
        vault.append("leaving", somebody, version="2")
        made = vault.forget_person("leaving", "Sömebody-Else", version="3")
        assert (made.name, made.version, made.others) == ("leaving", "3", ())
        assert made.removed >= 1
        assert abs(count(vault, "leaving", "leaving") - 300) < 10
        with pytest.raises(Refused) as refused:
            vault.forget_person("leaving", "Sömebody-Else", version="4")
    assert refused.value.code == "not-allowed"
    folder = _folder(service)
    texts = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert not any("Sömebody-Else".encode() in text for text in texts)
    assert not any("Sömebody-Else" in line for line in service.said)


@pytest.mark.parametrize(("name", "status"), [("ada", 403), ("olga", 404)])
def test_nobody_else_may(service: Service, name: str, status: int) -> None:
    token = service.tokens[name]
    at = "/v1/data-sets/clinic"
    assert service.call("POST", f"{at}/rows", {"version": "9"}, token=token)[0] == status
    body = {"version": "9", "person": "clinic1"}
    assert service.call("POST", f"{at}/forget-person", body, token=token)[0] == status


def test_what_cannot_be_appended_is_refused_before_a_file_is_read(
    service: Service, tmp_path: Path
) -> None:
    at, token = "/v1/data-sets/refusing/rows", service.owner()
    with sfumato.connect(service.url, token=token) as vault:
        added(vault, tmp_path, "refusing")
        upload = vault.send(people(tmp_path / "b.csv", "x", 3))

        def code(**body: object) -> str:
            status, said = service.call("POST", at, {"version": "2", **body}, token=token)
            assert status >= 400
            return str(said["refused"]["code"])

        assert code() == "bad-request"
        assert code(upload=upload, connection="x") == "bad-request"
        assert code(upload="none") == "upload-unknown"
        assert code(upload=upload, version="1") == "data-set-exists"
        assert code(upload=upload, tables={"visits": "none"}) == "upload-unknown"
        with pytest.raises(Refused) as refused:
            vault.append("refusing", people(tmp_path / "c.csv", "x", 3, "cost"), version="2")
        assert refused.value.code in ("unknown-column", "source-unreadable")
        assert vault.call("card", {"data_set": "refusing"})["version"] == "1"


def test_the_commands_take_an_address(service: Service, tmp_path: Path) -> None:
    with sfumato.connect(service.url, token=service.owner()) as vault:
        added(vault, tmp_path, "typed")
    where = {"SFUMATO_VAULT": service.url, "SFUMATO_TOKEN": service.owner()}
    new = people(tmp_path / "b.csv", "late", 50)
    done = run(Path(service.url), "append", "typed", str(new), "--version", "2", **where)
    assert done.returncode == 0, done.stderr
    assert "typed now has the version 2" in done.stdout
    done = run(Path(service.url), "forget-person", "typed", "late7", "--version", "3", **where)
    assert done.returncode == 0, done.stderr
    assert "typed now has the version 3, without the person" in done.stdout


def test_an_append_that_was_interrupted_is_recognised_by_its_job(tmp_path: Path) -> None:
    """Two jobs for the same version are not taken for each other."""
    folder = make_vault(tmp_path)
    with sfumato.open(folder) as vault:
        tables = {"visits": people(tmp_path / "v.csv", "p", 200, "cost")}
        vault.add("clinic", people(tmp_path / "a.csv", "p", 300), card(CARD), tables=tables)
        data_sets, caller = vault.owner.data_sets, vault._caller
        source = Source(str(people(tmp_path / "b.csv", "q", 9)), stem="a" * 24)
        data_sets.append(caller, "clinic", source, "2")
        assert data_sets.recover_append(caller, "clinic", "a" * 24, None)
        assert not data_sets.recover_append(caller, "clinic", "b" * 24, None)
