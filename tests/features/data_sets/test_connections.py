"""Rows are taken from a table of a database that the operator has connected, and from no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import sfumato
from sfumato import Refused
from sfumato.engines.postgres.source_tables import PostgresTables
from sfumato.features.data_sets.connection_service import LARGEST
from sfumato.vault.database_connection import read_table
from sfumato.wire.json_text import json_text
from support.postgres_server import Server, running
from support.process_tree import PATIENCE_S
from support.served_vault import Service, served
from support.small_vaults import card, make_vault, run

SECRET = "sesame-7919-canary"  # noqa: S105  # of nobody but these tests, in every address
CELL = "cell-6701-canary"  # stands in rows whose reading fails
TEXT = """
unit = "patient_id"
people = "town"
version = "1"
budget = { epsilon = 900 }
nulls = ["n/a"]
max_rows = 5
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.pay]
type = "number"
lower = 0
upper = 1000
step = 0.01
[columns.smokes]
type = "boolean"
[columns.seen]
type = "timestamp"
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.note]
hidden = true
"""
MADE = f"""
CREATE TABLE public.visits (patient_id bigint, age int, pay numeric(8,2), smokes boolean,
  seen timestamptz, zip text, note text);
INSERT INTO visits SELECT n, n % 90, n + 0.25, n % 4 = 0, '2026-01-01 12:00+02',
  (ARRAY['10001', '10002', NULL])[1 + n % 3], E'a\\tb"c\\n' || n FROM generate_series(1, 600) n;
CREATE SCHEMA "Odd schema";
CREATE TABLE "Odd schema"."o;d""d" (a int);
CREATE TABLE public.kept (patient_id int, age int);
CREATE TABLE public.seen (n int);
CREATE TABLE public.zips AS SELECT '10001' AS zip, 'north' AS side
  UNION ALL SELECT '10002', 'south';
CREATE TABLE public.sides AS SELECT 'north' AS side, 1 AS far UNION ALL SELECT 'south', 9;
CREATE VIEW public.breaks AS SELECT patient_id, ('{CELL}' || age)::int AS age FROM visits;
CREATE VIEW public.slow AS SELECT 1 AS patient_id, pg_sleep(60)::text AS age;
CREATE VIEW public.wide AS SELECT repeat('x', 250000000) AS age;
CREATE FUNCTION public.spy() RETURNS int LANGUAGE sql SECURITY DEFINER
  AS 'INSERT INTO public.seen VALUES (1) RETURNING n';
CREATE VIEW public.spying AS SELECT public.spy() AS age;
CREATE ROLE reads LOGIN;
CREATE ROLE writes LOGIN;
GRANT USAGE ON SCHEMA "Odd schema" TO reads;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO reads, writes;
GRANT SELECT ON "Odd schema"."o;d""d" TO reads;
REVOKE ALL ON kept FROM reads;
GRANT INSERT ON seen TO writes;
"""


@dataclass(frozen=True)
class House:
    """A service with connections, and the database behind them."""

    service: Service
    server: Server
    folder: Path  # of the vault
    files: Path
    said: list[str]  # every body that came back

    def call(self, method: str, path: str, body: object = None, by: str = "owner") -> Any:
        """Return the status and the JSON of one request."""
        token = self.service.tokens[by]
        status, said = self.service.call(method, path, body, token=token)
        self.said.append(json.dumps(said))
        return status, said

    def propose(self, connection: str, table: str, by: str = "owner") -> Any:
        """Return the card that is proposed for a table."""
        path = f"/v1/connections/{quote(connection, safe='')}?table={quote(table, safe='')}"
        return self.call("GET", path, by=by)

    def add(self, name: str, connection: str, table: str, text: str = TEXT, **more: Any) -> Any:
        """Return what becomes of an add."""
        rows = {"connection": connection, "table": table, **more}
        body = {"name": name, "card": card(text), **rows}
        status, job = self.call("POST", "/v1/data-sets", json_text(body).encode())
        if status != 200:
            return status, job["refused"]["code"]
        deadline = time.monotonic() + 90
        while job["state"] not in ("done", "failed"):
            assert time.monotonic() < deadline, job
            time.sleep(0.1)
            job = self.call("GET", f"/v1/jobs/{job['job']}")[1]
        return job["state"], (job["failed"] or {}).get("code")


def connection(path: Path, address: str, owners: list[str], *more: str) -> Path:
    """Write the file of a connection."""
    lines = (f"address = {json.dumps(address)}", f"owners = {json.dumps(owners)}", *more)
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a PostgreSQL with some tables, and who may read them."""
    with running() as made:
        made.run(MADE)
        yield made


