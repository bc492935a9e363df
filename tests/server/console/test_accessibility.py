"""Who cannot see, has no mouse, or holds a telephone: axe, the keyboard, and narrow screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from support.browser import Watched, bring, context_of
from support.served_vault import PASSWORD, Service
from support.survey_fixtures import design

OPEN = ("/sign-in", "/welcome/sfm1_x", "/nothing")
READ = (
    "/data-sets", "/data-sets/patients", "/data-sets/patients/ask",
    "/data-sets/patients/dp-twin", "/data-sets/patients/airlock",
    "/data-sets/patients/airlock/new",
    "/data-sets/patients/lessons", "/history", "/tokens",
    "/answer?op=seen", "/lab", "/lab/averaging", "/lab/coins",
)  # fmt: skip
OWN = (
    "/data-sets/patients/manage", "/data-sets/patients/amend", "/approvals", "/uploads",
    "/uploads/{upload}", "/jobs/{job}", "/surveys", "/surveys/new", "/surveys/{survey}",
)  # fmt: skip
OPERATE = ("/users",)
AUDIT = ("/releases", "/ledger?verify=1", "/policies")
PAGES = (*OPEN, *READ, *OWN, *OPERATE, *AUDIT)
MARKS = ("h1", "main", "header.top", "html[lang=en]", "table:not(:has(caption))")
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def everybody(service: Service) -> str:
    """Return a session that may see every page, of somebody who has asked and sent something."""
    service.owner()
    body: dict[str, object] = {"roles": ["owner", "operator", "auditor"], "blocked": False}
    deputy = service.user("deputy", "operator")
    assert service.call("PUT", "/v1/users/owner", body, token=deputy)[0] == 200
    service.tokens["owner"] = service.call(
        "POST", "/v1/sign-in", {"user": "owner", "password": PASSWORD}
    )[1]["token"]
    token = service.tokens["owner"]
    at = "/v1/data-sets/patients"
    raised = {"of": "people", "epsilon": 5, "why": "more waves"}
    assert service.call("PUT", f"{at}/caps", raised, token=token)[0] == 200
    assert service.call("PUT", f"{at}/grants/deputy", {}, token=token)[0] == 200
    sent = service.call("PUT", "/v1/uploads?name=a.csv", b"a,b\n1,2\n", token=token)
    service.tokens["upload"] = sent[1]["upload"]
    sql = "SELECT zip, COUNT(*) AS n, AVG(age) AS years FROM patients GROUP BY zip"
    asked = {"data_set": "patients", "sql": "SELECT COUNT(*) FROM patients", "epsilon": 0.1}
    service.tokens["job"] = service.call("POST", "/v1/jobs", asked, token=token)[1]["job"]
    made = service.call("POST", "/v1/surveys", {"survey": design()}, token=token)[1]
    service.tokens["survey"] = made["survey"]
    body = {"sql": sql, "epsilon": 0.2, "op": "seen"}
    assert service.call("POST", f"{at}/ask", body, token=token)[0] == 200
    return token


def _open(page: Page, service: Service, path: str) -> None:
    made = {name: service.tokens[name] for name in ("upload", "job", "survey")}
    reply = page.goto(service.url + path.format(**made))
    assert reply is not None
    assert reply.status == (404 if path == "/nothing" else 200), path
    if path.endswith("/ask"):
        expect(page.locator("#price")).to_be_visible()
        page.click("#others summary")
        page.click("text=More terms")
    for image in page.locator("img").all():
        expect(image).to_have_js_property("complete", True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser, service: Service, everybody: str, scheme: Scheme
) -> None:
    # axe brings its own script into the page, which the page's policy would not let in
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    with context:
        bring(context, service, everybody)
        page = context.new_page()
        found = {}
        for path in PAGES:
            _open(page, service, path)
            violations = Axe().run(page).response["violations"]
            found[path] = [(one["id"], one["nodes"][0]["html"]) for one in violations]
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_axe_finds_nothing_in_the_steps_of_a_card(
    browser: Browser, service: Service, everybody: str
) -> None:
    """They follow each other by forms, so they have no address of their own."""
    with browser.new_context(bypass_csp=True, viewport={"width": 390, "height": 844}) as context:
        bring(context, service, everybody)
        page = context.new_page()
        page.goto(f"{service.url}/uploads/{service.tokens['upload']}")
        page.select_option("#unit", "row")
        page.click("text=Next:")
        page.fill("#epsilon", "many")
        page.click("text=More terms")
        found = [Axe().run(page).response["violations"]]
        page.click("text=Next:")
        expect(page.locator("#epsilon-fault")).to_be_visible()
        found.append(Axe().run(page).response["violations"])
        page.fill("#epsilon", "1")
        page.click("text=Next:")
        page.click("text=Change a")
        page.fill("#c0-lower", "1")
        page.click("text=Update the preview")
        expect(page.locator("#c0-fault")).to_be_visible()
        found.append(Axe().run(page).response["violations"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found == [[], [], []]


def test_axe_finds_what_is_wrong(browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.set_content(
            "<input><img src='data:,'><p style='color:#ccc;background:#fff'>pale words</p>"
        )
        violations = {one["id"] for one in Axe().run(page).response["violations"]}
    assert {"label", "image-alt", "color-contrast"} <= violations


@dataclass(frozen=True)
class Seen:
    """What there was to see on a telephone, page by page; and what the pages complained of."""

    widths: dict[str, int]
    marks: dict[str, list[int]]
    complaints: list[str]
    hosts: set[str]


@pytest.fixture(scope="module")
def seen(browser: Browser, service: Service, everybody: str) -> Seen:
    """Visit every page once."""
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        bring(context, service, everybody)
        watched = Watched(context.new_page()).watch()
        widths, marks = {}, {}
        for path in PAGES:
            _open(watched.page, service, path)
            widths[path] = watched.page.evaluate("document.documentElement.scrollWidth")
            marks[path] = [watched.page.locator(mark).count() for mark in MARKS]
    return Seen(widths, marks, watched.complaints, watched.hosts)


def test_nothing_is_wider_than_a_telephone(seen: Seen) -> None:
    assert {path: width for path, width in seen.widths.items() if width > 390} == {}


def test_every_page_has_one_heading_its_landmarks_and_captions(seen: Seen) -> None:
    assert {path: found for path, found in seen.marks.items() if found != [1, 1, 1, 1, 0]} == {}


def test_no_page_complains_or_asks_another_host(seen: Seen, service: Service) -> None:
    assert [said for said in seen.complaints if "404" not in said] == []  # of "/nothing" itself
    assert seen.hosts == {service.url.removeprefix("http://")}


@pytest.mark.parametrize("width", [1024, 1280, 1920])
def test_every_page_stands_on_one_line_of_the_navigation(
    browser: Browser, service: Service, everybody: str, width: int
) -> None:
    """Also for who has every role and a long name."""
    with context_of(browser, service, everybody) as context:
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 600})
        page.goto(f"{service.url}/tokens")
        for name in ("owner", "a-very-long-name-of-somebody"):
            page.evaluate("name => document.querySelector('.who .name').textContent = name", name)
            boxes = [one.bounding_box() for one in page.locator("header.top li, .who").all()]
            middles = [box["y"] + box["height"] / 2 for box in boxes if box is not None]
            assert len(middles) == 12
            assert max(middles) - min(middles) < 10
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_tab_skips_to_the_page(
    browser: Browser, service: Service, everybody: str
) -> None:
    with context_of(browser, service, everybody) as context:
        page = context.new_page()
        page.goto(f"{service.url}/data-sets")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        expect(page.locator(".skip")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
