"""Rows are taken from a table of MariaDB, or of a database that SQLAlchemy reads."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.engines.databases.source_tables import DatabaseTables, SqlAlchemyTables
from sfumato.vault.database_connection import read_table
from support.mariadb_server import MariaDb, running
from support.served_vault import served
from support.small_vaults import make_vault, run
from support.tls_certificates import write_certificate

SECRET: Final = "sesame-7919-canary"  # noqa: S105  # of nobody but these tests
CELL: Final = "cell-6701-canary"
KINDS: Final[Mapping[str, tuple[str, str]]] = {  # column -> its type in MariaDB, and as proposed
    "id": ("BIGINT UNSIGNED", "integer"),
    "amount": ("DECIMAL(20,4)", "number"),
    "born": ("DATE", "date"),
    "seen": ("DATETIME(6)", "timestamp"),
    "stamped": ("TIMESTAMP NULL", "timestamp"),
    "smokes": ("TINYINT(1)", "boolean"),
    "is_new": ("BIT(1)", "boolean"),
    "flags": ("BIT(9)", "integer"),
    "level": ("TINYINT", "integer"),
    "year": ("YEAR", "integer"),
    "single": ("FLOAT", "number"),
    "ward": ("ENUM('a','b,c','')", "text"),
    "tags": ("SET('x','y z')", "text"),
    "took": ("TIME(2)", "text"),
    "more": ("JSON", "text"),
    "raw": ("BLOB", "text"),
    "note": ("TEXT", "text"),
    'odd `%s "name': ("INT", "integer"),
}
NOTE: Final = "tab\t line\n return\r \"quoted\" \\N 😀 'é'"
ROW: Final = (
    2**64 - 1, "-123456789.0123", "1970-02-28", "2024-02-29 23:59:59.000001",
    "2024-01-01 12:00:00", 1, b"\1", b"\1\1", -128, 2024, 16777217, "b,c", "x,y z",
    "-838:59:59.5", '{"a": [1, "é"]}', b"\0\xff\n", NOTE, 7,
)  # fmt: skip
BOUNDS: Final = {"type": "integer", "lower": -200, "upper": 3000}
COLUMNS: Final[dict[str, Any]] = {
    **{name: {"type": kind} for name, (_, kind) in KINDS.items()},
    **dict.fromkeys(("flags", "level", "year", 'odd `%s "name'), BOUNDS),
    "id": {"type": "text"},  # no number of a card is that large
    "amount": {"type": "number", "lower": -(10**9), "upper": 10**9, "step": 0.0001},
    "single": {"type": "number", "lower": 0, "upper": 10**8, "step": 0.5},
}
STORED: Final = (
    str(2**64 - 1), -1234567890123, date(1970, 2, 28), datetime(2024, 2, 29, 23, 59, 59, 1),
    datetime(2024, 1, 1, 10), True, True, 257, -128, 2024, 2 * 16777216, "b,c", "x,y z",
    "-838:59:59.500000", '{"a": [1, "é"]}', "00ff0a", NOTE, 7,
)  # fmt: skip


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    """Return a MariaDB with some tables, and who may read them."""
    with running() as made:
        fields = ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in KINDS.items())
        made.run(
            "CREATE DATABASE clinic CHARACTER SET latin1",
            "CREATE DATABASE other",
            f"CREATE TABLE clinic.visits ({fields}) CHARACTER SET utf8mb4".replace("%%", "%"),
            "CREATE TABLE other.kept (a INT)",
            "CREATE TABLE clinic.`o;d.d` (a INT)",
            "CREATE TABLE clinic.people (who INT, age INT, born DATE, amount DECIMAL(8,2))",
            "INSERT INTO clinic.people SELECT seq, seq MOD 90, '1970-01-01' + INTERVAL seq DAY,"
            " seq + 0.25 FROM clinic.seq_1_to_600",
            "CREATE TABLE clinic.zeros (who INT, born DATE)",
            "SET sql_mode = ''",
            "INSERT INTO clinic.zeros SELECT seq, IF(seq MOD 50, '1970-01-01', '0000-00-00')"
            " FROM clinic.seq_1_to_500",
            "CREATE VIEW clinic.slow AS SELECT 1 AS who, SLEEP(100) AS age FROM clinic.people",
            "CREATE VIEW clinic.wide AS SELECT REPEAT('x', 500000) AS age FROM clinic.people",
            f"CREATE VIEW clinic.breaks AS SELECT who, CAST('{CELL}' AS DATE) AS age,"
            f" (SELECT who FROM clinic.people) AS more FROM clinic.people",
        )
        values = ", ".join(["%s"] * len(ROW))
        _insert(made, f"INSERT INTO clinic.visits VALUES ({values})")
        for user, grant in {
            "reader": "SELECT, SHOW VIEW ON clinic.*",
            "one": "SELECT (who, age) ON clinic.people",
            "writer": "SELECT, INSERT ON clinic.*",
            "granter": "SELECT ON clinic.*",
            "filer": "SELECT, FILE ON *.*",
            "member": "SELECT ON clinic.*",
        }.items():
            more = " WITH GRANT OPTION" if user == "granter" else ""
            who = f"{user}@'127.0.0.1'"
            made.run(f"CREATE USER {who} IDENTIFIED BY '{SECRET}'", f"GRANT {grant} TO {who}{more}")
        made.run("CREATE ROLE staff", "GRANT staff TO member@'127.0.0.1'")
        yield made


def _insert(server: MariaDb, statement: str) -> None:
    import pymysql

    with pymysql.connect(unix_socket=str(server.folder / "socket"), user="root") as link:
        with link.cursor() as cursor:
            cursor.execute("SET time_zone = '+02:00'")
            cursor.execute(statement, ROW)
            cursor.execute("INSERT INTO clinic.visits (id) VALUES (NULL)")
        link.commit()


def connection(path: Path, address: str, *more: str) -> Path:
    """Write the file of a connection."""
    owners = 'owners = ["owner"]'
    path.write_text("\n".join((f"address = {json.dumps(address)}", owners, *more)))
    path.chmod(0o600)
    return path


def stored(vault: OpenVault, name: str, columns: int) -> list[tuple[object, ...]]:
    listing = vault.house.catalogue.find(name)
    assert listing is not None
    values = ", ".join(f"v{i}" for i in range(columns))
    with duckdb.connect(listing.table, read_only=True) as link:
        return link.execute(f'SELECT {values} FROM "rows" ORDER BY v0 NULLS LAST').fetchall()


def card(people: str, columns: Mapping[str, object], unit: str = "row") -> dict[str, Any]:
    return {"unit": unit, "people": people, "budget": {"epsilon": 900}, "columns": columns}


def fetched(address: str, table: str, target: Path, most: int = 10**7) -> str:
    target.write_text("")
    SqlAlchemyTables().fetch(read_table(address, table), target, most)
    return target.read_bytes().decode()


# --- MariaDB


def test_each_type_keeps_its_values(server: MariaDb, tmp_path: Path) -> None:
    file = connection(tmp_path / "clinic", server.url("reader", SECRET))
    with sfumato.open(make_vault(tmp_path), connections={"c": str(file)}) as vault:
        found = dict(vault.describe("connection:c/visits"))
        assert found == {name: kind for name, (_, kind) in KINDS.items()}
        vault.add("visits", "connection:c/clinic.visits", card("visits", COLUMNS))
        first, nothing = stored(vault, "visits", len(KINDS))
        assert dict(zip(KINDS, first, strict=True)) == dict(zip(KINDS, STORED, strict=True))
        assert set(nothing) == {None}


def test_dates_of_zeros_are_unreadable_cells_and_the_owner_is_told(
    server: MariaDb, tmp_path: Path
) -> None:
    file = connection(tmp_path / "clinic", server.url("reader", SECRET))
    columns = {"born": {"type": "date"}}
    with sfumato.open(make_vault(tmp_path), connections={"c": str(file)}) as vault:
        vault.add("zeros", "connection:c/zeros", card("zeros", columns))
        (table,) = cast("list[dict[str, Any]]", vault.add_report("zeros").shape["tables"])
        assert "born" in json.dumps(table["columns"])
        assert stored(vault, "zeros", 1).count((None,)) == 10
        server.run("UPDATE clinic.zeros SET born = '0000-00-00'", "SET sql_mode = ''")
        with pytest.raises(Refused) as refused:
            vault.add("more", "connection:c/zeros", card("more", columns))
        assert refused.value.code == "cells-unreadable"


@pytest.mark.parametrize("user", ["writer", "granter", "filer", "member"])
def test_a_user_that_may_do_more_than_read_is_not_used(server: MariaDb, user: str) -> None:
    wanted = read_table(server.url(user, SECRET), "clinic.people")
    with pytest.raises(Refused) as refused:
        DatabaseTables().columns(wanted)
    assert refused.value.code == "engine-unsafe"


def test_some_columns_of_a_table_are_no_table(server: MariaDb) -> None:
    """Nothing says to a user of some columns which others there are: a view has them alone."""
    with pytest.raises(Refused) as refused:
        DatabaseTables().columns(read_table(server.url("one", SECRET), "people"))
    assert refused.value.code == "source-unreadable"


def test_only_a_table_that_is_listed_is_read(server: MariaDb, tmp_path: Path) -> None:
    address = server.url("reader", SECRET)
    assert fetched(address, "clinic.o;d.d", tmp_path / "x") == "a\n"
    for table in (
        "people WHERE 1", "people; DROP TABLE clinic.people", "people` --", "(SELECT 1)", "nothing",
        "other.kept", "mysql.user", "information_schema.TABLES", "MySQL.user", "sys.version",
        "x" * 300, "", ".", "clinic.", "people\0",
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            fetched(address, table, tmp_path / "x")
        assert refused.value.code == "source-unreadable", table
    assert server.run("SELECT COUNT(*) FROM clinic.people") == [(600,)]


def test_what_fails_quotes_no_value(server: MariaDb, tmp_path: Path) -> None:
    address = server.url("reader", SECRET)
    with pytest.raises(Refused) as refused:
        fetched(address, "breaks", tmp_path / "x")
    assert CELL not in str(refused.value) + repr(refused.value.__context__)
    with pytest.raises(Refused, match="too much time"):
        SqlAlchemyTables(fetch_s=3).fetch(read_table(address, "slow"), tmp_path / "x", 10**6)
    with pytest.raises(Refused) as refused:
        fetched(address, "people", tmp_path / "x", 5000)
    assert refused.value.code == "too-large"
    assert (tmp_path / "x").stat().st_size <= 5000
    for bad in (server.url("reader", "wrong"), "mariadb://reader@127.0.0.1:9/clinic"):
        with pytest.raises(Refused, match="cannot be reached"):
            fetched(bad, "people", tmp_path / "x")


def test_a_large_table_streams_through_little_memory(server: MariaDb, tmp_path: Path) -> None:
    target = tmp_path / "rows.tsv"
    target.touch()
    wanted = read_table(server.url("reader", SECRET), "wide")
    SqlAlchemyTables(memory_mb=600).fetch(wanted, target, 10**9)
    assert target.stat().st_size == 600 * 500_001 + 4


def test_the_password_may_come_from_the_environment(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", SECRET)
    assert len(fetched(server.url("reader", None), "people", tmp_path / "x").splitlines()) == 601
    with pytest.raises(Refused):
        fetched(server.url("reader", "wrong"), "people", tmp_path / "x")


@pytest.fixture
def keys() -> Iterator[tuple[Path, Path]]:
    """Return a certificate of 127.0.0.2 and its key, which another user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = write_certificate(Path(folder, "tls"), "127.0.0.2")
        made[1].chmod(0o644)
        yield made


