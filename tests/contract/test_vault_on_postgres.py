"""A vault whose rows are asked in PostgreSQL: like any other, and its reader can only read."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import sfumato
from sfumato import Refused
from sfumato.app.doctor import checkup
from sfumato.app.vault import OpenVault
from sfumato.engines.postgres.engine import PostgresEngine
from sfumato.engines.postgres.reader_privileges import EXCESS_PRIVILEGES, excess_privileges
from support import postgres_server
from support.small_vaults import PATIENTS_CARD, card, run, write_csv, write_patients

SECRET = "a-password-of-the-owner"  # noqa: S105  # of a server that lives for a minute
TABLES = """
unit = "who"
budget = { epsilon = 1000 }
max_groups = 2
max_rows = 20
limits = { rows = 10000, rows_per_person = 20 }
[columns.cost]
type = "integer"
lower = 0
upper = 100
[tables.people]
limits = { rows = 10000, rows_per_person = 1 }
columns = { sex = { type = "text", keys = ["f", "m"] } }
"""
JOINED = "SELECT sex, COUNT(*), SUM(cost) FROM visits v JOIN people p ON v.who = p.who GROUP BY sex"


@pytest.fixture
def database(server: postgres_server.Server) -> str:
    """Return a database of an owner who is no superuser."""
    name = server.own_database()
    server.run(f"CREATE ROLE {name}_owner LOGIN CREATEROLE PASSWORD '{SECRET}'")
    server.run(f"ALTER DATABASE {name} OWNER TO {name}_owner")
    return name


@pytest.fixture
def url(server: postgres_server.Server, database: str) -> str:
    """Return the owner's address, with a password in it."""
    return f"{server.database_url(database, f'{database}_owner')} password={SECRET}"


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    """Return a vault made for that database."""
    sfumato.create(tmp_path / "vault", anchor=tmp_path / "anchor", engine=url)
    return tmp_path / "vault"


@pytest.fixture
def vault(folder: Path) -> Iterator[OpenVault]:
    with sfumato.open(folder) as opened:
        yield opened


def add(vault: OpenVault, folder: Path, people: int = 200, **more: Any) -> None:
    """Add the clinic; `more` is another version, another people."""
    shape = {**card(PATIENTS_CARD), **more}
    vault.add("clinic", write_patients(folder / "p.csv", people), shape)


def code_of(act: Callable[..., Any], epsilon: float | None = None) -> str:  # may return anything
    """Return why it was refused; a question is asked at a price."""
    with pytest.raises(Refused) as refused:
        act() if epsilon is None else act().ask(epsilon=epsilon)
    return refused.value.code


def place_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "keys" / "engine.json").read_text())
    return found


def tables_in(server: postgres_server.Server, database: str) -> list[str]:
    with psycopg.connect(server.database_url(database)) as link:
        found = link.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname ~ '^sfumato_' ORDER BY 1"
        )
        return [str(name) for (name,) in found]


# --- the usual story -----------------------------------------------------------------------------


def test_it_answers_repeats_free_and_refuses_when_the_budget_is_spent(
    server: postgres_server.Server, database: str, folder: Path, tmp_path: Path
) -> None:
    with sfumato.open(folder) as vault:
        assert isinstance(vault.house.engine, PostgresEngine)
        add(vault, tmp_path)
        assert len(tables_in(server, database)) == 1
        first = vault["clinic"].count().ask(epsilon=0.9)
        assert first.rows[0][0] == pytest.approx(200, abs=40)
        assert vault["clinic"].count().price(epsilon=0.9)["epsilon"] == 0.9
        assert vault["clinic"].count().ask(epsilon=0.9).rows == first.rows
        assert code_of(vault["clinic"].count, 2.2) == "budget-exceeded"
    with sfumato.open(folder) as again:
        assert again["clinic"].count().ask(epsilon=0.9).rows == first.rows
        assert again["clinic"].budget["spent"]["epsilon"] == 0.9


def test_several_tables_go_there_together(
    server: postgres_server.Server, database: str, vault: OpenVault, tmp_path: Path
) -> None:
    sexes = [(f"p{i}", "fm"[i % 2]) for i in range(80)]
    visits = write_csv(tmp_path / "v.csv", ("who", "cost"), ((f"p{i % 80}", 7) for i in range(400)))
    people = write_csv(tmp_path / "s.csv", ("who", "sex"), sexes)
    vault.add("visits", visits, card(TABLES), tables={"people": people})
    assert len(tables_in(server, database)) == 2
    for _, count, total in vault["visits"].ask(JOINED, epsilon=100).rows:
        assert count == pytest.approx(200, abs=20)
        assert total == pytest.approx(1400, abs=1000)


