"""Nothing of the rows is anywhere but in the vault's own tables: not in a log, body or file."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

import sfumato
from sfumato.server.console.console_routes import PAGES
from sfumato.server.console.session import csrf_of
from sfumato.wire.json_text import json_text
from support.browser import COOKIE
from support.row_canaries import (
    CARD,
    NAMES,
    NUMBERS,
    SUM,
    TOTALS,
    controls,
    found_in,
    write_canaries,
)
from support.served_vault import PASSWORD, Service, served
from support.service_with_users import ROLES, invite_all, peopled_vault
from support.survey_fixtures import design

ROWS = ("tables", "people", "spill", "streams", "incoming", "runs")  # where rows may lie
ASK, PRICE = "/v1/data-sets/patients/ask", "/v1/data-sets/patients/price"
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM patients", "SELECT SUM(salary) AS s FROM patients",
    "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip", "SELECT AVG(salary) FROM patients",
    "SELECT note, COUNT(*) AS n FROM patients GROUP BY note", "SELECT * FROM patients",
    "SELECT COUNT(*) FROM patients WHERE salary > 31415926", "SELECT name FROM patients",
    "SELECT SUM(CAST(note AS INTEGER)) FROM patients", "SELECT error(name) FROM patients",
    "SELECT COUNT(*) FROM patients WHERE note LIKE '%x'", "SELECT 1/0 FROM patients",
    "SELECT COUNT(DISTINCT note) AS n FROM patients", "SELECT MAX(name) FROM patients",
    "SELECT COUNT(*) FROM duckdb_tables()", "SELECT COUNT(*) FROM 'tables/*.parquet'",
)  # fmt: skip


@dataclass
class Heard:
    """Everything that came back over HTTP, whole."""

    service: Service
    folder: Path
    said: list[bytes] = field(default_factory=list)
    pages: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # by role and address

    def visit(self, who: str, path: str, fields: Mapping[str, str] | None = None) -> bytes:
        """Open a page of the console's as a browser does, or send its form; return all of it."""
        token = self.service.tokens[who]
        link = http.client.HTTPConnection("127.0.0.1", urlsplit(self.service.url).port, timeout=60)
        sent = {"Cookie": f"{COOKIE}={token}", "Host": "localhost", "Sec-Fetch-Site": "same-origin"}
        form = None
        if fields is not None:
            form = urlencode({"csrf": csrf_of(token), **fields})
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            link.request("GET" if form is None else "POST", path, form, sent)
            reply = link.getresponse()
            self.pages.setdefault((who, path), []).append(reply.status)
            return str(reply.getheaders()).encode() + reply.read()
        finally:
            link.close()

    def send(self, method: str, path: str, token: str, body: object = None) -> int:
        """Send a request and keep all of its reply; return its status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None
        link = http.client.HTTPConnection("127.0.0.1", urlsplit(self.service.url).port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            link.request(method, path, data, {**headers, "Host": "localhost"})
            reply = link.getresponse()
            self.said += [str(reply.getheaders()).encode(), reply.read()]
            return reply.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            link.close()


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Return the temporary folder of the service."""
    made = Path(tempfile.mkdtemp(prefix="sf-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> Iterator[Heard]:
    """Return what a service said that was driven through everything."""
    folder = tmp_path_factory.mktemp("canaries")
    source = write_canaries(folder / "rows.csv")
    vault = peopled_vault(folder, text=CARD, source=source)
    with served(vault, "--log", TMPDIR=str(temporary)) as service:
        invite_all(service)
        everything = Heard(service, vault)
        _ask_everything(everything)
        _upload(everything, source)
        _kill_while_asking(everything, "duckdb")
        _kill_while_asking(everything, "door")
        _read_everything(everything)
        _visit_everything(everything)
        yield everything


def _ask_everything(heard: Heard) -> None:
    for number, sql in enumerate(QUESTIONS):
        for token in (heard.service.tokens["ada"], heard.service.owner()):
            heard.send("POST", PRICE, token, {"sql": sql, "epsilon": 0.002})
            heard.send("POST", ASK, token, {"sql": sql, "epsilon": 0.002, "op": f"q{number}"})
    token = heard.service.tokens["ada"]
    for body in (b"", b"{", b"[]", b'{"sql": 1}', b'{"sql": "SELECT"}', b"\xff", b"{}" * 9):
        heard.send("POST", ASK, token, body)
    too_much = {"sql": QUESTIONS[0], "epsilon": 2.5}
    assert heard.send("POST", ASK, token, too_much) == 422


def _upload(heard: Heard, source: Path) -> None:
    token = heard.service.owner()
    for name, data in (
        ("rows.csv", source.read_bytes()), ("bad.csv", b'a,b\n"' + source.read_bytes()[:5000]),
        ("bad.parquet", source.read_bytes()[:5000]),
    ):  # fmt: skip
        heard.send("PUT", f"/v1/uploads?name={name}", token, data)
        made = json.loads(heard.said[-1]).get("upload")
        if made:
            heard.send("GET", f"/v1/uploads/{made}", token)
            bad = {"name": f"copy of {name}", "upload": made, "card": {"unit": "note"}}
            heard.send("POST", "/v1/data-sets", token, bad)


def _kill_while_asking(heard: Heard, what: str) -> None:
    """Kill the door, or the processes that read rows for it, while questions run."""
    token = heard.service.owner()

    def ask() -> None:
        for n in range(8):
            sql = f"SELECT SUM(salary) AS s FROM patients WHERE salary > {n + len(what)}"
            heard.send("POST", ASK, token, {"sql": sql, "epsilon": 0.002})

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(4):
        time.sleep(0.15)
        doors = [p for p in _children(heard.service.process.pid) if b"door" in _line(p)]
        doomed = doors if what == "door" else [w for door in doors for w in _children(door)]
        for process in doomed[:1]:
            os.kill(process, signal.SIGKILL)
    asking.join()
    deadline = time.monotonic() + 180
    while heard.send("GET", "/v1/me", token) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _read_everything(heard: Heard) -> None:
    for path in ("/metrics", "/v1/metrics", "/healthz", "/openapi.json", "/v1/questions",
                 "/v1/ledger?limit=1000", "/v1/ledger/verify", "/v1/releases", "/v1/policies",
                 "/v1/data-sets", "/v1/data-sets/patients", "/v1/data-sets/patients/budget",
                 "/v1/jobs", "/v1/approvals", "/v1/data-sets/patients/spending",
                 "/v1/data-sets/patients/frozen", "/", "/data-sets"):  # fmt: skip
        for name in ("owner", "ada", "vera", "otto"):
            heard.send("GET", path, heard.service.tokens[name])


PROGRAM = "def mean(rows):\n    return rows['salary'].mean()\n"


def _pages(heard: Heard) -> dict[str, list[str]]:
    """Return the addresses of each page that is shown, with what there is to be shown."""
    token, at, lock = heard.service.owner(), "/data-sets/patients", "/airlock/none"
    rows = b"patient_id,age\nx,1\n"
    made = heard.service.call("PUT", "/v1/uploads?name=a.csv", rows, token=token)[1]["upload"]
    asked = {"data_set": "patients", "sql": QUESTIONS[0], "epsilon": 0.002, "op": "a job"}
    job = heard.service.call("POST", "/v1/jobs", asked, token=token)[1]["job"]
    auditor = heard.service.tokens["vera"]
    found = heard.service.call("GET", "/v1/releases?limit=100", token=auditor)[1]["releases"]
    entries = [str(one["entry"]) for one in found]
    ops = [f"q{number}" for number in range(len(QUESTIONS))]
    looks = [f"{op}&y={y}&look=light" for op in ops for y in ("n", "s")]
    survey = heard.service.call("POST", "/v1/surveys", {"survey": design()}, token=token)[1]
    of = f"/s/{survey['survey']}"
    pipelines = "/v1/data-sets/patients/pipelines"
    shape = {"source": PROGRAM, "name": "mean", "columns": ["salary"],
             "outputs": [{"name": "m", "lower": 0, "upper": 120_000}]}  # fmt: skip
    program = heard.service.call("POST", pipelines, shape, token=token)[1]["digest"]
    terms = {"epsilon": 0.002, "blocks": 2, "op": "a run"}
    ran = heard.service.call("POST", f"{pipelines}/{program}/runs", terms, token=token)
    assert ran[0] == 200, ran
    programs, run = f"{at}/programs", f"{at}/program-answer"
    return {
        "/data-sets/{data_set}/programs": [programs],
        "/data-sets/{data_set}/programs/new": [f"{programs}/new"], "/images": ["/images"],
        "/data-sets/{data_set}/programs/{pipeline}": [f"{programs}/{program}"],
        "/data-sets/{data_set}/programs/{pipeline}/review": [f"{programs}/{program}/review"],
        "/data-sets/{data_set}/program-answer": [f"{run}?op=a%20run"],
        "/data-sets/{data_set}/program-answer/numbers.csv": [f"{run}/numbers.csv?op=a%20run"],
        "/data-sets/{data_set}/program-answer/answer.json": [f"{run}/answer.json?op=a%20run"],
        "/surveys": ["/surveys"], "/surveys/new": ["/surveys/new"],
        "/surveys/{survey}": [f"/surveys/{survey['survey']}"], "/s/{survey}": [of],
        "/s/{survey}/results": [f"{of}/results"], "/s/{survey}/reports": [f"{of}/reports"],
        "/s/{survey}/reports.csv": [f"{of}/reports.csv"], "/s/{survey}/paper": [f"{of}/paper"],
        "/": ["/"], "/sign-in": ["/sign-in"], "/welcome/{invitation}": ["/welcome/sfm1_x"],
        "/data-sets": ["/data-sets"], "/data-sets/{data_set}": [at],
        "/data-sets/{data_set}/ask": [f"{at}/ask"],
        "/data-sets/{data_set}/twin": [f"{at}/twin"],
        "/data-sets/{data_set}/dp-twin": [f"{at}/dp-twin"],
        "/data-sets/{data_set}/airlock": [f"{at}/airlock"], "/airlock/{request}": [lock],
        "/data-sets/{data_set}/lessons": [f"{at}/lessons"],
        "/data-sets/{data_set}/lessons/events": [f"{at}/lessons/events"],
        "/data-sets/{data_set}/airlock/new": [f"{at}/airlock/new"],
        "/airlock/{request}/file": [f"{lock}/file?path=t.csv"],
        "/airlock/{request}/files": [f"{lock}/files"],
        "/data-sets/{data_set}/manage": [f"{at}/manage"],
        "/data-sets/{data_set}/amend": [f"{at}/amend"],
        "/data-sets/{data_set}/append": [f"{at}/append"],
        "/data-sets/{data_set}/append/{upload}": [f"{at}/append/{made}"],
        "/answer": [f"/answer?op={op}" for op in ops],
        "/answer/picture.svg": [f"/answer/picture.svg?op={look}" for look in looks],
        "/answer/table.csv": [f"/answer/table.csv?op={op}" for op in ops],
        "/answer/answer.json": [f"/answer/answer.json?op={op}" for op in ops],
        "/history": ["/history"], "/releases": ["/releases"],
        "/releases/{entry}": [f"/releases/{entry}" for entry in entries[:8]],
        "/releases/{entry}/sheet.json": [f"/releases/{entry}/sheet.json" for entry in entries[:8]],
        "/ledger": ["/ledger", "/ledger?verify=1"], "/policies": ["/policies"],
        "/approvals": ["/approvals"], "/uploads": ["/uploads"],
        "/uploads/{upload}": [f"/uploads/{made}"],
        "/connections": ["/connections?connection=x&table=y"],
        "/jobs/{job}": [f"/jobs/{job}"], "/jobs/{job}/events": [f"/jobs/{job}/events"],
        "/tokens": ["/tokens"], "/users": ["/users"], "/lab": ["/lab"],
        "/lab/{exhibit}": ["/lab/linkage"], "/lab/{exhibit}/live": ["/lab/linkage/live"],
        "/lab/{exhibit}/picture.svg": ["/lab/linkage/picture.svg?look=light"],
    }  # fmt: skip


def _visit_everything(heard: Heard) -> None:
    """Open every page as everybody, and ask, price and begin what was asked before by its form."""
    addresses = _pages(heard)
    assert {page.path for page in PAGES if page.method == "GET"} == set(addresses)
    for who in ROLES:
        for paths in addresses.values():
            heard.said += [heard.visit(who, path) for path in paths]
        for number, sql in enumerate(QUESTIONS):
            typed = {"sql": sql, "epsilon": "0.002", "op": f"form {number}"}
            for verb in ("ask", "price", "price/live", "ask/job"):
                heard.said.append(heard.visit(who, f"/data-sets/patients/{verb}", typed))


def _children(process: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        return [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []


def _line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("form", "text"), list(controls()), ids=lambda x: str(x)[:25])
def test_the_search_finds_every_form(form: str, text: bytes) -> None:
    assert found_in(text), form


def test_the_search_finds_what_is_in_the_tables(heard: Heard) -> None:
    """The rows are there, and found: where they may be."""
    folder = heard.folder
    everywhere = b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    assert len(found_in(everywhere)) >= 20
    assert len(set(NAMES) | set(NUMBERS)) == 40
    assert len(TOTALS) == 3


def test_no_body_and_no_header_holds_a_row_or_a_true_total(heard: Heard) -> None:
    assert len(heard.said) > 150
    for seen in (b'"rows"', b"question-failed", b"budget-exceeded", b"bad-request"):
        assert any(seen in body for body in heard.said), seen
    assert found_in(b"\n".join(heard.said)) - released(heard) == set()


def released(heard: Heard) -> set[str]:
    """Return the totals that a noisy answer was equal to: now and then one is, by chance."""
    rows = [row for body in heard.said for row in re.findall(rb'"rows": ?\[\[(.*?)\]\]', body)]
    numbers = {word.decode() for row in rows for word in re.findall(rb"[0-9]+", row)}
    return numbers & set(TOTALS)


@pytest.mark.parametrize("method", ["independent", "mst"])
def test_no_twin_and_no_report_of_its_error_holds_a_row(tmp_path: Path, method: str) -> None:
    """Its noisy counts may be a true total by chance, and of thirty made-up rows hardly one is."""
    source = write_canaries(tmp_path / "rows.csv")
    terms: dict[str, object] = {"data_set": "patients", "epsilon": 0.01, "error_epsilon": 0.01}
    terms |= {"method": method, "private_bins": ["salary"]}
    with sfumato.open(peopled_vault(tmp_path, text=CARD, source=source)) as vault:
        said = [vault.call("dp-twin-price", terms), vault.call("dp-twin", {**terms, "rows": 30})]
    assert "error" in dict(said[1]["stamp"])  # type: ignore[call-overload]  # of a twin
    text = json_text(said).encode()
    assert found_in(text) - set(TOTALS) == set()
    assert found_in(text + NAMES[0].encode()) - set(TOTALS) == {NAMES[0]}


def test_every_page_was_seen_by_who_may_see_it(heard: Heard) -> None:
    """So the pages among the bodies are full ones; and a search of a page finds what is on it."""
    seen = {who: {p.partition("?")[0] for (w, p), s in heard.pages.items() if w == who and 200 in s}
            for who in ROLES}  # fmt: skip
    both = {"/data-sets", "/data-sets/patients", "/data-sets/patients/ask", "/answer", "/history"}
    assert both | {"/answer/picture.svg", "/answer/table.csv"} <= seen["ada"]
    assert both | {"/data-sets/patients/manage", "/uploads", "/approvals"} <= seen["owner"]
    assert {"/releases", "/ledger", "/policies"} <= seen["vera"]
    assert "/users" in seen["otto"]
    assert not both & seen["vera"]
    typed = {"sql": f"SELECT {NAMES[3]} FROM patients WHERE salary > {SUM:,}", "epsilon": "0.1"}
    page = heard.visit("ada", "/data-sets/patients/price", typed)  # which shows what was typed
    assert found_in(page) == {NAMES[3], str(SUM)}


def test_no_log_holds_one(heard: Heard) -> None:
    assert sum(line.startswith("{") for line in heard.service.said) > 50
    assert any("the door process ended" in line for line in heard.service.said)
    assert found_in("".join(heard.service.said).encode()) == set()
    assert not any("Traceback" in line for line in heard.service.said)


def test_no_file_but_the_tables_holds_one(heard: Heard, temporary: Path) -> None:
    folder = heard.folder
    kept = [
        p for p in folder.rglob("*") if p.is_file() and p.relative_to(folder).parts[0] not in ROWS
    ]
    assert {"ledger.sqlite", "catalogue.sqlite", "vault.json"} <= {p.name for p in kept}
    others = [p for p in temporary.rglob("*") if p.is_file()]
    for path in (*kept, *others):
        assert found_in(path.read_bytes()) == set(), path
    names = [path.relative_to(folder) for path in folder.rglob("*")]  # of the tables, too
    names += [path.relative_to(temporary) for path in temporary.rglob("*")]
    assert found_in("\n".join(map(str, names)).encode()) == set()


def test_no_file_of_a_clients_home_holds_one(heard: Heard, tmp_path: Path) -> None:
    """A laptop that is lost, after a hundred questions, holds a token and nothing that was said."""
    home = tmp_path / "home"
    home.mkdir()
    with served(heard.folder, "--quantum", "0") as service:  # of the same vault, without waiting
        kept = {"PATH": os.environ["PATH"], "HOME": str(home), "SFUMATO_VAULT": service.url}
        for words, typed in (
            ([_COMMAND, "sign-in", "--name", "ada"], PASSWORD + "\n"),
            ([_COMMAND, "ask", "patients", QUESTIONS[1], "--epsilon", "0.001"], ""),
            ([_A_HUNDRED, service.url], heard.service.tokens["ada"]),
        ):
            ran = subprocess.run(
                [sys.executable, "-c", *words], cwd=home, env=kept, input=typed, text=True,
                capture_output=True, timeout=300, check=False,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "100\n"
    files = [path for path in home.rglob("*") if path.is_file()]
    assert home / ".config" / "sfumato" / "tokens.json" in files
    image = b"\n".join(str(path).encode() + path.read_bytes() for path in files)
    assert found_in(image) == set()
    assert found_in(image + str(NUMBERS[7]).encode()) == {str(NUMBERS[7])}


_COMMAND = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
_A_HUNDRED = """
import sys
import sfumato
sql = "SELECT zip, SUM(salary) AS s FROM patients WHERE salary > {} GROUP BY zip"
with sfumato.connect(sys.argv[1], token=sys.stdin.read()) as vault:
    people = vault["patients"]
    answers = [people.ask(sql.format(500 + n), epsilon=0.001) for n in range(100)]
    shown = (vault, people.card, people.budget, vault.history(), *answers)
    assert all(repr(one) and one._repr_html_() for one in shown)
    answers[0].plot()
    print(len({answer.rows for answer in answers}))
"""


def test_no_process_was_told_one(heard: Heard) -> None:
    waiting, seen = [heard.service.process.pid], 0
    while waiting:
        process = waiting.pop()
        waiting += _children(process)
        told = Path(f"/proc/{process}")
        try:
            text = (told / "cmdline").read_bytes() + b"\n"
        except OSError:
            continue
        with suppress(OSError):  # of what is not dumpable, nobody but root reads it
            text += (told / "environ").read_bytes()
        seen += 1
        assert found_in(text) == set()
    assert seen >= 3