def test_another_machine_is_read_over_tls_alone(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """127.0.0.2 stands for it."""
    own, key = keys
    encrypted = (f"--ssl-cert={own}", f"--ssl-key={key}")
    for options in ((), encrypted):
        with running("--bind-address=127.0.0.2", *options) as server:
            server.run(
                "CREATE DATABASE clinic",
                "CREATE TABLE clinic.t (a INT)",
                f"CREATE USER r@localhost IDENTIFIED BY '{SECRET}'",  # the name of 127.0.0.2
                "GRANT SELECT ON clinic.* TO r@localhost",
            )
            address = server.url("r", SECRET).replace("127.0.0.1", "127.0.0.2")
            for more in ("", "?ssl_disabled=true", "?ssl_verify_cert=false"):
                with pytest.raises(Refused) as refused:
                    DatabaseTables().check(address + more)
                assert refused.value.code == "engine-unsafe"
            checked = f"{address}?ssl_ca={own}"
            if options:
                assert fetched(checked, "t", tmp_path / "x") == "a\n"
            else:
                with pytest.raises(Refused, match="cannot be reached"):
                    fetched(checked, "t", tmp_path / "x")


def test_a_service_reads_it_and_the_password_stands_nowhere(
    server: MariaDb, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    made = connection(files / "c", server.url("reader", SECRET), 'tables = ["people"]')
    folder = make_vault(tmp_path)
    who = {"who": {"type": "integer", "lower": 0, "upper": 1000}}
    amount = {"amount": {"type": "number", "lower": 0, "upper": 1000, "step": 0.01}}
    with served(folder, "--log", "--connection", f"c={made}") as service:
        service.owner()
        with sfumato.connect(service.url, token=service.tokens["owner"]) as vault:
            columns = dict(vault.describe("connection:c/people"))
            assert columns["amount"] == "number"
            source = "connection:c/people"
            added = vault.add("people", source, card("town", {**amount}, unit="who"))
            assert added.people == "town"
            total = vault["people"].sum("amount").ask(epsilon=100).value
            assert abs(float(str(total)) - sum(n + 0.25 for n in range(1, 601))) < 1000
            for table in ("clinic.people", "visits"):
                with pytest.raises(Refused) as refused:
                    vault.describe(f"connection:c/{table}")
                assert refused.value.code == "source-unreadable"
            with pytest.raises(Refused, match="list of processes"):
                vault.add("x", server.url("reader", SECRET), card("x", who))
        said = "".join(service.said)
    assert SECRET not in said
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_the_command_line_takes_a_table_into_a_folder(server: MariaDb, tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    file = connection(tmp_path / "clinic", server.url("reader", SECRET))
    words = ("connection:clinic/people", "--connection", f"clinic={file}")
    lines = (
        'unit = "who"', 'people = "town"', "budget = { epsilon = 9 }",
        'columns.age = { type = "integer", lower = 0, upper = 110 }',
    )  # fmt: skip
    (tmp_path / "card.toml").write_text("\n".join(lines))
    done = run(vault, "add", "people", *words, "--card", str(tmp_path / "card.toml"))
    assert done.returncode == 0, done.stderr
    assert "Added people" in done.stdout
    direct = run(vault, "add", "more", server.url("reader", SECRET), "--card", "x")
    assert direct.returncode != 0
    assert SECRET not in done.stdout + done.stderr + direct.stdout + direct.stderr


# --- other databases


def test_any_database_of_sqlalchemy_is_read(tmp_path: Path) -> None:
    place = tmp_path / "a file?.db"
    with sqlite3.connect(place) as link:
        link.execute("CREATE TABLE visits (who TEXT, kg NUMERIC(5,2), seen DATETIME, ok BOOLEAN)")
        link.execute("INSERT INTO visits VALUES ('é', 70.5, '2024-01-01 10:00:00', 1)")
        link.execute("CREATE VIEW all_visits AS SELECT * FROM visits")
    link.close()
    before = place.read_bytes()
    address = f"sqlite:///{str(place).replace('?', '%3F')}"
    file = connection(tmp_path / "lite", address)
    columns: dict[str, dict[str, object]] = {
        "who": {"type": "text"},
        "kg": {"type": "number", "lower": 0, "upper": 200, "step": 0.5},
        "seen": {"type": "timestamp"},
        "ok": {"type": "boolean"},
    }
    with sfumato.open(make_vault(tmp_path), connections={"lite": str(file)}) as vault:
        found = dict(vault.describe("connection:lite/visits"))
        assert found == {"who": "text", "kg": "number", "seen": "timestamp", "ok": "boolean"}
        vault.add("lite", "connection:lite/all_visits", card("lite", columns))
        assert stored(vault, "lite", 4) == [("é", 141, datetime(2024, 1, 1, 10), True)]
    assert place.read_bytes() == before
    with pytest.raises(Refused, match="cannot be reached"):
        DatabaseTables().columns(read_table(f"sqlite:///{tmp_path}/none.db", "visits"))
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (f"carrier-pigeon://{SECRET}", "no form that sfumato knows"),
        (f"mariadb://reader:{SECRET}@[::1/x", "no form that sfumato knows"),
        (f"postgresql+psycopg://reader:{SECRET}@localhost/x", "a driver of PostgreSQL"),
        (f"mariadb://reader:{SECRET}@db.test/x", "another machine"),
        (f"mysql://reader:{SECRET}@localhost/x?host=db.test", "another machine"),
        (f"mssql+pyodbc://reader:{SECRET}@db.test/x?Encrypt=no", "another machine"),
        (f"mssql+pyodbc:///?odbc_connect=Server%3Ddb.test%3BPwd%3D{SECRET}", "another machine"),
        (f"mssql+pymssql://u:{SECRET}@localhost/db?server=db.test", "another machine"),
        (f"snowflake://u:{SECRET}@/d?account=x", "another machine"),
        (f"mysql://u:{SECRET}@localhost/d?read_default_file=/etc/my.cnf", "another machine"),
        (f"cockroachdb://u:{SECRET}@db.test/d?sslmode=prefer", "another machine"),
        (f"mysql+mysqldb://u:{SECRET}@db.test/d?ssl_ca=a&ssl_verify_cert=false", "another machine"),
    ],
)
def test_an_address_that_is_not_safe_is_refused(address: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        DatabaseTables().check(address)
    assert said in refused.value.cause
    assert SECRET not in str(refused.value)


def test_a_driver_that_is_not_there_is_named_as_the_cause() -> None:
    DatabaseTables().check("mssql+pyodbc://reader@db.test/x?Encrypt=yes")
    for address in ("mssql+pyodbc://reader@localhost/x", "nothing://localhost/x"):
        with pytest.raises(Refused) as refused:
            DatabaseTables().columns(read_table(address, "visits"))
        assert refused.value.code == "not-installed"