def address(server: Server, user: str) -> str:
    """Return the address of a role, with a secret in it that the server does not ask for."""
    return f"{server.database_url('postgres', user)} password={SECRET}"


@pytest.fixture(scope="module")
def house(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Return a service with connections of several kinds."""
    folder = tmp_path_factory.mktemp("connections")
    gone = f"host=127.0.0.1 port=9 user=reads dbname=postgres password={SECRET}"
    made = {
        "clinic": connection(folder / "clinic", address(server, "reads"), ["owner"]),
        "few": connection(folder / "few", address(server, "reads"), ["owner"], 'tables = ["wide"]'),
        "writing": connection(folder / "writing", address(server, "writes"), ["owner"]),
        "super": connection(folder / "super", address(server, server.user), ["owner"]),
        "olgas": connection(folder / "olgas", address(server, "reads"), ["olga"]),
        "gone": connection(folder / "gone", gone, ["owner"]),
    }
    options = [word for name, path in made.items() for word in ("--connection", f"{name}={path}")]
    vault = make_vault(folder)
    with served(vault, "--log", *options) as service:
        service.owner()
        service.user("olga", "owner")
        service.user("ada", "researcher")
        yield House(service, server, vault, folder, [])


def incoming(house: House) -> list[Path]:
    """Return what waits to be added."""
    place = house.folder / "incoming"
    return sorted(place.iterdir()) if place.is_dir() else []


def test_an_owner_sees_the_columns_of_a_table_and_no_row(house: House) -> None:
    status, said = house.propose("clinic", "public.visits")
    assert status == 200
    kinds = {column["name"]: column["type"] for column in said["columns"]}
    assert kinds == {
        "patient_id": "integer", "age": "integer", "pay": "number", "smokes": "boolean",
        "seen": "timestamp", "zip": "text", "note": "text",
    }  # fmt: skip
    assert (said["card"]["unit"], said["card"]["people"]) == ("patient_id", "visits")
    assert "10001" not in json.dumps(said)


def test_a_table_is_added_and_its_rows_are_those_of_the_table(house: House) -> None:
    assert house.add("visits", "clinic", "visits") == ("done", None)
    assert incoming(house) == []
    asked = {
        "SELECT COUNT(*) AS n FROM visits": 600,
        "SELECT SUM(pay) AS n FROM visits": sum(n + 0.25 for n in range(1, 601)),
        "SELECT COUNT(*) AS n FROM visits WHERE smokes": 150,
        "SELECT COUNT(*) AS n FROM visits WHERE zip IS NULL": 200,
        "SELECT COUNT(*) AS n FROM visits WHERE seen = TIMESTAMP '2026-01-01 10:00:00'": 600,
        "SELECT COUNT(*) AS n FROM visits WHERE age = 0": 6,
    }
    for sql, truth in asked.items():
        body = {"sql": sql, "epsilon": 100}
        status, said = house.call("POST", "/v1/data-sets/visits/ask", body)
        assert status == 200, said
        assert said["rows"][0][0] == pytest.approx(truth, abs=1000 if "SUM" in sql else 2), sql


MORE = """
[tables.zips]
public = true
key = "zip"
columns.zip = { type = "text", keys = ["10001", "10002"] }
columns.side = { type = "text", keys = ["north", "south"] }
[tables.sides]
public = true
key = "side"
columns.side = { type = "text", keys = ["north", "south"] }
columns.far = { type = "integer", lower = 0, upper = 9 }
"""
JOINED = "SELECT COUNT(*) AS n FROM visits JOIN zips ON visits.zip = zips.zip WHERE side = 'south'"


def test_every_table_of_a_card_comes_from_the_connection(house: House, tmp_path: Path) -> None:
    text = TEXT.replace('version = "1"', 'version = "joined"') + MORE
    tables = {"tables": {"zips": "zips", "sides": "public.sides"}}
    assert house.add("visits", "clinic", "visits", text, **tables) == ("done", None)
    body = {"sql": JOINED, "epsilon": 100}
    status, said = house.call("POST", "/v1/data-sets/visits/ask", body)
    assert (status, round(said["rows"][0][0])) == (200, 200), said
    assert incoming(house) == []
    files = {"clinic": str(house.files / "clinic")}
    named = {name: f"connection:clinic/{name}" for name in ("zips", "sides")}
    with sfumato.open(make_vault(tmp_path), connections=files) as vault:
        vault.add("visits", "connection:clinic/visits", card(text), tables=named)
        assert vault["visits"].ask(JOINED, epsilon=100).rows[0][0] == pytest.approx(200, abs=1)
        assert list((vault.house.folder / "incoming").iterdir()) == []


def test_an_odd_name_is_a_name_and_no_statement(house: House) -> None:
    assert house.propose("clinic", 'Odd schema.o;d"d')[0] == 200
    for table in (
        'visits"; DROP TABLE visits; --', "visits; DROP TABLE visits", "public.visits WHERE true",
        "(SELECT 1)", "visits\0", "x" * 120, "", ".", "public.", "pg_catalog.pg_authid",
        "PG_CATALOG.pg_class", "information_schema.tables", "kept", "nothing",
    ):  # fmt: skip
        status, said = house.propose("clinic", table)
        assert (status, said["refused"]["code"]) in (
            (422, "source-unreadable"),
            (400, "bad-request"),
        ), table
    assert house.server.run("SELECT count(*) FROM visits") == [(600,)]


def test_a_connection_of_others_is_not_there(house: House) -> None:
    assert house.call("GET", "/v1/connections")[1]["connections"] == [
        "clinic", "few", "writing", "super", "gone",
    ]  # fmt: skip
    assert house.call("GET", "/v1/connections", by="olga")[1]["connections"] == ["olgas"]
    theirs, nobodys = house.propose("olgas", "visits"), house.propose("nothing", "visits")
    assert theirs == nobodys
    assert (theirs[0], theirs[1]["refused"]["code"]) == (404, "connection-unknown")
    assert house.add("stolen", "olgas", "visits") == (404, "connection-unknown")
    assert house.propose("clinic", "visits", by="olga")[0] == 404
    assert house.propose("clinic", "visits", by="ada")[0] == 403
    assert house.call("GET", "/v1/connections", by="ada")[0] == 403


def test_no_owner_says_where_the_service_connects_to(house: House) -> None:
    for name in (
        address(house.server, "reads"), "postgresql://127.0.0.1:9/postgres", "host=127.0.0.1",
        "clinic host=127.0.0.1", "../clinic", str(house.files / "clinic"),
    ):  # fmt: skip
        assert house.propose(name, "visits")[0] in (400, 404), name
        assert house.add("elsewhere", name, "visits") == (404, "connection-unknown")


def test_a_connection_may_be_for_some_tables(house: House) -> None:
    assert house.propose("few", "public.wide")[0] == 200
    assert house.propose("few", "visits")[1]["refused"]["code"] == "source-unreadable"


@pytest.mark.parametrize("name", ["writing", "super"])
def test_a_role_that_may_do_more_than_read_is_not_used(house: House, name: str) -> None:
    status, said = house.propose(name, "visits")
    assert (status, said["refused"]["code"]) == (503, "engine-unsafe")
    assert house.add("more", name, "visits") == ("failed", "engine-unsafe")


def test_a_database_that_is_gone_is_said_without_its_address(house: House) -> None:
    status, said = house.propose("gone", "visits")
    assert (status, said["refused"]["code"]) == (503, "engine-unavailable")
    assert "127.0.0.1" not in json.dumps(said)


@pytest.mark.parametrize("table", ["breaks", "spying"])
def test_what_fails_says_nothing_of_a_value_and_leaves_nothing(house: House, table: str) -> None:
    text = TEXT.partition("[columns.pay]")[0].replace('"town"', '"others"')
    text = text.replace("patient_id", "row") if table == "spying" else text
    assert house.add(f"bad-{table}", "clinic", table, text)[0] == "failed"
    assert CELL not in "".join(house.said)
    assert incoming(house) == []
    assert house.server.run("SELECT count(*) FROM seen") == [(0,)]  # nothing was written either


def test_where_the_rows_are_is_said_once(house: House) -> None:
    one: dict[str, object] = {"name": "x", "card": {"unit": "row", "budget": {"epsilon": 1}}}
    both = {**one, "upload": "0" * 24, "connection": "clinic", "table": "visits"}
    for body in (one, both, {**one, "connection": "clinic"}):
        assert house.call("POST", "/v1/data-sets", body)[0] == 400


def test_the_client_takes_a_table_too(house: House) -> None:
    with sfumato.connect(house.service.url, token=house.service.tokens["owner"]) as vault:
        columns = dict(vault.describe("connection:clinic/public.visits"))
        assert columns["pay"] == "number"
        text = TEXT.replace('version = "1"', 'version = "client"')
        made = vault.add("visits", "connection:clinic/public.visits", card(text))
        assert (made.name, made.version) == ("visits", "client")
        for source in ("postgresql://127.0.0.1/x", "connection:clinic", "connection:/x"):
            with pytest.raises(Refused) as refused:
                vault.add("visits", source, card(text))
            assert refused.value.code == "source-unreadable"


def test_the_command_line_takes_a_table_into_a_folder(
    server: Server, tmp_path: Path, house: House
) -> None:
    vault = make_vault(tmp_path)
    file = connection(tmp_path / "clinic", address(server, "reads"), ["owner"])
    (tmp_path / "card.toml").write_text(TEXT)
    words = ("connection:clinic/visits", "--connection", f"clinic={file}")
    done = run(vault, "add", "visits", *words, "--card", str(tmp_path / "card.toml"))
    assert done.returncode == 0, done.stderr
    assert "Added visits" in done.stdout
    wrong = run(vault, "add", "more", "connection:other/visits", *words[1:], "--card", "x")
    assert wrong.returncode != 0
    assert SECRET not in done.stdout + done.stderr + wrong.stdout + wrong.stderr


def test_a_table_that_takes_too_long_is_cut_off(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.tsv"
    target.touch()
    with pytest.raises(Refused, match="too much time or memory"):
        PostgresTables(fetch_s=3.0).fetch(
            read_table(address(server, "reads"), "slow"), target, 10**6
        )
    deadline = time.monotonic() + PATIENCE_S
    active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active'"
    while server.run(active) != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_table_that_is_too_large_is_not_written_further(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.tsv"
    target.touch()
    with pytest.raises(Refused) as refused:
        PostgresTables().fetch(read_table(address(server, "reads"), "visits"), target, 5000)
    assert refused.value.code == "too-large"
    assert target.stat().st_size <= 5000


def test_a_row_that_is_too_wide_does_not_fill_the_memory(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.tsv"
    target.touch()
    wanted = read_table(address(server, "reads"), "wide")
    with pytest.raises(Refused, match="memory"):
        PostgresTables(memory_mb=600).fetch(wanted, target, 10**9)
    assert target.stat().st_size < 10**6


def test_the_address_stands_nowhere_but_in_its_file(house: House) -> None:
    house.call("GET", "/v1/jobs")
    house.add("again", "gone", "visits")
    assert SECRET not in "".join(house.said) + "".join(house.service.said)
    kept = [p for p in house.folder.rglob("*") if p.is_file()]
    assert {"ledger.sqlite", "catalogue.sqlite"} <= {p.name for p in kept}
    for path in kept:
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET.encode() in (house.files / "clinic").read_bytes()
    for told in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert SECRET.encode() not in told.read_bytes()
        except OSError:
            continue


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ('address = "host=/x"\nowners = ["owner"]', 0o644, "other users may read it"),
        ('address = "host=/x"\nowners = "owner"', 0o600, "list of texts"),
        ('address = "host=/x"\nowners = []\nport = 1', 0o600, "only address, owners, tables"),
        (f"address = {SECRET}", 0o600, "not TOML"),
        (
            f'address = "host=/x"\nowners = []\n{"#" * LARGEST}\ntables = ["visits"]',
            0o600,
            "is larger than",
        ),
        (f'address = "mysql://{SECRET}"\nowners = []', 0o600, "another machine"),
        ('address = "local[2]"\nowners = []', 0o600, "no form that sfumato knows"),
        (f'address = "postgresql://h.test/x?password={SECRET}"\nowners = []', 0o600, "network"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    file = tmp_path / "clinic"
    file.write_text(text)
    file.chmod(mode)
    vault = make_vault(tmp_path)
    with pytest.raises(Refused) as refused:
        sfumato.open(vault, connections={"clinic": str(file)})
    assert said in refused.value.cause
    assert SECRET not in refused.value.cause + refused.value.next_step


def test_a_name_that_is_taken_off_the_list_holds_at_once(server: Server, tmp_path: Path) -> None:
    file = connection(tmp_path / "clinic", address(server, "reads"), ["owner"])
    with sfumato.open(make_vault(tmp_path), connections={"clinic": str(file)}) as vault:
        assert vault.describe("connection:clinic/visits")
        connection(tmp_path / "clinic", address(server, "reads"), ["olga"])
        with pytest.raises(Refused) as refused:
            vault.describe("connection:clinic/visits")
        assert refused.value.code == "connection-unknown"
        file.write_text("owners =")  # while it is being written anew, it is for nobody
        assert vault.call("connections", {}) == {"connections": []}
        with pytest.raises(Refused) as refused:
            vault.describe("connection:clinic/visits")
    assert refused.value.code == "connection-unknown"
