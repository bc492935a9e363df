"""The blocks of docs/how-to/serving.md do what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from support.command_line import entry
from support.postgres_server import running
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, run, write_patients

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "serving.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
HOUSE = "http://localhost:8765"  # as the page has it


def only(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with a data set that alice may ask."""
    folder = tmp_path_factory.mktemp("served")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        opened.add("clinic", write_patients(folder / "patients.csv"), card(PATIENTS_CARD))
        opened.enrol("alice", "researchers")
    with served(vault) as started:
        yield started


def shell(folder: Path, house: str, script: str) -> list[Any]:
    """Run a block as a reader would, and return the lines of JSON that came."""
    entry(folder)
    settings = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    ran = subprocess.run(
        ["bash", "-ec", script.replace(HOUSE, house)], cwd=folder, env=settings,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) if line[0] == "{" else line for line in ran.stdout.splitlines()]


def test_a_certificate_of_your_own_is_made_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    make = only("sh")[1]
    subprocess.run(["bash", "-ec", make], cwd=tmp_path, check=True, capture_output=True)
    kept, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert secret.stat().st_mode & 0o077 == 0
    options = ("--tls-cert", str(kept), "--tls-key", str(secret), "--name", "teacher.local")
    with served(make_vault(tmp_path), *options) as running_:
        monkeypatch.setenv("SSL_CERT_FILE", str(kept))
        port = running_.url.rpartition(":")[2]
        sfumato.connect(f"https://localhost:{port}", token="").close()


def test_a_researcher_with_curl_alone_prices_asks_is_refused_and_verifies(
    service: Service, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    _, _, _, coming_in, asking = only("sh")
    invited = {"user": "alice", "roles": ["researcher"]}
    made = service.call("POST", "/v1/users", invited, token=service.owner())[1]
    own = coming_in.replace("' INVITATION ", f"' {made['invitation']} ")
    (cards,) = shell(tmp_path, service.url, own)
    assert [one["name"] for one in cards["data_sets"]] == ["clinic"]
    assert (tmp_path / "me.txt").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "take-up.json").exists()
    price, again, budget, refused, *verified = shell(tmp_path, service.url, asking)
    assert price["epsilon"] == 0.5
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert again["rows"] == answer["rows"]
    assert again["receipt"]["free"]
    assert budget["spent"]["epsilon"] == 0.5
    assert refused["refused"]["code"] == "budget-exceeded"
    assert verified[0].startswith("The receipt is valid: entry ")
    (python,) = only("python")
    ran = subprocess.run(
        [sys.executable, "-c", python.replace(HOUSE, service.url)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_the_page_starts_a_service_as_the_tests_do() -> None:
    assert only("sh")[0] == "sfumato serve --vault clinic-vault\n"
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.S)
    assert "\n    " not in prose, "a block that nobody runs"


def test_the_sealed_vault_of_the_page_is_made(tmp_path: Path) -> None:
    make, _, serve = only("sh")[2].splitlines()
    words = shlex.split(
        make.replace("~", str(tmp_path)).replace("clinic-vault", str(tmp_path / "v"))
    )
    made = run(tmp_path, *words[1:])
    assert made.returncode == 0, made.stderr
    assert "If you lose the key, you lose the rows" in made.stdout
    key = f"{tmp_path}/.config/sfumato/clinic.key"
    assert re.fullmatch(r"[0-9a-f]{64}\n", Path(key).read_text())
    for name in (key, f"command:cat {key}"):
        sfumato.open(tmp_path / "v", at_rest_key=name).close()
    assert serve + "\n" == only("sh")[0]


def test_rows_come_by_the_connection_of_the_page(tmp_path: Path) -> None:
    (file, *_), (role,) = only("toml"), only("sql")
    vault = make_vault(tmp_path)
    with running() as server:
        server.run("CREATE TABLE public.visits (patient_id int, age int)")
        server.run("INSERT INTO visits SELECT n, n % 90 FROM generate_series(1, 300) n")
        for statement in role.strip().split("\n"):
            server.run(statement)
        address = re.search(r'"(postgresql:.*)"', file)
        assert address is not None
        own = file.replace(address[1], server.database_url("postgres", "reader"))
        (tmp_path / "clinic.toml").write_text(own.replace('"mara"', '"owner"'))
        (tmp_path / "clinic.toml").chmod(0o600)
        text = 'unit = "patient_id"\npeople = "town"\nbudget = { epsilon = 1 }\n'
        (tmp_path / "visits.card.toml").write_text(text + '[columns.age]\ntype = "integer"\n')
        options = ("--connection", f"clinic={tmp_path / 'clinic.toml'}")
        source = "connection:clinic/public.visits"
        added = run(
            vault, "add", "visits", source, *options, "--card", str(tmp_path / "visits.card.toml")
        )
        assert added.returncode == 0, added.stderr
