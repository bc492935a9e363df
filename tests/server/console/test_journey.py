"""The way through the console, in a real browser: coming in, pricing, asking, being refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import Watched, context_of, session_of, sign_in, take_up
from support.served_vault import Service

SQL = "SELECT zip, COUNT(*) AS n, AVG(age) AS years FROM patients GROUP BY zip"
ASK = "/data-sets/patients/ask"


@pytest.fixture
def owner(browser: Browser, service: Service) -> Iterator[Page]:
    """Return a page of the owner's."""
    with context_of(browser, service, service.owner()) as context:
        yield context.new_page()


@pytest.fixture
def ada(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the researcher's."""
    with context_of(browser, service, service.user("ada", "researcher")) as context:
        yield Watched(context.new_page()).watch()


def spent(service: Service) -> float:
    """Return what ada has spent."""
    token = service.user("ada", "researcher")
    _, budget = service.call("GET", "/v1/data-sets/patients/budget", token=token)
    return float(budget["yours"]["user:patients/ada"]["spent"]["epsilon"])


def test_the_first_owner_comes_in_by_the_link_and_invites_a_researcher(
    browser: Browser, service: Service
) -> None:
    with context_of(browser, service) as context:
        page = context.new_page()
        take_up(page, f"{service.url}/welcome/{service.invitation}")
        service.tokens["owner"] = session_of(context)
        page.click("nav >> text=People")
        page.fill("#user", "eve")
        page.check("#new-auditor")
        page.click("text=Make the link")
        link = page.inner_text("#secret")
        page.reload()  # a link that was shown once is gone, and the form was sent again
    with context_of(browser, service) as context:
        guest = context.new_page()
        take_up(guest, link, lands="tokens")  # where whoever was invited twice sees by whom
        service.tokens["eve"] = session_of(guest.context)
        expect(guest.locator(".who .name")).to_have_text("eve")
        guest.goto(f"{service.url}/data-sets")
        expect(guest.locator("main")).to_contain_text("no data sets yet that you may ask")


def test_a_link_opens_once(browser: Browser, service: Service) -> None:
    service.owner()
    with context_of(browser, service) as context:
        page = context.new_page()
        page.goto(f"{service.url}/welcome/{service.invitation}")
        page.fill("#password", "another pass word")
        page.fill("#again", "another pass word")
        page.click("main button")
        expect(page.locator(".refused code")).to_have_text("not-signed-in")
        assert session_of(context) == ""


def test_two_passwords_that_differ_set_none(browser: Browser, service: Service) -> None:
    made = service.call(
        "POST", "/v1/users", {"user": "kim", "roles": ["researcher"]}, token=service.owner()
    )[1]
    with context_of(browser, service) as context:
        page = context.new_page()
        page.goto(f"{service.url}/welcome/{made['invitation']}")
        page.fill("#password", "soft edges, no outline")
        page.fill("#again", "soft edges, no outlines")
        page.click("main button")
        expect(page.locator(".refused")).to_contain_text("differ")
    known = service.call("GET", "/v1/users", token=service.owner())[1]["users"]
    assert [user["has_signed_in"] for user in known if user["user"] == "kim"] == [False]


def test_the_price_is_shown_live_and_nothing_is_spent(ada: Watched, service: Service) -> None:
    page, before = ada.page, spent(service)
    page.goto(service.url + ASK)
    page.fill("#sql", SQL)
    page.fill("#epsilon", "0.25")
    expect(page.locator("[data-slot=epsilon]")).to_have_text("0.25")
    expect(page.locator("[data-slot=says]")).to_contain_text("the mean of age, for each zip")
    expect(page.locator("[data-slot=errors]")).to_contain_text("± 36")
    expect(page.locator("[data-slot=odds]")).to_contain_text("is at most")
    assert spent(service) == before
    assert ada.complaints == []


def test_a_dearer_slider_says_a_smaller_error(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    expect(page.locator("[data-slot=errors] dd")).to_have_text("± 30")
    page.locator("#slide").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#epsilon")).to_have_value("0.2")
    expect(page.locator("[data-slot=errors] dd")).to_have_text("± 15")


def test_a_wanted_error_says_its_price(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    expect(page.locator("[data-slot=errors] dd")).to_have_text("± 30")
    page.fill("#error", "5")
    expect(page.locator("[data-slot=errors] dd")).to_have_text("± 5.0")
    assert float(page.input_value("#epsilon")) == pytest.approx(0.6, abs=0.1)


def test_a_question_that_is_none_says_why_while_it_is_written(
    ada: Watched, service: Service
) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    page.fill("#sql", "SELECT COUNT(*) FROM nobody")
    expect(page.locator("#problem")).to_contain_text("nobody")
    expect(page.locator("#price")).to_be_hidden()
    assert ada.complaints == []


def test_columns_and_keys_are_offered_by_the_keyboard_alone(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    page.fill("#sql", "")
    page.locator("#sql").press_sequentially("SELECT COUNT(*) FROM patients WHERE zi")
    expect(page.locator("#offer [role=option]")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.locator("#sql")).to_have_attribute("aria-activedescendant", "offer-0")
    page.keyboard.press("Enter")
    page.keyboard.type(" = '1")
    expect(page.locator("#offer [role=option]")).to_have_count(2)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(page.locator("#sql")).to_have_value("SELECT COUNT(*) FROM patients WHERE zip = '10002'")
    page.keyboard.type(" AND a")
    page.keyboard.press("Escape")
    expect(page.locator("#offer")).to_be_hidden()


def test_a_researcher_asks_and_sees_the_answer_with_its_error(
    ada: Watched, service: Service
) -> None:
    page, before = ada.page, spent(service)
    page.goto(service.url + ASK)
    page.fill("#sql", SQL)
    page.fill("#epsilon", "0.3")
    page.click("text=Ask and pay")
    page.wait_for_url("**/answer?op=*")
    assert spent(service) == pytest.approx(before + 0.3)
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("td.err").first).to_have_text("± 30")
    expect(page.locator("figure img")).to_have_count(2)
    assert page.eval_on_selector_all("img", "all => all.every(i => i.naturalWidth > 100)")
    expect(page.locator("main")).to_contain_text("asking the same question again, is free")
    page.reload()
    assert spent(service) == pytest.approx(before + 0.3)
    assert ada.complaints == []
    assert ada.hosts == {urlsplit(service.url).netloc}


def test_an_answer_can_be_taken_away(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    page.fill("#sql", "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip")
    page.fill("#epsilon", "0.05")
    page.click("text=Ask and pay")
    page.wait_for_url("**/answer?op=*")
    with page.expect_download() as taken:
        page.click("text=CSV")
    lines = taken.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "zip,n,n_std,n_low,n_high"
    assert re.fullmatch(r"10001,-?\d+,.*", lines[1])
    with page.expect_download() as taken:
        page.click("text=JSON with receipt")
    assert '"signature"' in taken.value.path().read_text("utf-8")


def test_history_leads_back_to_the_answer(ada: Watched, service: Service) -> None:
    token = service.user("ada", "researcher")
    body = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.01, "op": "of old"}
    assert service.call("POST", "/v1/data-sets/patients/ask", body, token=token)[0] == 200
    before = spent(service)
    ada.page.goto(f"{service.url}/history")
    ada.page.locator(".past a[href='/answer?op=of%20old']").click()
    expect(ada.page.locator("h1")).to_have_text("the number of rows")
    assert spent(service) == before


def test_a_question_beyond_the_cap_is_refused_and_kept(ada: Watched, service: Service) -> None:
    page, before = ada.page, spent(service)
    page.goto(service.url + ASK)
    page.fill("#sql", SQL)
    page.fill("#epsilon", "1.5")
    expect(page.locator("[data-slot=fits]")).to_contain_text("does not fit")
    page.click("text=Ask and pay")
    expect(page.locator(".refused code")).to_have_text("budget-exceeded")
    expect(page.locator("#sql")).to_have_value(SQL)
    assert spent(service) == before


def test_what_was_answered_before_is_free_and_not_called_too_dear(
    browser: Browser, service: Service
) -> None:
    at, token = "/v1/data-sets/patients", service.user("lea", "researcher")
    service.call("PUT", f"{at}/grants/lea", {}, token=service.owner())
    for sql, epsilon in ((SQL, 0.3), ("SELECT COUNT(*) AS rest FROM patients", 0.7)):
        body = {"sql": sql, "epsilon": epsilon}
        assert service.call("POST", f"{at}/ask", body, token=token)[0] == 200
    with context_of(browser, service, token) as context:
        seen = Watched(context.new_page()).watch()
        page = seen.page
        page.goto(service.url + ASK)
        page.fill("#sql", SQL)
        page.fill("#epsilon", "0.3")
        fits = page.locator("[data-slot=fits]")
        expect(fits).to_have_text("Answered before: asking again is free, with the same numbers.")
        expect(page.locator(".price .not")).to_have_count(0)
        expect(page.locator("[data-slot=paid]")).to_have_text("paid before")
        expect(page.locator("[data-take]")).to_have_attribute("width", "0")
        page.click("text=More terms")
        page.check("#fresh")  # which pays in full, and there is nothing left
        expect(fits).to_have_text("It does not fit: nothing is left.")
        page.uncheck("#fresh")
        expect(fits).to_contain_text("free")
        page.click("text=Ask and pay")
        page.wait_for_url("**/answer?op=*")
        assert seen.complaints == []


def test_the_price_names_both_bounds_and_the_fields_that_set_them(
    ada: Watched, service: Service
) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    page.fill("#sql", SQL)
    said = "A person counts in at most 1 of the 2 groups, with at most 1 row, chosen at random."
    expect(page.locator("[data-slot=bounding]")).to_have_text(re.compile(said, re.IGNORECASE))
    advice = page.locator("[data-slot=advice]")
    expect(advice).to_contain_text("no error bar says how much is missing")
    expect(advice).to_contain_text("raise “Max groups per person” and “Max rows per person")
    expect(advice).not_to_contain_text("--")
    page.click("text=More terms")
    page.get_by_label("Max groups per person").fill("2")
    expect(page.locator("[data-slot=bounding]")).to_contain_text("in each of at most 2 groups")
    expect(advice).not_to_contain_text("Max groups per person")


def test_a_number_that_is_none_loses_no_question(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + ASK)
    page.fill("#sql", SQL)
    page.fill("#epsilon", "a little")
    expect(page.locator("#problem")).to_contain_text("epsilon must be a number")
    page.click("text=Ask and pay")
    expect(page.locator(".refused")).to_contain_text("epsilon must be a number")
    expect(page.locator("#sql")).to_have_value(SQL)


def test_everything_works_without_script(browser: Browser, service: Service) -> None:
    service.user("ada", "researcher")
    with context_of(browser, service, javascript=False) as context:
        page = context.new_page()
        sign_in(page, service, "ada")
        page.click("text=patients")
        page.click("text=Ask a question")
        page.fill("#sql", "SELECT COUNT(*) AS n FROM patients WHERE age > 60")
        page.fill("#epsilon", "0.02")
        page.click("text=Show the price")
        expect(page.locator("[data-slot=errors] dd")).to_have_text("± 150")
        page.click("text=Ask and pay")
        page.wait_for_url("**/answer?op=*")
        expect(page.locator("td.err")).to_have_text("± 150")
        page.click("text=Sign out")
        page.wait_for_url("**/sign-in")


def test_a_token_is_made_shown_once_and_revoked(owner: Page, service: Service) -> None:
    owner.goto(f"{service.url}/tokens")
    owner.fill("#label", "laptop")
    owner.click("text=Make the token")
    secret = owner.inner_text("#secret")
    assert service.call("GET", "/v1/me", token=secret)[0] == 200
    owner.goto(f"{service.url}/tokens")
    assert secret not in owner.content()
    owner.get_by_role("button", name="Revoke laptop").click()
    owner.wait_for_load_state()
    assert service.call("GET", "/v1/me", token=secret)[0] == 401


def test_an_operator_blocks_somebody(owner: Page, service: Service) -> None:
    body = {"user": "moe", "roles": ["researcher"]}
    service.call("POST", "/v1/users", body, token=service.owner())
    owner.goto(f"{service.url}/users")
    moe = owner.locator("li", has=owner.get_by_role("heading", name="moe"))
    moe.locator("summary").click()
    moe.get_by_label("blocked").check()
    moe.get_by_role("button", name="Save").click()
    expect(moe).to_contain_text("blocked")
    known = service.call("GET", "/v1/users", token=service.owner())[1]["users"]
    assert [user["blocked"] for user in known if user["user"] == "moe"] == [True]


def test_an_auditor_who_may_ask_nothing_yet_begins_with_what_was_released(
    browser: Browser, service: Service
) -> None:
    """The form of an invitation has the researcher's box ticked, so most auditors are both."""
    with context_of(browser, service, service.user("abe", "researcher", "auditor")) as context:
        page = context.new_page()
        page.goto(service.url)
        expect(page.locator("h1")).to_have_text("Releases")
        page.goto(f"{service.url}/data-sets")
        page.click("main >> text=Releases")
        expect(page.locator("h1")).to_have_text("Releases")


def test_an_auditor_reads_the_sheet_and_verifies_the_chain(
    browser: Browser, service: Service
) -> None:
    token = service.user("ada", "researcher")
    body = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.02}
    assert service.call("POST", "/v1/data-sets/patients/ask", body, token=token)[0] == 200
    with context_of(browser, service, service.user("eve", "researcher", "auditor")) as context:
        page = context.new_page()
        page.goto(f"{service.url}/releases")
        page.locator("tbody th a").first.click()
        expect(page.locator("h1")).to_have_text("Answer sheet")
        with page.expect_download() as taken:
            page.click("text=Save as JSON")
        assert '"format": "sheet/1"' in taken.value.path().read_text("utf-8")
        page.click("nav >> text=Ledger")
        page.click("text=Verify the whole ledger")
        expect(page.locator("[role=status]")).to_contain_text("The ledger is valid.")
        page.click("nav >> text=Policies")
        expect(page.locator("main")).to_contain_text("city-hospital-patients")
