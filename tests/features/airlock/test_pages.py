"""The airlock served: who sees what on its pages, how files are sent, and that no log has them."""

from __future__ import annotations

import http.client
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode, urlsplit

import pytest
from markupsafe import escape

import sfumato
from sfumato.server.console.session import csrf_of
from support.browser import COOKIE
from support.sandbox_blocks import needs_bubbles
from support.script_injections import CARELESS, TEXTS, harm_on
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients
from support.survey_fixtures import design

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><text>canary-picture</text></svg>"
PROGRAM = f"""
import sys
found = bytes.fromhex("{SVG.hex()}")  # so that it does not stand in the program's own text
open(sys.argv[2] + "/figure.svg", "wb").write(found)
open(sys.argv[2] + "/page.svg", "wb").write(b"<html>" + found)
print(found, file=sys.stderr)
"""
Reply = tuple[int, Mapping[str, str], bytes]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("served")
    vault = make_vault(folder)
    text = PATIENTS_CARD + '[airlock]\nreviewers = ["rita", "rolf"]\n'
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(folder / "patients.csv"), card(text))
        opened.enrol("ada", "researchers")
    with served(vault) as running:
        running.owner()
        for name, role in (("ada", "researcher"), ("rita", "auditor"), ("rolf", "operator")):
            running.user(name, role)
        yield running


def visit(service: Service, who: str, path: str, fields: Mapping[str, str] | None = None) -> Reply:
    """Open a page as a browser does, or send its form."""
    token = service.tokens[who]
    link = http.client.HTTPConnection("127.0.0.1", urlsplit(service.url).port, timeout=300)
    sent = {"Cookie": f"{COOKIE}={token}", "Host": "localhost", "Sec-Fetch-Site": "same-origin"}
    form = None if fields is None else urlencode({"csrf": csrf_of(token), **fields})
    if form is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        link.request("GET" if form is None else "POST", path, form, sent)
        reply = link.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    finally:
        link.close()


def submitted(service: Service) -> str:
    files = [{"path": "figure.svg"}, {"path": "page.svg"}]
    body = {"source": PROGRAM, "files": files, "why": "<b>why</b>", "cpu_s": 2}
    path = "/v1/data-sets/patients/airlock"
    status, made = service.call("POST", path, body, token=service.tokens["ada"])
    assert status == 200, made
    return str(made["request"])


def voted(service: Service, who: str, request: str) -> int:
    page = visit(service, who, f"/airlock/{request}")[2].decode()
    (seal,) = re.findall(r'name="seal" value="([0-9a-f]{64})"', page)
    (draft,) = re.findall(r'name="draft" value="([0-9]+)"', page)
    form = {"do": "vote", "says": "release", "seal": seal, "draft": draft}
    return visit(service, who, f"/airlock/{request}", form)[0]


def test_pages_show_a_request_to_its_people_alone(service: Service) -> None:
    request = submitted(service)
    for who, status in (("ada", 200), ("rita", 200), ("rolf", 200), ("owner", 200)):
        assert visit(service, who, f"/airlock/{request}")[0] == status, who
        seen = visit(service, who, "/data-sets/patients/airlock")
        assert seen[0] == 200
        assert request.encode() in seen[2]
        assert b"<b>why</b>" not in seen[2]
    assert visit(service, "rita", f"/airlock/{request}", {"do": "run"})[0] == 403
    assert visit(service, "ada", f"/airlock/{request}", {"do": "nonsense"})[0] == 400
    assert visit(service, "ada", f"/airlock/{request}", {"do": "withdraw"})[0] == 303
    service.user("eve", "researcher")
    assert visit(service, "eve", f"/airlock/{request}")[0] == 404


def test_a_program_is_handed_in_on_a_page_and_nothing_typed_is_lost(service: Service) -> None:
    at = "/data-sets/patients/airlock/new"
    assert at.encode() in visit(service, "ada", "/data-sets/patients/airlock")[2]
    typed = {
        "source": "import sys\r\n", "why": "Figure <2>", "cpu_s": "3", "memory_mb": "512",
        "column": "age", "file_path": "t.csv", "file_by": "zip", "file_count": "n", "file_of": "",
    }  # fmt: skip
    wrong = visit(service, "ada", at, typed)  # the program does not read that column
    assert wrong[0] == 422
    for text in ("must be columns that the program reads", "Figure &lt;2&gt;", 'value="t.csv"'):
        assert text in wrong[2].decode()
    more = visit(service, "ada", at, {**typed, "rows": "5"})[2]
    assert more.count(b'name="file_path"') == 5
    gone = visit(service, "ada", at, {**typed, "column": "zip", "environment": "image-x"})
    assert b"This is not an environment for programs" in gone[2]
    made = visit(service, "ada", at, {**typed, "column": "zip"})
    assert made[0] == 303
    path = f"/v1{made[1]['location']}"
    status, found = service.call("GET", path, token=service.tokens["ada"])
    assert (status, found["why"], found["program"]["source"]) == (200, "Figure <2>", "import sys\n")
    assert found["program"]["files"] == [{"path": "t.csv", "by": ["zip"], "count": "n", "of": ""}]
    assert (found["program"]["columns"], found["program"]["memory_mb"]) == (["zip"], 512)
    assert visit(service, "rita", at)[0] == 403