def test_a_new_version_is_asked_and_the_old_answer_stays(vault: OpenVault, tmp_path: Path) -> None:
    add(vault, tmp_path)
    old = vault["clinic"].count().ask(epsilon=0.5, op="one")
    add(vault, tmp_path, people=400, version="2026-12")
    new = vault["clinic"].count().ask(epsilon=0.5)
    assert new.rows[0][0] == pytest.approx(400, abs=60)
    assert vault["clinic"].count().ask(epsilon=0.5, op="one").rows == old.rows


def test_the_command_line_makes_it_fills_it_and_asks_it(url: str, tmp_path: Path) -> None:
    folder, home = tmp_path / "vault", {"HOME": str(tmp_path)}
    (tmp_path / "card.toml").write_text(PATIENTS_CARD)
    rows = str(write_patients(tmp_path / "p.csv"))
    said = [
        run(folder, "init", str(folder), "--json", SFUMATO_ENGINE=url, **home),
        run(folder, "add", "clinic", rows, "--card", str(tmp_path / "card.toml"), **home),
        run(folder, "ask", "clinic", "SELECT COUNT(*) AS n FROM clinic", "--epsilon", "1", **home),
        run(folder, "doctor", **home),
    ]
    assert [done.returncode for done in said] == [0] * 4, said
    assert "PostgreSQL answers" in said[3].stdout
    for done in said:
        assert SECRET not in done.stdout + done.stderr
        assert "host=" not in done.stdout + done.stderr


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_killed_driver_is_replaced(vault: OpenVault, tmp_path: Path) -> None:
    add(vault, tmp_path)
    engine = vault.house.engine
    assert isinstance(engine, PostgresEngine)
    pid = engine.worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    assert vault["clinic"].count().ask(epsilon=0.1).rows


def test_a_stopped_server_fails_a_question_which_pays_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "vault"
    with postgres_server.made() as server:
        with server.serving():
            sfumato.create(folder, anchor=tmp_path / "a", engine=server.database_url("postgres"))
            vault = sfumato.open(folder)
            add(vault, tmp_path)
            assert vault["clinic"].count().where(age=(1, None)).ask(epsilon=0.1).rows
        with server.serving():  # a line that was cut is laid again
            assert vault["clinic"].count().where(age=(2, None)).ask(epsilon=0.1).rows
        vault.close()
        with sfumato.open(folder) as vault:  # the ledger is not shut by it
            with pytest.raises(Refused) as refused:
                vault["clinic"].count().ask(epsilon=0.1)
            assert refused.value.code == "question-failed"
            assert refused.value.__context__ is None
            assert str(server.folder) not in str(refused.value)
            assert vault["clinic"].budget["spent"]["epsilon"] == 0.3
            found = {name: (well, says) for name, well, says, _ in checkup(str(folder))}
            assert found["its engine"][0] is False
            with server.serving():
                assert vault["clinic"].mean("age").ask(epsilon=0.2).rows
                assert vault.owner.data_sets.frozen_shapes() == ()  # no row was read
                assert vault["clinic"].count().ask(epsilon=0.3).rows
                (lost,) = vault.owner.data_sets.lost_readings()
                assert (lost["cause"], lost["times"]) == ("start", 4)


def test_refused_people_leave_no_table_behind(
    server: postgres_server.Server, database: str, vault: OpenVault, tmp_path: Path
) -> None:
    add(vault, tmp_path)
    files = set((vault.house.folder / "tables").iterdir())
    before = tables_in(server, database)
    other = {**card(PATIENTS_CARD), "people": "others"}
    assert code_of(lambda: vault.add("copy", tmp_path / "p.csv", other)) == "same-people"
    assert tables_in(server, database) == before
    assert set((vault.house.folder / "tables").iterdir()) == files
    assert len(files) == 3  # where the table is, the names of its people, the owner's report


