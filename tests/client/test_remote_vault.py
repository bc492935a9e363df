"""The client over HTTP: asynchronous too, from the command line, and where the service dies."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.client import http_replies, remote_vault
from sfumato.client.async_vault import AsyncDataSet
from sfumato.client.display import SubmittedProgram
from sfumato.client.vault import DataSet
from sfumato.wire.verb_table import BY_NAME, VERBS
from support.served_vault import PASSWORD, Service, served, start
from support.small_vaults import PATIENTS_CARD, SFUMATO, patients_vault, write_patients

SQL = "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service in which ada may ask."""
    with served(patients_vault(tmp_path_factory.mktemp("served"), "ada")) as running:
        running.user("ada", "researcher")
        yield running


def command(home: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    settings = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(
        [*SFUMATO, *arguments], env=settings, input=typed, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def test_answers_are_awaited_with_the_same_numbers(service: Service) -> None:
    async def ask() -> list[object]:
        token = service.tokens["ada"]
        async with sfumato.connect_async(service.url, token=token) as vault:
            patients = vault["patients"]
            built = patients.group_by("zip").count(name="n")
            both = [await patients.ask(SQL, epsilon=0.1), await patients.ask(built, epsilon=0.1)]
            assert [d.name for d in await vault.data_sets()] == ["patients"]
            assert (await patients.budget())["spent"]["epsilon"] == pytest.approx(0.1)
            assert len(await vault.history()) == 2
            return [answer.rows for answer in both]

    first, second = asyncio.run(ask())
    assert first == second


def test_whatever_a_data_set_does_can_be_awaited() -> None:
    """But for the airlock, where people wait for people; and what asks nobody is as it was."""

    def names(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert names(DataSet) - {"airlock"} == names(AsyncDataSet)
    awaited = {name for name in names(DataSet) if name not in ("airlock", "builder")}
    assert all(inspect.iscoroutinefunction(getattr(AsyncDataSet, name)) for name in awaited)


def test_a_stream_and_a_program_are_awaited(service: Service) -> None:
    async def ask() -> tuple[str, SubmittedProgram, str]:
        token = service.tokens["ada"]
        async with sfumato.connect_async(service.url, token=token) as vault:
            patients = vault["patients"]
            with pytest.raises(Refused) as no_stream:
                await patients.stream("none")
            handed_in = await patients.submit(one_each, outputs={"n": (0, 9)})
            with pytest.raises(Refused) as waits:
                await patients.run(one_each, outputs={"n": (0, 9)}, epsilon=0.1)
            return no_stream.value.code, handed_in, waits.value.code

    no_stream, handed_in, waits = asyncio.run(ask())
    assert (no_stream, handed_in["state"], waits) == ("stream-unknown", "waiting", "pipeline-waits")


def one_each(rows: object) -> int:
    return 1


def test_an_asynchronous_question_says_how_it_is_awaited(service: Service) -> None:
    async def ask() -> None:
        token = service.tokens["ada"]
        async with sfumato.connect_async(service.url, token=token) as vault:
            vault["patients"].count().ask(epsilon=0.1)

    with pytest.raises(Refused, match="asynchronous data set"):
        asyncio.run(ask())


def test_the_command_line_signs_in_asks_and_signs_out(service: Service, tmp_path: Path) -> None:
    at = ("--vault", service.url)
    came = command(tmp_path, "sign-in", *at, "--name", "ada", typed=PASSWORD + "\n")
    assert came.returncode == 0, came.stderr
    kept = tmp_path / ".config" / "sfumato" / "tokens.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    asked = command(tmp_path, "ask", "patients", SQL, "--epsilon", "0.1", *at)
    assert asked.returncode == 0, asked.stderr
    assert "10001" in asked.stdout
    history = command(tmp_path, "history", *at)
    assert "the number of rows, for each zip" in history.stdout
    assert "patients" in command(tmp_path, "datasets", *at).stdout
    assert command(tmp_path, "sign-out", *at).returncode == 0
    gone = command(tmp_path, "budget", "patients", *at)
    assert gone.returncode == 3
    assert "not-signed-in" in gone.stderr


def test_a_token_never_travels_in_clear_text_to_another_machine() -> None:
    with pytest.raises(Refused) as refused:
        sfumato.connect("http://example.org", token="sfm1_x")  # noqa: S106
    assert refused.value.code == "serve-unsafe"


def test_a_token_read_from_a_file_is_one_and_what_is_none_is_refused(service: Service) -> None:
    with sfumato.connect(service.url, token=f" {service.owner()}\n") as vault:
        assert list(vault)
    for token in ("\u00e9", "a\nb", "a b", "\ud800"):
        with pytest.raises(Refused) as refused:
            sfumato.connect(service.url, token=token)
        assert refused.value.code == "not-signed-in"


def test_a_file_that_is_not_there_is_refused_as_in_a_folder(
    service: Service, tmp_path: Path
) -> None:
    card = tomllib.loads(PATIENTS_CARD)
    assert command(tmp_path, "init", str(tmp_path / "vault")).returncode == 0
    with (
        sfumato.connect(service.url, token=service.owner()) as there,
        sfumato.open(tmp_path / "vault") as here,
    ):
        for vault in (there, here):
            with pytest.raises(Refused) as refused:
                vault.add("patients", tmp_path / "nowhere.csv", card)
            assert refused.value.code == "source-unreadable"
            assert "There is no file" in refused.value.cause
            with pytest.raises(Refused, match="cannot be read"):
                vault.add("patients", write_patients(tmp_path / "rows.csv"), "card.toml")


@pytest.mark.parametrize("text", [b"", b"[]", b'{"a":' * 100_000], ids=["none", "a list", "deep"])
def test_what_is_no_answer_is_a_refusal(text: bytes) -> None:
    with pytest.raises(Refused, match="service-down"):
        remote_vault.read_json_loosely(text)


def test_a_token_is_not_sent_where_a_redirect_leads(service: Service) -> None:
    settings = remote_vault._settings(service.url, "x")
    assert settings["follow_redirects"] is False


def test_a_question_in_flight_survives_a_killed_door_and_pays_once(tmp_path: Path) -> None:
    with served(patients_vault(tmp_path, "ada")) as service:
        token = service.user("ada", "researcher")
        answers: list[object] = []
        with sfumato.connect(service.url, token=token) as vault:
            stop = threading.Event()
            killer = threading.Thread(target=_kill_doors, args=(service, stop))
            killer.start()
            for age in range(30, 60):
                sql = f"SELECT COUNT(*) AS n FROM patients WHERE age > {age}"
                answers.append(vault["patients"].ask(sql, epsilon=0.01).value)
            stop.set()
            killer.join()
            assert len(answers) == 30
            spent = vault["patients"].budget["spent"]["epsilon"]
            assert spent == pytest.approx(0.3)


def _kill_doors(service: Service, stop: threading.Event) -> None:
    keeper = service.process.pid
    for _ in range(4):
        time.sleep(0.4)
        if stop.is_set():
            return
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        doors = [c for c in children if b"door" in Path(f"/proc/{c}/cmdline").read_bytes()]
        for door in doors:
            os.kill(int(door), signal.SIGKILL)


def test_a_service_that_was_killed_whole_is_ready_again_with_everything_paid(
    tmp_path: Path,
) -> None:
    vault = patients_vault(tmp_path, "ada")
    service = start(vault)
    token = service.user("ada", "researcher")
    body = {"sql": SQL, "epsilon": 0.1, "op": "once"}
    path = "/v1/data-sets/patients/ask"
    first = service.call("POST", path, body, token=token)[1]
    service.kill()
    if service.process.stderr is not None:
        service.process.stderr.close()
    with served(vault) as again:
        assert again.call("POST", path, body, token=token)[1]["rows"] == first["rows"]
        budget = again.call("GET", "/v1/data-sets/patients/budget", token=token)[1]
        assert budget["spent"]["epsilon"] == pytest.approx(0.1)


def test_children_of_a_killed_keeper_end(tmp_path: Path) -> None:
    service = start(patients_vault(tmp_path, "ada"))
    keeper = service.process.pid
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    service.kill()
    if service.process.stderr is not None:
        service.process.stderr.close()
    deadline = time.monotonic() + 10
    while any(_is_alive(int(child)) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_conversation_repeats_what_was_lost_with_the_same_operation() -> None:
    drawn = iter([b"0" * 16])
    talk = remote_vault.conversation("ask", {"data_set": "d", "sql": "x"}, lambda _: next(drawn))
    first = next(talk)
    assert isinstance(first, remote_vault.HttpRequest)
    pause = talk.send(http_replies.HttpReply(0, b""))
    assert isinstance(pause, remote_vault.Pause)
    second = talk.send(None)
    assert second == first
    assert json.loads(str(first.body))["op"] == (b"0" * 16).hex()


OPERATIONS = [verb.name for verb in VERBS if verb.has_body and "op" in verb.fields]


@pytest.mark.parametrize("verb", OPERATIONS)
def test_whatever_can_be_paid_twice_is_repeated_as_the_same_operation(verb: str) -> None:
    body: dict[str, object] = dict.fromkeys(BY_NAME[verb].places, "x")
    talk = remote_vault.conversation(verb, body, lambda count: b"7" * count)
    first = next(talk)
    assert isinstance(first, remote_vault.HttpRequest)
    assert json.loads(str(first.body))["op"] == (b"7" * 16).hex()
    talk.send(http_replies.HttpReply(0, b""))
    assert talk.send(None) == first


def test_a_conversation_waits_as_long_as_it_is_told() -> None:
    talk = remote_vault.conversation("me", {}, lambda count: b"0" * count)
    next(talk)
    busy = {"refused": {"code": "too-many", "cause": "c", "next": "n"}}
    pause = talk.send(http_replies.HttpReply(429, json.dumps(busy).encode(), 7.0))
    assert pause == remote_vault.Pause(7.0)


def test_a_conversation_ends_with_the_refusal_that_was_said_last() -> None:
    talk = remote_vault.conversation("me", {}, lambda count: b"0" * count)
    next(talk)
    busy = json.dumps({"refused": {"code": "too-many", "cause": "c", "next": "n"}}).encode()
    came = http_replies.HttpReply(429, busy)
    for _ in remote_vault.PAUSES_S:
        talk.send(came)
        talk.send(None)
    with pytest.raises(StopIteration) as ended:
        talk.send(came)
    assert ended.value.value["refused"]["code"] == "too-many"


def test_an_owner_brings_rows_over_http_and_from_the_command_line(
    service: Service, tmp_path: Path
) -> None:
    rows = write_patients(tmp_path / "rows.csv")
    text = PATIENTS_CARD.replace("city-hospital-patients", "guests")
    owner = {**os.environ, "SFUMATO_TOKEN": service.owner(), "SFUMATO_VAULT": service.url}
    (tmp_path / "guests.toml").write_text(text)

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SFUMATO, *words], env=owner, cwd=tmp_path, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    proposing = ran("add", "guests", str(rows))
    assert proposing.returncode == 0, proposing.stderr
    assert "[columns." in (tmp_path / "guests.card.toml").read_text()
    # the very rows of the patients: whose they are was asked, and they have a budget already
    refused = ran("add", "guests", str(rows), "--card", "guests.toml")
    assert refused.returncode == 3
    assert "same-people" in refused.stderr
    (tmp_path / "guests.toml").write_text(PATIENTS_CARD)
    added = ran("add", "again", str(rows), "--card", "guests.toml")
    assert added.returncode == 0, added.stderr
    assert "Added again" in added.stdout
    assert ran("ledger", "verify").returncode == 3
    with sfumato.connect(service.url, token=service.owner()) as vault:
        assert vault.grant("again", "ada", "researchers")["group"] == "researchers"
        assert "again" in [data_set.name for data_set in vault]
        assert vault.add("third", rows, tmp_path / "guests.toml").name == "third"


def test_nobody_takes_an_owners_account_by_inviting_them_anew(service: Service) -> None:
    operator = service.user("otto", "operator")
    roles = ["owner", "operator"]
    service.owner()
    status, said = service.call(
        "POST", "/v1/users", {"user": "owner", "roles": roles}, token=operator
    )
    assert (status, said["refused"]["code"]) == (403, "not-allowed")
    again = {"user": "ada", "roles": ["researcher"]}
    assert service.call("POST", "/v1/users", again, token=operator)[0] == 200


def test_an_owner_who_lost_their_password_is_let_in_from_the_folder(tmp_path: Path) -> None:
    vault = patients_vault(tmp_path, "ada")
    with served(vault) as service:
        service.owner()
        ran = command(
            tmp_path, "invite", "owner", "--role", "owner", "--role", "operator", "--json",
            "--vault", str(vault),
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        body = {"invitation": json.loads(ran.stdout)["invitation"], "password": PASSWORD}
        assert service.call("POST", "/v1/invitations", body)[0] == 200


def test_no_proxy_is_told_what_stays_on_this_machine(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token goes unencrypted to this very machine alone: not by way of another."""
    token = service.owner()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.2)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(remote_vault, "TIMEOUT_S", 10)
        with sfumato.connect(service.url, token=token) as vault:
            assert "patients" in [one.name for one in vault]
        with pytest.raises(TimeoutError):
            proxy.accept()


def test_a_body_that_names_another_thing_than_its_address_is_refused(service: Service) -> None:
    """Else whoever sends it is answered about another data set than they wrote."""
    asked = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.1}
    for name, code in (("patients", None), ("others", "bad-request"), (None, "bad-request")):
        body = {**asked, "data_set": name}
        status, said = service.call(
            "POST", "/v1/data-sets/patients/price", body, token=service.owner()
        )
        if code is None:
            assert (status, said["epsilon"]) == (200, 0.1)
        else:
            assert (status, said["refused"]["code"]) == (400, code)
            assert "another data_set" in said["refused"]["cause"]
