"""What protects a session: headers, the cookie, where a form comes from, and what is left after."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from sfumato.server.console.console_routes import PAGES as PAGES_OF_ALL
from sfumato.server.console.page import Page
from sfumato.server.console.session import UNSAFE, csrf_of
from support.browser import COOKIE, Watched, context_of, session_of, sign_in
from support.served_vault import Service

PAGES = (
    "/sign-in", "/welcome/sfm1_x", "/data-sets", "/data-sets/patients", "/data-sets/patients/ask",
    "/data-sets/patients/dp-twin", "/data-sets/patients/airlock",
    "/data-sets/patients/lessons", "/airlock/none",
    "/history", "/tokens", "/users", "/nothing", "/answer?op=none", "/data-sets/nothing",
    "/surveys", "/surveys/new", "/s/" + 32 * "a",
)  # fmt: skip
OURS = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
ELSEWHERE: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "http://evil.test"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null", "Sec-Fetch-Site": "same-site"},
)
FORMS = tuple(page for page in PAGES_OF_ALL if page.method in UNSAFE)
Reply = tuple[int, Mapping[str, str], str]


def request(
    service: Service,
    method: str,
    path: str,
    fields: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    token: str = "",
) -> Reply:
    """Return status, headers and text of one request of a browser's, not redirected."""
    sent = {"Accept": "text/html", **(headers or {})}
    if token:
        sent["Cookie"] = f"{COOKIE}={token}"
    if fields is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    try:
        connection.request(
            method, path, urlencode(fields or {}) if fields is not None else None, sent
        )
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, found, reply.read().decode("utf-8", "replace")
    finally:
        connection.close()


@pytest.fixture
def owner(service: Service) -> str:
    """Return the owner's session."""
    return service.owner()


def users(service: Service) -> list[str]:
    """Return everybody's names."""
    found = service.call("GET", "/v1/users", token=service.owner())[1]["users"]
    return [user["user"] for user in found]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_the_headers(service: Service, owner: str, path: str) -> None:
    _, headers, text = request(service, "GET", path, token=owner)
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    for inline in ("<style", " style=", " onclick=", "javascript:", "http://", "https://"):
        assert inline not in text
    assert text.count("<script") == text.count('<script type="module" src="/static/')


def test_the_cookie_is_for_this_host_and_no_script(browser: Browser, service: Service) -> None:
    service.user("ada", "researcher")
    with context_of(browser, service) as context:
        page = context.new_page()
        sign_in(page, service, "ada")
        page.wait_for_url("**/data-sets")
        names = {cookie.get("name") for cookie in context.cookies()}
        assert names == {"__Host-sfumato", "__Host-sfumato-device"}
        for cookie in context.cookies():
            assert cookie.get("path") == "/"
            assert (cookie.get("secure"), cookie.get("httpOnly")) == (True, True)
            assert cookie.get("sameSite") == "Strict"
        assert page.evaluate("document.cookie") == ""


def test_a_wrong_password_sets_no_cookie(service: Service) -> None:
    service.owner()
    fields = {"user": "owner", "password": "wrong pass word"}
    status, headers, text = request(service, "POST", "/sign-in", fields, OURS)
    assert (status, "set-cookie" in headers) == (401, False)
    assert "not-signed-in" in text


@pytest.mark.parametrize("wanted", ["//evil.test", "/\\evil.test", "https://evil.test", "/\tx"])
def test_signing_in_leads_to_no_other_host(service: Service, wanted: str) -> None:
    _, _, text = request(service, "GET", f"/sign-in?{urlencode({'next': wanted})}")
    assert "evil" not in text


def test_the_api_takes_no_cookie(service: Service, owner: str) -> None:
    for method, path in (("GET", "/v1/me"), ("GET", "/v1/data-sets"), ("POST", "/v1/sign-out")):
        assert request(service, method, path, token=owner)[0] == 401
    assert service.call("GET", "/v1/me", token=owner)[0] == 200


def test_a_page_takes_no_bearer(service: Service, owner: str) -> None:
    headers = {"Authorization": f"Bearer {owner}"}
    status, found, _ = request(service, "GET", "/users", headers=headers)
    assert (status, found["location"]) == (303, "/sign-in?next=/users")


def test_a_page_that_is_not_ones_own_is_refused(service: Service) -> None:
    token = service.user("ada", "researcher")
    for path in ("/users", "/releases", "/ledger", "/policies"):
        status, _, text = request(service, "GET", path, token=token)
        assert (status, "not-allowed" in text) == (403, True)


def test_a_form_of_ours_is_taken(service: Service, owner: str) -> None:
    fields = {"csrf": csrf_of(owner), "user": "control", "roles": "researcher"}
    assert request(service, "POST", "/users", fields, OURS, token=owner)[0] == 200
    assert "control" in users(service)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://evil.test", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null", "Sec-Fetch-Site": "none"},
    ],
)
def test_a_form_from_elsewhere_changes_nothing(
    service: Service, owner: str, headers: dict[str, str]
) -> None:
    fields = {"csrf": csrf_of(owner), "user": "mallory", "roles": "owner"}
    assert request(service, "POST", "/users", fields, headers, token=owner)[0] == 403
    assert "mallory" not in users(service)


