"""`sfumato audit --command` and `--url`: real processes and a real service, right and broken."""

from __future__ import annotations

import json
import math
import random
import shlex
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from sfumato.app.command_line import main
from support.small_vaults import run

# A count with discrete Laplace noise of some epsilon, as a stranger would write it.
PROGRAM = """
import math, random, sys
def noise(epsilon):
    return math.floor(math.log(1 - random.random()) / -epsilon)
with open(sys.argv[1]) as rows:
    count = len(rows.readlines())
print(count + noise(float(sys.argv[2])) - noise(float(sys.argv[2])))
"""


def drawn(epsilon: float) -> int:
    return math.floor(math.log(1 - random.random()) / -epsilon)


class Counts(BaseHTTPRequestHandler):
    """Answers /EPSILON/NAMES with a noisy count of the names; POST does the same for a body."""

    protocol_version = "HTTP/1.1"
    wbufsize = 4096  # head and body in one write, or each answer waits for an acknowledgement

    def do_GET(self) -> None:  # http.server's name
        _, epsilon, names = self.path.split("/")
        self._answer(float(epsilon), unquote(names))

    def do_POST(self) -> None:  # http.server's name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer secret":
            self._send(401, "no")
        else:
            self._answer(float(body["epsilon"]), body["of"]["names"])

    def _answer(self, epsilon: float, names: str) -> None:
        count = len(names.split(","))
        noise = drawn(epsilon) - drawn(epsilon) if epsilon else 0
        self._send(200, json.dumps({"rows": [[count + noise]], "asked": names}))

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Counts) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Return the command of a program that counts the rows of a file; two files lie beside it."""
    (tmp_path / "count.py").write_text(PROGRAM)
    (tmp_path / "a.csv").write_text("ada\nbob\n")
    (tmp_path / "b.csv").write_text("ada\nbob\neve\n")
    return f"{shlex.quote(sys.executable)} -I -S {tmp_path}/count.py {tmp_path}/{{data}}"


OF_SERVICE = ("--pair", "ada,bob", "ada,bob,eve", "--epsilon", "1", "--rows-only", "--json")
OF_FILES = ("--pair", "a.csv", "b.csv", "--epsilon", "1", "--runs", "256")


def test_a_program_that_counts_exactly_is_caught(tmp_path: Path, program: str) -> None:
    del program  # its files are asked
    exact = f"grep -c '' {tmp_path}/{{data}}"
    found = run(tmp_path, "audit", "--command", exact, *OF_FILES)
    assert found.returncode == 3, found.stderr
    assert "The claim of epsilon 1 is broken" in found.stdout


def test_a_program_with_enough_noise_is_not_accused(tmp_path: Path, program: str) -> None:
    found = run(tmp_path, "audit", "--command", f"{program} 1", *OF_FILES, "--json")
    assert found.returncode == 0, found.stderr
    shape = json.loads(found.stdout)
    (one,) = shape["audits"]
    assert (one["verdict"], one["runs"]) == ("not accused", 256)
    assert shape["could_prove"] > 2


def test_a_service_with_half_the_noise_is_caught_and_a_right_one_is_not(
    tmp_path: Path, host: str
) -> None:
    wrong = run(tmp_path, "audit", "--url", f"{host}/2/{{data}}", *OF_SERVICE)
    assert wrong.returncode == 3, wrong.stderr
    assert json.loads(wrong.stdout)["audits"][0]["at_least"] > 1
    right = run(tmp_path, "audit", "--url", f"{host}/1/{{data}}", *OF_SERVICE)
    assert right.returncode == 0, right.stdout
    assert json.loads(right.stdout)["audits"][0]["at_least"] < 1  # 0 where halves fell badly


def test_a_body_is_posted_with_headers_of_a_file(tmp_path: Path, host: str) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer secret\n\n")
    body = json.dumps({"epsilon": 0, "of": {"names": "{data}"}})
    asked = ("audit", "--url", host, "--body", body, *OF_SERVICE)
    found = run(tmp_path, *asked, "--header", f"@{tmp_path}/headers")
    assert found.returncode == 3, found.stderr
    assert json.loads(found.stdout)["audits"][0]["runs"] == 256
    refused = run(tmp_path, *asked)
    assert "The service fails on both inputs" in json.loads(refused.stdout)["refused"]["cause"]


WRONG = {
    "both": (("--command", "true {data}", "--url", "http://x/{data}", *OF_FILES), "not both"),
    "no pair": (("--command", "true {data}", "--epsilon", "1"), "two neighbouring inputs"),
    "no epsilon": (("--command", "true {data}", "--pair", "a", "b"), "two neighbouring inputs"),
    "one input": (("--command", "true {data}", "--pair", "a", "a", "--epsilon", "1"), "the same"),
    "no place": (("--command", "true", *OF_FILES), "{data} is missing"),
    "no program": (("--command", "no-such-program {data}", *OF_FILES), "was not found"),
    "open quotes": (("--command", "true '{data}", *OF_FILES), "unclosed quote"),
    "failing": (("--command", "false {data}", *OF_FILES), "fails on both"),
    "no service": (("--url", "http://127.0.0.1:1/{data}", *OF_FILES), "fails on both"),
    "no JSON": (
        ("--url", "http://127.0.0.1:1", "--body", "{data}", *OF_FILES),
        "not a JSON object",
    ),
    "no header": (("--url", "http://x/{data}", "--header", "X", *OF_FILES), "header"),
    "no file": (
        ("--url", "http://x/{data}", "--header", "@none", *OF_FILES),
        "cannot read the file",
    ),
    "too few": (
        ("--command", "true {data}", *OF_FILES[:3], "--epsilon", "3"),
        "could never find a violation",
    ),
    "a name": (("COUNT(*)", "--command", "true {data}", *OF_FILES), "but not both"),
    "no target": (("--pair", "a", "b", "--epsilon", "1"), "your own"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_audit_that_could_show_nothing_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, says = WRONG[name]
    few = ("--runs", "256") if name == "too few" else ()
    monkeypatch.setattr(sys, "argv", ["sfumato", "audit", *asked, *few, "--json"])
    assert main() == 3
    assert says in json.loads(capsys.readouterr().out)["refused"]["cause"]
