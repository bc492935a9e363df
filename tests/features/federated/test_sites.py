"""Sites as real services, in processes of their own, some of which are killed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import sfumato
from sfumato import Refused
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.server.console.session import COOKIE
from support.federated_services import Federation, several_services
from support.federated_sites import ASK, NAMES, Between, rows_of
from support.small_vaults import run

COUNT = "SELECT COUNT(*) AS n FROM patients"
SURE: dict[str, Any] = {"epsilon": 20, "delta": 1e-6}  # so that the noise is a few people at most
NEAR = 10  # Skellam noise of variance 4 at most: passed with a chance below 1e-5


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Return four sites that run until the module's tests are over."""
    with several_services(tmp_path_factory.mktemp("sites")) as made:
        yield made


def people(*names: str) -> int:
    """How many patients these sites have."""
    return sum(len(rows_of(place)) for place, name in enumerate(NAMES) if name in names)


def test_four_services_answer_as_one_and_each_is_charged(sites: Federation) -> None:
    before = sites.together().spent("patients")
    stages: list[Any] = []
    said = sites.together(heard=stages.append)["patients"].ask(COUNT, **SURE)
    assert abs(float(str(said.value)) - people(*NAMES)) <= NEAR
    assert [one.stage for one in stages] == ["join", "share", "mask", "agree", "reveal"]
    assert sites.together().spent("patients") == {n: e + 20 for n, e in before.items()}
    assert all(found["ok"] for found in sites.ledgers().values())


@pytest.mark.parametrize(
    ("stage", "is_in"), [("join", False), ("share", False), ("mask", True), ("agree", True)]
)
def test_a_site_whose_door_is_killed_at_a_stage(sites: Federation, stage: str, is_in: bool) -> None:
    """Its secrets are gone: before its numbers were sent it is left out, afterwards it is in."""

    def heard(progress: Any) -> None:
        if progress.stage == stage:
            sites.kill_door("west")

    said = sites.together(heard=heard)["patients"].ask(COUNT, **SURE)
    left = NAMES if is_in else NAMES[:3]
    assert said.receipt["sites"] == list(left)
    assert abs(float(str(said.value)) - people(*left)) <= NEAR
    sites.wait_for("west")
    again = sites.together()["patients"].ask(COUNT, **SURE)  # killed, and returned
    assert again.receipt["sites"] == list(NAMES)
    assert all(found["ok"] for found in sites.ledgers().values())


def test_a_site_that_was_killed_does_not_send_its_part_of_the_round_again(
    sites: Federation,
) -> None:
    way = Between(sites.ways["west"])
    sites.together(west=way)["patients"].ask(COUNT, **SURE)
    ((masked, _),) = way.of("go-on-with-sum", "mask")
    ((joined, _),) = way.of("join-sum")
    sites.kill_door("west")
    sites.wait_for("west")
    spent = sites.together().spent("patients")
    for verb, body, code in (
        ("go-on-with-sum", masked, "sum-message-refused"),
        ("join-sum", joined, "sum-not-trusted"),
    ):
        with pytest.raises(Refused, match=f"^{code}:"):
            sites.ways["west"].call(verb, body)
    assert sites.together().spent("patients") == spent


def test_below_the_floor_there_is_no_sum(sites: Federation) -> None:
    """Two of four are killed at the one moment when the others have sent their numbers."""

    def heard(progress: Any) -> None:
        if progress.stage == "mask":
            for name in ("south", "west"):
                sites.kill_door(name)

    with pytest.raises(Refused, match="the floor is 3, so there is no sum"):
        sites.together(heard=heard)["patients"].ask(COUNT, **SURE)
    for name in ("south", "west"):
        sites.wait_for(name)
    assert sites.together()["patients"].ask(COUNT, **ASK).receipt["left_out"] == {}


def test_the_command_line_asks_them_too(sites: Federation, tmp_path: Path) -> None:
    kept = tmp_path / "sfumato" / "tokens.json"
    kept.parent.mkdir()
    urls = {name: service.url for name, service in sites.services.items()}
    tokens = {urls[name]: sites.services[name].tokens["ada"] for name in urls}
    kept.write_text(json.dumps(tokens))
    agreement = tmp_path / "agreement.json"
    agreement.write_text(json.dumps(sites.agreement))
    ways = [word for name, url in urls.items() for word in ("--site", f"{name}={url}")]
    asked = ("federate", "ask", str(agreement), "patients", COUNT, "--key", str(sites.key))
    price = ("--epsilon", "20", "--delta", "1e-6", *ways)
    spent = sites.together().spent("patients")
    said = run(tmp_path, *asked, *price, "--price", XDG_CONFIG_HOME=str(tmp_path))
    assert "nothing spent yet" in said.stdout, said.stderr
    assert sites.together().spent("patients") == spent
    said = run(tmp_path, *asked, *price, "--json", XDG_CONFIG_HOME=str(tmp_path))
    answer = json.loads(said.stdout)
    assert abs(answer["rows"][0][0] - people(*NAMES)) <= NEAR
    assert answer["receipt"]["sites"] == list(NAMES)
    spent = sites.together().spent("patients")
    average = ("federate", "average", *asked[2:], *ways)
    said = run(tmp_path, *average, XDG_CONFIG_HOME=str(tmp_path))
    assert f"\n{people(*NAMES)}\n" in said.stdout, said.stderr
    assert "secure-average (not DP)" in said.stdout
    assert "allows only 8 more sums without noise" in said.stdout
    assert sites.together().spent("patients") == spent