@pytest.mark.parametrize("page", FORMS, ids=lambda page: page.path)
def test_no_page_takes_a_form_that_it_has_not_sent(
    service: Service, owner: str, page: Page
) -> None:
    """Each page that changes something: none has forgotten to ask where a form comes from."""
    token = service.user("vera", "auditor")
    before = service.call("GET", "/v1/ledger?limit=1", token=token)
    path = re.sub(r"\{\w+\}", "none", page.path.replace("{data_set}", "patients"))
    mark = {"X-CSRF": csrf_of(owner)} if page.takes_a_file else {}
    for elsewhere in ELSEWHERE:
        fields = {"csrf": csrf_of(owner), "user": "mallory", "roles": "owner"}
        sent = request(service, page.method, path, fields, {**elsewhere, **mark}, token=owner)
        assert (sent[0], "did not come from a page" in sent[2]) == (403, True), elsewhere
    if not page.is_open:
        fields = {"user": "mallory", "roles": "owner"}
        sent = request(service, page.method, path, fields, OURS, token=owner)
        assert (sent[0], "did not come from a page" in sent[2]) == (403, True)
    assert service.call("GET", "/v1/ledger?limit=1", token=token) == before


@pytest.mark.parametrize("csrf", ["", "0" * 64, "é", csrf_of("")])
def test_a_form_without_the_sessions_mark_changes_nothing(
    service: Service, owner: str, csrf: str
) -> None:
    fields = {"csrf": csrf, "user": "mallory", "roles": "owner"}
    assert request(service, "POST", "/users", fields, OURS, token=owner)[0] == 403
    assert "mallory" not in users(service)


def test_every_form_that_changes_something_carries_the_mark(
    browser: Browser, service: Service, owner: str
) -> None:
    with context_of(browser, service, owner) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(service.url + path)
            if path.startswith(("/sign-in", "/welcome")):
                continue
            forms = page.locator("form[method=post]")
            marks = page.locator(f"form[method=post] > input[name=csrf][value='{csrf_of(owner)}']")
            assert forms.count() == marks.count()


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data"])
def test_a_form_of_another_kind_is_none(service: Service, owner: str, kind: str) -> None:
    headers = {**OURS, "Content-Type": kind}
    assert request(service, "POST", "/users", None, headers, token=owner)[0] == 400


def test_a_form_that_is_too_large_is_refused(service: Service, owner: str) -> None:
    fields = {"csrf": csrf_of(owner), "user": "x" * 1_100_000}
    assert request(service, "POST", "/users", fields, OURS, token=owner)[0] == 413


class _Evil(BaseHTTPRequestHandler):
    """Another site: a page that sends forms to the service, and one that frames it."""

    target = ""

    def do_GET(self) -> None:
        fields = '<input name="user" value="mallory"><input name="roles" value="owner">'
        form = f'<form method="post" action="{self.target}/users">{fields}</form>'
        frame = f'<iframe src="{self.target}/sign-in"></iframe>'
        body = (
            frame if self.path == "/frame" else form + "<script>document.forms[0].submit()</script>"
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *_args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing."""


@pytest.fixture
def evil(service: Service) -> Iterator[str]:
    """Return the address of another site, on the same machine."""
    _Evil.target = service.url
    with ThreadingHTTPServer(("127.0.0.1", 0), _Evil) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_sites_page_can_send_nothing(
    browser: Browser, service: Service, owner: str, evil: str
) -> None:
    with context_of(browser, service, owner) as context:
        page = context.new_page()
        with page.expect_navigation(url="**/users"):
            page.goto(evil)
        expect(page.locator("main")).to_contain_text("did not come from a page of this session")
    assert "mallory" not in users(service)


def test_no_page_is_framed(browser: Browser, service: Service, evil: str) -> None:
    with context_of(browser, service) as context:
        watched = Watched(context.new_page()).watch()
        watched.page.goto(f"{evil}/frame")
        (frame,) = watched.page.frames[1:]
        assert frame.locator("#user").count() == 0
        assert any("frame" in said.lower() for said in watched.complaints)


def test_going_back_after_signing_out_shows_nothing(browser: Browser, service: Service) -> None:
    service.user("ada", "researcher")
    with context_of(browser, service) as context:
        page = context.new_page()
        sign_in(page, service, "ada")
        page.wait_for_url("**/data-sets")
        token = session_of(context)
        page.click("main >> text=patients")
        expect(page.locator("h1")).to_have_text("patients")
        page.click("text=Sign out")
        page.wait_for_url("**/sign-in")
        assert session_of(context) == ""
        for _ in range(2):
            page.go_back()
            expect(page.locator("h1")).to_have_text("Sign in")
    assert service.call("GET", "/v1/me", token=token)[0] == 401


def test_files_stand_for_ever_under_their_digest_and_nowhere_else(service: Service) -> None:
    _, _, text = request(service, "GET", "/sign-in")
    place = text.split('src="')[1].split('"')[0]
    status, headers, script = request(service, "GET", place)
    assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert headers["content-type"].startswith("text/javascript")
    assert "innerHTML" not in script
    digest = place.split("/")[2]
    for wrong in ("/static/0/console.js", f"/static/{digest}/..%2Fpage.py", f"/static/{digest}/x"):
        assert request(service, "GET", wrong)[0] == 404


def test_an_error_is_a_page_for_a_browser_and_json_for_the_api(service: Service) -> None:
    assert "<h1>" in request(service, "GET", "/nothing")[2]
    assert request(service, "GET", "/v1/nothing")[2].startswith('{"refused"')
