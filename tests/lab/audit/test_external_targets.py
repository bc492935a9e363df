"""Real commands and a real service under audit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import sfumato
from sfumato.lab.audit import Request, audit_command, audit_http, rows_or_code
from support.served_vault import Service, served
from support.small_vaults import card, make_vault, run, write_csv

CARD = """
unit = "who"
people = "people-of-%s"
version = "1"
budget = { epsilon = 1000, delta = 0 }
[ask]
who = ["researchers"]
[columns.n]
type = "integer"
lower = 0
upper = 1
"""
NOISY = "import random, sys; print(int(sys.argv[1]) + round(random.gauss(0, 50)))"
# As few imports as Python can start with: hundreds of processes are run.
QUICK = (sys.executable, "-I", "-S", "-c")


def dice(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_command_that_is_late_on_one_side_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.lab.audit.external_targets.TIMEOUT_S", 0.08)
    command = [*QUICK, "import sys, time; time.sleep(int(sys.argv[1]))", "{data}"]
    found = audit_command(command, "0", "30", epsilon=0.1, most=256, alpha=0.05, dice=dice())
    assert found.is_violated


def test_a_host_that_answers_one_side_only_is_caught() -> None:
    class Quiet(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            if self.path == "/there":
                self.send_response(200)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        there, gone = Request(f"{at}/there"), Request(f"{at}/gone")
        found = audit_http(there, gone, epsilon=1, most=256, dice=dice())
        server.shutdown()
    assert found.is_violated


def test_a_command_that_prints_the_truth_is_caught() -> None:
    command = [*QUICK, "import sys; print(len(sys.argv[1]))", "{data}"]
    found = audit_command(command, "people", "people and one", epsilon=1, most=256, dice=dice())
    assert found.is_violated
    assert found.samples == 256


def test_a_command_that_ends_with_another_status_is_caught() -> None:
    command = [*QUICK, "import sys; sys.exit(int(sys.argv[1]))", "{data}"]
    found = audit_command(command, "0", "1", epsilon=1, most=256, dice=dice())
    assert found.is_violated
    assert "status" in found.view or found.view == "the whole output"


@pytest.mark.parametrize(
    "said",
    [
        "sys.stdout.buffer.write(b'5\\r\\n' if sys.argv[1] == '1' else b'5\\n')",
        "print('{\"n\": 5}' if sys.argv[1] == '1' else '{\"n\":5}')",
        'print(\'{"n": 4, "n": 5}\' if sys.argv[1] == \'1\' else \'{"n": 3, "n": 5}\')',
        "sys.stdout.buffer.write(b'\\xff5' if sys.argv[1] == '1' else b'\\xff4')",
    ],
    ids=["line end", "blank in JSON", "name twice in JSON", "behind what is no text"],
)
def test_what_a_command_prints_is_looked_at_to_the_byte(said: str) -> None:
    command = [*QUICK, f"import sys; {said}", "{data}"]
    assert audit_command(command, "0", "1", epsilon=1, most=256, dice=dice()).is_violated


def test_what_a_service_says_in_its_headers_is_looked_at() -> None:
    class Talker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            self.send_response(200)
            self.send_header("X-Rows", str(len(self.path)))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Talker) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        found = audit_http(
            Request(f"{at}/a"), Request(f"{at}/ab"), epsilon=1, most=256, dice=dice()
        )
        server.shutdown()
    assert found.is_violated


@pytest.mark.slow
def test_a_command_with_much_noise_is_not_accused() -> None:
    found = audit_command([*QUICK, NOISY, "{data}"], "10", "11", epsilon=1, most=256, dice=dice())
    assert not found.is_violated


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with neighbouring data sets: ten people and one more, twice."""
    folder = tmp_path_factory.mktemp("audited")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        for name, people in (("ten", 10), ("eleven", 11), ("tens", 10), ("elevens", 11)):
            rows = [(f"{name}-{place}", 1) for place in range(people)]
            opened.add(
                name, write_csv(folder / f"{name}.csv", ("who", "n"), rows), card(CARD % name)
            )
        opened.enrol("ada", "researchers")
    with served(vault) as running:
        running.user("ada", "researcher")
        yield running


def request(service: Service, name: str, epsilon: float) -> Request:
    body = {"sql": f"SELECT COUNT(*) AS c FROM {name}", "epsilon": epsilon, "fresh": True}
    headers = {"Authorization": f"Bearer {service.tokens['ada']}"}
    return Request(f"{service.url}/v1/data-sets/{name}/ask", body, headers)


@pytest.mark.slow
def test_a_service_is_not_accused_of_more_than_was_paid(service: Service) -> None:
    ten, eleven = (request(service, name, 1) for name in ("ten", "eleven"))
    found = audit_http(ten, eleven, epsilon=1, most=256, dice=dice(), read=rows_or_code)
    assert not found.is_violated
    assert found.samples == 256


def test_a_service_that_sold_more_than_it_said_would_be_caught(service: Service) -> None:
    ten, eleven = (request(service, name, 4) for name in ("ten", "eleven"))
    found = audit_http(ten, eleven, epsilon=1, most=512, dice=dice(), read=rows_or_code)
    assert found.is_violated


def test_what_a_service_says_besides_gives_two_data_sets_away_at_once(service: Service) -> None:
    """The receipt names the data set: who audits all that is said has to read what is private."""
    ten, eleven = (request(service, name, 0.001) for name in ("ten", "eleven"))
    assert audit_http(ten, eleven, epsilon=1, most=1024, dice=dice()).is_violated


def test_the_command_audits_a_service(service: Service, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {service.tokens['ada']}\n")
    body = '{"sql": "SELECT COUNT(*) AS c FROM {data}", "epsilon": 4, "fresh": true}'
    found = run(
        tmp_path, "audit", "--url", f"{service.url}/v1/data-sets/{{data}}/ask", "--body", body,
        "--header", f"@{tmp_path}/headers", "--pair", "tens", "elevens", "--epsilon", "1",
        "--runs", "512", "--rows-only",
    )  # fmt: skip
    assert found.returncode == 3, found.stderr
    assert "The claim of epsilon 1 is broken" in found.stdout