LESSON: dict[str, Any] = {
    "features": ["age"], "target": "ill", "people": 480, "rounds": 3, "clip": 1, "rate": 2.0,
}  # fmt: skip


def test_four_services_train_a_model_while_one_is_killed_and_comes_back(sites: Federation) -> None:
    before, heard = sites.together().spent("patients"), list[Any]()

    def killed_once(step: Any) -> None:
        heard.append(step)
        if step.number == 1:
            sites.kill_door("west")
        if step.number == 2:
            sites.wait_for("west")

    model = sites.together().train("patients", heard=killed_once, **LESSON, **SURE)
    assert [step.failed for step in heard] == [None, None, None]
    assert heard[0].sites == heard[2].sites == NAMES
    assert set(heard[1].sites) >= set(NAMES[:3])  # west may be back already
    assert model.card["rounds"] == 3
    assert sites.together().spent("patients") == {n: e + 20 for n, e in before.items()}
    assert all(found["ok"] for found in sites.ledgers().values())


def test_a_lesson_is_followed_in_the_console_while_it_goes_on(sites: Federation) -> None:
    """The owner's page listens to its site; each round is told there before the next one begins."""
    service = sites.services["west"]
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=300)
    stream: list[http.client.HTTPResponse] = []
    told: list[tuple[list[int], bool]] = []

    def listen(step: Any) -> None:
        if step.number == 1:
            headers = {"Cookie": f"{COOKIE}={service.owner()}"}
            connection.request("GET", "/data-sets/patients/lessons/events", headers=headers)
            stream.append(connection.getresponse())
        rounds: list[int] = []
        said: dict[str, Any] = {}
        while len(rounds) < step.number:
            line = stream[0].readline()
            assert line, told
            if line.startswith(b"data: "):
                said = json.loads(line.removeprefix(b"data: "))
                rounds = [one["round"] for one in said["lessons"][0]["told"]]
        told.append((rounds, said["state"] == "done"))

    try:
        sites.together().train("patients", heard=listen, **LESSON, **SURE)
        assert told == [([1], False), ([1, 2], False), ([1, 2, 3], True)]
        assert stream[0].read().strip() == b""  # nothing is told of what is over
    finally:
        connection.close()


def test_the_command_line_trains_too(sites: Federation, tmp_path: Path) -> None:
    kept = tmp_path / "sfumato" / "tokens.json"
    kept.parent.mkdir()
    urls = {name: service.url for name, service in sites.services.items()}
    kept.write_text(json.dumps({urls[n]: sites.services[n].tokens["ada"] for n in urls}))
    agreement, public = tmp_path / "agreement.json", tmp_path / "public.csv"
    agreement.write_text(json.dumps(sites.agreement))
    public.write_text("age,ill\n30,false\n70,true\n")
    ways = [word for name, url in urls.items() for word in ("--site", f"{name}={url}")]
    out = tmp_path / "ill.safetensors"
    asked = (
        "federate", "train", str(agreement), "patients", "ill", "--features", "age",
        "--rounds", "2", "--people", "480", "--epsilon", "20", "--delta", "1e-6", "--hidden", "3",
        "--test", str(public), "--out", str(out), "--key", str(sites.key), *ways,
    )  # fmt: skip
    said = run(tmp_path, *asked, "--max-rows", "2", XDG_CONFIG_HOME=str(tmp_path))
    assert "must not exceed the data card's max_rows" in said.stderr
    said = run(tmp_path, *asked, XDG_CONFIG_HOME=str(tmp_path))
    assert "east has paid epsilon 20." in said.stdout, said.stderr
    assert "round 2: 4 sites; loss" in said.stderr
    assert b"central-dp" in out.read_bytes()
    assert "sample" not in said.stdout
    said = run(tmp_path, *asked, "--sample", "0.1", XDG_CONFIG_HOME=str(tmp_path))
    assert "everybody is in it with chance 0.1" in said.stdout, said.stderr
    assert b'\\"sample\\": 0.1' in out.read_bytes()
    more = ("--image", "1x1x1", "--conv", "channels=2,kernel=1", "--features", "age,zip")
    said = run(tmp_path, *asked, *more, "--embed", "zip=2", XDG_CONFIG_HOME=str(tmp_path))
    assert said.returncode == 3  # public.csv has no zip
    assert "cannot be evaluated on the public rows (KeyError: 'zip')" in said.stderr
    public.write_text("age,zip,ill\n30,10001,false\n70,10002,true\n")
    said = run(tmp_path, *asked, *more, "--embed", "zip=2", XDG_CONFIG_HOME=str(tmp_path))
    assert "numbers with 1 convolution and 1 table of entries learns ill" in said.stdout, (
        said.stderr
    )
    assert TrainedModel.load(out).network.sides[:2] == ((2, 1, 2), (2, 2, 0))
    said = run(tmp_path, *asked, "--conv", "kernel=x", XDG_CONFIG_HOME=str(tmp_path))
    assert "'x' is not a whole number" in said.stderr


def test_who_was_not_granted_at_a_site_cannot_ask_it_there(sites: Federation) -> None:
    service = sites.services["west"]
    with sfumato.connect(service.url, token=service.user("eve", "researcher")) as eve:
        said = sites.together(west=eve)["patients"].ask(COUNT, **SURE)
    assert said.receipt["left_out"] == {"west": "unknown-data-set"}