@pytest.mark.parametrize("text", TEXTS)
def test_each_text_is_seen_to_harm_a_careless_page(text: str) -> None:
    assert harm_on(CARELESS.replace("{0}", text))


def test_no_text_of_a_request_or_of_a_twins_form_is_more_than_text(service: Service) -> None:
    """Texts that would run on a careless page, in the fields that came after those of others."""
    program = "".join(f"# {text}\n" for text in TEXTS)
    body = {"source": program, "files": [{"path": "t.svg"}], "why": "\n".join(TEXTS), "cpu_s": 2}
    path = "/v1/data-sets/patients/airlock"
    status, made = service.call("POST", path, body, token=service.tokens["ada"])
    assert status == 200, made
    pages = [
        visit(service, who, at)[2].decode()
        for at in (f"/airlock/{made['request']}", "/data-sets/patients/airlock")
        for who in ("ada", "rita", "owner")
    ]
    for page in pages:
        assert all(str(escape(text)) in page for text in TEXTS)
    form = "/data-sets/patients/dp-twin/price"
    for text in TEXTS:
        names = ("epsilon", "delta", "rows", "private_bins", "error_epsilon", "method", "op")
        for name in names:
            fields = {"epsilon": "0.1", "op": "x", name: text}
            pages.append(visit(service, "ada", form, fields)[2].decode())
        assert f'name="op" value="{escape(text.strip())}"' in pages[-1]
    assert [found for page in pages for found in harm_on(page)] == []
    assert visit(service, "ada", f"/airlock/{made['request']}", {"do": "withdraw"})[0] == 303


@pytest.mark.parametrize("count", ["9" * 5000, "\u0663", "-1", "x", ""])
def test_no_number_of_questions_is_a_fault(service: Service, count: str) -> None:
    form = {"do": "more", "questions": count, "title": "Kept"}
    status, _, page = visit(service, "ada", "/surveys/new", form)
    assert (status, b'value="Kept"' in page) == (200, True)


def test_no_text_of_a_survey_is_more_than_text(service: Service) -> None:
    """Its units, its series, and the names of whoever is invited."""
    short = [text[:40].strip() for text in TEXTS]
    number = {"text": "How far?", "kind": "number", "low": 0, "high": 9}
    for half in (short[:20], short[20:]):
        asked = [{**number, "unit": unit} for unit in half]
        body = design(questions=asked, series=half[0], epsilon=10)
        status, made = service.call("POST", "/v1/surveys", {"survey": body}, token=service.owner())
        assert status == 200, made
        at = f"/surveys/{made['survey']}"
        names = {"people": "\n".join(half)}
        pages = [visit(service, "owner", f"{at}/invite", names), visit(service, "owner", at)]
        pages += [
            visit(service, "owner", f"/s/{made['survey']}{page}")
            for page in ("", "/results", "/paper")
        ]
        assert [status for status, _, _ in pages] == [200] * len(pages)
        seen = [page.decode() for _, _, page in pages]
        assert all(str(escape(text)) in seen[0] for text in half)  # the invited, by name
        assert [found for page in seen for found in harm_on(page)] == []


@needs_bubbles
def test_nothing_of_a_draft_is_rendered_or_logged_and_released_files_are_fetched(
    service: Service,
) -> None:
    request = submitted(service)
    at = f"/airlock/{request}"
    assert visit(service, "owner", at, {"do": "run"})[0] == 303
    seen = visit(service, "rita", at)[2]
    assert b"Show them to nobody" in seen
    assert b"this file cannot be released" in seen  # the page that calls itself a picture
    for who in ("ada", "rita", "owner"):
        assert b"canary-picture" not in visit(service, who, at)[2]
    assert b"seal" not in visit(service, "ada", at)[2]
    assert visit(service, "ada", f"{at}/file?path=figure.svg")[0] == 404
    status, headers, text = visit(service, "rita", f"{at}/file?path=figure.svg")
    assert (status, text) == (200, SVG)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment")
    assert headers["x-content-type-options"] == "nosniff"
    assert "no-store" in headers["cache-control"]
    token = service.tokens["rita"]
    body = {"label": "a program's"}
    made = service.call("POST", "/v1/tokens", body, token=token)[1]["token"]
    assert service.call("GET", f"/v1{at}", token=made)[0] == 403  # no token looks at files
    assert visit(service, "rita", at, {"do": "trim", "path": "page.svg"})[0] == 303
    assert [voted(service, who, request) for who in ("rita", "rolf")] == [303, 303]
    assert visit(service, "ada", f"{at}/files")[0] == 409
    assert visit(service, "rolf", at, {"do": "release"})[0] == 303
    status, headers, text = visit(service, "ada", f"{at}/files")
    assert headers["content-disposition"].startswith("attachment")
    with zipfile.ZipFile(io.BytesIO(text)) as archive:
        assert archive.read("figure.svg") == SVG
        said = json.loads(archive.read("reviewed-not-dp.json"))
    assert said["guarantee"] == "reviewed (not DP)"
    assert said["receipt"]["reviewers"] == ["rita", "rolf"]
    entry = said["receipt"]["seq"]
    listed = visit(service, "rita", "/releases")  # an auditor, too
    assert (listed[0], b"approved by rita, rolf" in listed[2]) == (200, True)
    assert f'href="/releases/{entry}"'.encode() in listed[2]
    assert visit(service, "rita", f"/releases/{entry}")[0] == 200
    assert not any("canary-" in line for line in service.said)