def test_an_add_that_fails_late_leaves_no_table_behind(
    server: postgres_server.Server,
    database: str,
    vault: OpenVault,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(type(vault.house.catalogue), "put", fail)
    with pytest.raises(OSError):
        add(vault, tmp_path)
    assert tables_in(server, database) == []
    assert list((vault.house.folder / "tables").iterdir()) == []


def test_what_could_not_be_removed_is_removed_by_the_next_add(
    server: postgres_server.Server,
    database: str,
    vault: OpenVault,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add(vault, tmp_path)
    other = {**card(PATIENTS_CARD), "people": "others"}
    with monkeypatch.context() as broken:
        broken.setattr(PostgresEngine, "_dropped", lambda *_: False)
        assert code_of(lambda: vault.add("copy", tmp_path / "p.csv", other)) == "same-people"
    assert len(tables_in(server, database)) == 2
    add(vault, tmp_path, version="2026-12")
    assert len(tables_in(server, database)) == 2  # the two versions
    assert vault["clinic"].count().ask(epsilon=0.1).rows


# --- secrets -------------------------------------------------------------------------------------


def test_addresses_lie_among_the_keys_and_are_said_nowhere(folder: Path, vault: OpenVault) -> None:
    settings = folder / "vault.json"
    assert json.loads(settings.read_text())["engine"] == "postgres"
    private = place_of(folder)
    password = private["reader"].partition("password=")[2].partition(" ")[0]
    assert len(password) == 48
    for path in folder.rglob("*"):
        if path.is_file():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
            holds = SECRET.encode() in path.read_bytes() or password.encode() in path.read_bytes()
            assert holds == (path.name == "engine.json"), path
    shown = repr(vault.house) + repr(vars(vault.house.engine)["_place"]) + str(checkup(str(folder)))
    assert SECRET not in shown
    assert password not in shown


def test_the_server_learns_no_password_and_asks_for_one(tmp_path: Path) -> None:
    with postgres_server.made() as server:
        server.ask_passwords()
        with server.serving():
            server.run("ALTER SYSTEM SET log_statement = 'all'")
            server.run("SELECT pg_reload_conf()")
            time.sleep(0.3)
            folder = tmp_path / "vault"
            sfumato.create(folder, anchor=tmp_path / "a", engine=server.database_url("postgres"))
            private = place_of(folder)
            password = private["reader"].partition("password=")[2].partition(" ")[0]
            assert password.encode() not in (server.folder / "log").read_bytes()
            with sfumato.open(folder) as vault:
                add(vault, tmp_path)
                assert vault["clinic"].count().ask(epsilon=0.1).rows
            wrong = private["reader"].replace(password, "wrong")
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(wrong)


def test_keys_that_others_may_read_are_not_used(folder: Path) -> None:
    (folder / "keys" / "engine.json").chmod(0o644)
    assert code_of(lambda: sfumato.open(folder)) == "engine-unsafe"


@pytest.mark.parametrize(
    ("address", "code"),
    [
        (f"postgresql://owner:{SECRET}@/none?host=/nowhere", "engine-unavailable"),
        (f"postgresql://owner:{SECRET}@other.example/none", "engine-unsafe"),
        (f"postgresql://owner:{SECRET}@other.example/none?nothing={SECRET}", "engine-unavailable"),
        (f"password={SECRET} 'x", "engine-unavailable"),
        (f"service=elsewhere password={SECRET}", "engine-unsafe"),
        (f"hostaddr=192.0.2.1 password={SECRET}", "engine-unsafe"),
        (f"host=/here,other.example password={SECRET}", "engine-unsafe"),
        (f"mysql://owner:{SECRET}@other.example/none", "engine-unavailable"),
    ],
)
def test_an_address_that_does_not_serve_is_not_repeated(
    address: str, code: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused) as refused:
        sfumato.create(tmp_path / "v", anchor=tmp_path / "a", engine=address)
    assert refused.value.code == code
    assert SECRET not in str(refused.value)
    assert refused.value.__context__ is None
    assert not (tmp_path / "v").exists()


# --- the reader ----------------------------------------------------------------------------------

OPENINGS = {
    "superuser": "ALTER ROLE {reader} SUPERUSER",
    "create-roles": "ALTER ROLE {reader} CREATEROLE",
    "create-databases": "ALTER ROLE {reader} CREATEDB",
    "member-of-roles": "GRANT pg_read_all_data TO {reader}",
    "owner-of-something": "CREATE SCHEMA {schema}_x AUTHORIZATION {reader}",
    "create-in-database": "GRANT CREATE ON DATABASE {database} TO {reader}",
    "temporary-tables": "GRANT TEMPORARY ON DATABASE {database} TO PUBLIC",
    "create-in-schema": "GRANT CREATE ON SCHEMA {schema} TO {reader}",
    "write": "GRANT INSERT ON {table} TO {reader}",
    "other-schemas": "CREATE SCHEMA {schema}_y; GRANT USAGE ON SCHEMA {schema}_y TO PUBLIC",
    "hidden-catalogues": "GRANT SELECT ON pg_authid TO {reader}",
    "files": "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {reader}",
    "functions-of-others": "CREATE FUNCTION {schema}.f() RETURNS int LANGUAGE sql SECURITY DEFINER"
    " AS 'SELECT 1'; GRANT EXECUTE ON FUNCTION {schema}.f() TO {reader}",
    "other-servers": "CREATE FOREIGN DATA WRAPPER {schema}_w;"
    " CREATE SERVER {schema}_s FOREIGN DATA WRAPPER {schema}_w;"
    " GRANT USAGE ON FOREIGN SERVER {schema}_s TO {reader}",
}


def test_every_door_but_the_role_itself_has_an_opening() -> None:
    assert set(OPENINGS) == set(EXCESS_PRIVILEGES) - {"another-role"}


def test_each_opening_is_seen(server: postgres_server.Server, database: str, folder: Path) -> None:
    place = place_of(folder)
    words = {"reader": place["role"], "schema": place["schema"], "database": database}
    words["table"] = f"{place['schema']}.some"
    with psycopg.connect(server.database_url(database), autocommit=True) as link:
        link.execute(f"CREATE TABLE {words['table']} (x int)".encode())
        link.execute(f"GRANT SELECT ON {words['table']} TO {place['role']}".encode())
        for door, opening in OPENINGS.items():
            with link.transaction(force_rollback=True):
                link.execute(opening.format(**words).encode())
                link.execute(f"SET LOCAL SESSION AUTHORIZATION {place['role']}".encode())
                assert door in excess_privileges(link, place["role"], place["schema"]), door
        link.execute(f"SET SESSION AUTHORIZATION {place['role']}".encode())
        assert excess_privileges(link, place["role"], place["schema"]) == ()


def test_a_reader_who_may_write_is_not_used(
    server: postgres_server.Server, database: str, folder: Path, tmp_path: Path
) -> None:
    place = place_of(folder)
    with sfumato.open(folder) as vault:
        add(vault, tmp_path)
        (table,) = tables_in(server, database)
        with psycopg.connect(server.database_url(database), autocommit=True) as link:
            link.execute(f"GRANT INSERT ON {place['schema']}.{table} TO {place['role']}".encode())
        vault.house.engine.close()  # the next driver looks again, and asks no row
        assert code_of(vault["clinic"].count, 0.1) == "question-failed"
        assert vault.house.engine.self_test() == ("write",)
    with pytest.raises(Refused) as refused:
        sfumato.open(folder)
    assert refused.value.code == "engine-unsafe"
    assert "write" in refused.value.cause


def test_a_reader_who_cannot_be_used_is_not_left_behind(
    server: postgres_server.Server, database: str, url: str, tmp_path: Path
) -> None:
    roles = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^sfumato_.*_reader$'"
    before = server.run(roles)
    with psycopg.connect(server.database_url(database), autocommit=True) as link:
        link.execute("CREATE SCHEMA open_to_all")
        link.execute("GRANT USAGE ON SCHEMA open_to_all TO PUBLIC")
        assert code_of(partial(sfumato.create, tmp_path / "v", engine=url)) == "engine-unsafe"
        left = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^sfumato_'"
        assert link.execute(left.encode()).fetchone() == (0,)
    assert not (tmp_path / "v").exists()
    assert server.run(roles) == before


def test_asking_as_the_owner_is_refused(folder: Path, url: str) -> None:
    path = folder / "keys" / "engine.json"
    path.write_text(json.dumps({**place_of(folder), "reader": url}))
    with pytest.raises(Refused) as refused:
        sfumato.open(folder)
    assert "another-role" in refused.value.cause


def test_a_reader_that_is_there_is_welcomed_if_it_can_only_read(
    server: postgres_server.Server, database: str, url: str, tmp_path: Path
) -> None:
    server.run(f"CREATE ROLE {database}_mine LOGIN")
    reader = server.database_url(database, f"{database}_mine")
    make = {"anchor": tmp_path / "a", "engine": url, "engine_reader": reader}
    with pytest.raises(Refused) as refused:  # everybody may make temporary tables here
        sfumato.create(tmp_path / "v", **make)  # type: ignore[arg-type]  # of one kind each
    assert refused.value.code == "engine-unsafe"
    assert "temporary-tables" in refused.value.cause
    with psycopg.connect(server.database_url(database), autocommit=True) as link:
        link.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC".encode())
        link.execute(f"GRANT CONNECT ON DATABASE {database} TO {database}_mine".encode())
        link.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    sfumato.create(tmp_path / "v", **make)  # type: ignore[arg-type]  # of one kind each
    with sfumato.open(tmp_path / "v") as vault:
        add(vault, tmp_path)
        assert vault["clinic"].count().ask(epsilon=0.1).rows
