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

import sfumato
from browser import COOKIE
from bubbles import needs_bubbles
from served import Service, served
from sfumato.faces.console.session import csrf_of
from vaults import PATIENTS_CARD, card, make_vault, write_patients

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


@needs_bubbles
def test_nothing_of_a_draft_is_rendered_or_logged_and_released_files_are_fetched(
    service: Service,
) -> None:
    request = submitted(service)
    at = f"/airlock/{request}"
    assert visit(service, "owner", at, {"do": "run"})[0] == 303
    seen = visit(service, "rita", at)[2]
    assert b"show it to nobody" in seen
    assert b"it is not let out" in seen  # the page that calls itself a picture
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
