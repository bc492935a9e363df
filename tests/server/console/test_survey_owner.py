"""An owner's surveys in the console: designed, priced, published, handed out, looked at, closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import Watched, context_of
from support.script_injections import TEXTS
from support.served_vault import Service, served
from support.small_vaults import make_vault
from support.survey_fixtures import day, design


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(make_vault(tmp_path_factory.mktemp("surveys"))) as running:
        yield running


def fill_in(page: Page) -> None:
    for name, value in {
        "title": "Commuting", "asks": "The works council", "about": "Bicycle stands.",
        "text0": "Do you smoke?", "text1": "How do you come?", "options1": "on foot\nby bus",
        "people": "300", "minimum": "20", "opens": day(0), "closes": day(9),
    }.items():  # fmt: skip
        page.fill(f"#{name}", value)
    page.select_option("#kind1", "choice")


@pytest.mark.parametrize("javascript", [True, False])
def test_a_survey_is_designed_priced_published_and_closed(
    browser: Browser, service: Service, javascript: bool
) -> None:
    with context_of(browser, service, service.owner(), javascript=javascript) as context:
        page = Watched(context.new_page()).watch().page
        page.goto(service.url + "/surveys/new")
        fill_in(page)
        page.click("text=Preview errors and privacy")
        expect(page.locator("[role=status]")).to_contain_text("89 in 100 sure")
        expect(page.locator("[role=status]")).to_contain_text("Question 2: ±")
        expect(page.locator("[role=status] table th[scope=col]")).to_have_count(3)
        page.click("text=Publish (cannot be undone)")
        page.wait_for_url("**/surveys/*")
        survey = page.url.rpartition("/")[2]
        expect(page.locator("svg.qr")).to_be_visible()
        page.fill("#people", "Ada\nBen")
        page.click("text=Make invitations")
        expect(page.locator(".once td code")).to_have_count(4)  # two codes, two links
        code = page.locator(".once td code").first.text_content()
        page.goto(f"{service.url}/surveys/{survey}")
        assert code is not None
        assert code not in page.content()
        page.click("text=Close the survey")
        expect(page.locator(".lead").first).to_contain_text("Closed")


def test_a_design_that_is_none_is_refused_and_nothing_typed_is_lost(
    browser: Browser, service: Service
) -> None:
    with context_of(browser, service, service.owner()) as context:
        page = context.new_page()
        page.goto(service.url + "/surveys/new")
        fill_in(page)
        page.fill("#options1", "on foot")
        page.click("text=Add a question")
        assert page.input_value("#options1") == "on foot"
        expect(page.locator("#text2")).to_be_visible()
        page.click("text=Preview errors and privacy")
        expect(page.locator(".refused")).to_contain_text("a choice needs 2 to 20 options")
        assert page.input_value("#title") == "Commuting"


def test_anothers_survey_is_not_there(browser: Browser, service: Service) -> None:
    made = service.call("POST", "/v1/surveys", {"survey": design()}, token=service.owner())[1]
    with context_of(browser, service, service.user("olga", "owner")) as context:
        page = context.new_page()
        reply = page.goto(f"{service.url}/surveys/{made['survey']}")
        assert reply is not None
        assert reply.status == 404


def test_no_text_of_a_survey_runs_as_a_script(browser: Browser, service: Service) -> None:
    token = service.owner()
    hits: list[object] = []
    texts = [text.strip()[:200] for text in TEXTS]
    questions: list[dict[str, Any]] = [
        {"text": text, "kind": "choice", "options": [text, f"{text} again"[:200]]}
        for text in texts[:20]
    ]
    made = []
    for number, text in enumerate(texts):
        body = design(title=text, asks=text, about=text, questions=questions, epsilon=10)
        if number % 8 == 0:
            made.append(service.call("POST", "/v1/surveys", {"survey": body}, token=token)[1])
        else:
            short = design(title=text, asks=text, about=text)
            made.append(service.call("POST", "/v1/surveys", {"survey": short}, token=token)[1])
    with context_of(browser, service, token) as context:
        context.expose_function("hit", lambda number: hits.append(number))
        paths = [f"/s/{one['survey']}{more}" for one in made for more in ("", "/results")]
        tabs = [context.new_page() for _ in range(8)]  # each is waited for while others load
        for first in range(0, len(paths), len(tabs)):
            shown = list(zip(tabs, paths[first : first + len(tabs)], strict=False))
            for tab, path in shown:
                tab.goto(service.url + path)
            for tab, _ in shown:
                tab.wait_for_load_state("networkidle")
        page = tabs[0]
        page.goto(service.url + "/surveys")
        page.goto(f"{service.url}/surveys/{made[0]['survey']}")
        page.goto(f"{service.url}/s/{made[0]['survey']}")
        page.wait_for_selector("#flip")
        page.fill("#code", "A" * 16)
        page.check("#q0-0")
        page.click("#flip")
        page.wait_for_selector("#send")
        page.evaluate("hit(1)")  # what would be seen
    assert hits == [1]
