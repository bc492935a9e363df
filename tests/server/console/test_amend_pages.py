"""An owner amends a card: in the form, then what would change, then the signature."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.amend_pages import (
    LABELS,
    changed,
    standing_of,
    typed_of,
)
from sfumato.features.data_sets.earlier_card import next_version
from sfumato.server.console.forms import Form
from support.browser import Watched, bring, context_of
from support.served_vault import Service, served
from support.small_vaults import patients_vault

AT = "/data-sets/patients/amend"
API = "/v1/data-sets/patients"
CARD: dict[str, Any] = {
    "name": "patients",
    "version": "7",
    "who": ["a, b", "c"],
    "caps": {"user": {"epsilon": 0.5, "delta": 1e-06}, "group": None, "raise": "owner"},
    "delta_per_request": 0.0,
    "size": None,
    "max_groups": 1,
    "max_rows": 3,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of its own, whose card these tests change."""
    with served(patients_vault(tmp_path_factory.mktemp("amend"), "ada")) as running:
        yield running


@pytest.fixture
def owner(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the owner's."""
    with context_of(browser, service, service.owner()) as context:
        yield Watched(context.new_page()).watch()


def card_of(service: Service) -> dict[str, Any]:
    """Return the card that is in force."""
    return dict(service.call("GET", API, token=service.owner())[1])


def filled(**typed: str) -> Form:
    """Return the form as it stands, but for what was typed."""
    return Form({name: [value] for name, value in {**standing_of(CARD), **typed}.items()})


def test_an_owner_sees_what_changes_before_signing_it(owner: Watched, service: Service) -> None:
    page, before = owner.page, card_of(service)
    page.goto(f"{service.url}/data-sets/patients")
    page.click("text=Amend the card")
    expect(page.locator("#who")).to_have_value("researchers")
    page.fill("#version", "2026-12")
    page.fill("#who", "researchers\nguests")
    page.fill("#user_epsilon", "0.75")
    page.check("#two")
    page.click("text=Show the changes")
    rows = page.locator("table.changes tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_have_text("Version2026-112026-12")
    expect(rows.nth(1)).to_contain_text("guests")
    expect(rows.nth(2)).to_contain_text("10.75")
    expect(rows.nth(3)).to_contain_text("yes")
    assert card_of(service) == before  # nothing is signed by looking

    page.click("text=Edit further")
    expect(page.locator("#user_epsilon")).to_have_value("0.75")
    expect(page.locator("#two")).to_be_checked()
    page.fill("#size", "200")
    page.click("text=Show the changes")
    page.click("text=Sign the card")
    page.wait_for_url("**/data-sets/patients")
    expect(page.locator(".head")).to_contain_text("version 2026-12")
    said = card_of(service)
    assert said["who"] == ["researchers", "guests"]
    assert (said["caps"]["user"]["epsilon"], said["caps"]["raise"]) == (0.75, "two people")
    kept = ("unit", "people", "budget", "columns", "max_rows", "delta_per_request")
    assert [said[key] for key in kept] == [before[key] for key in kept]
    assert (said["size"], said["version"]) == (200, "2026-12")
    assert owner.complaints == []


def test_what_is_refused_is_said_beside_the_form_and_what_was_typed_is_kept(
    owner: Watched, service: Service
) -> None:
    page, before = owner.page, card_of(service)
    for version, field, typed, code in (
        ("x1", "size", "many", "bad-request"),
        ("x1", "user_delta", "1e-9x", "bad-request"),
        ("x1", "size", str(before["size"] or ""), "bad-request"),  # nothing would change
    ):
        page.goto(service.url + AT)
        page.fill("#version", version)
        page.fill(f"#{field}", typed)
        page.click("text=Show the changes")
        expect(page.locator(".refused code")).to_have_text(code)
        expect(page.locator(f"#{field}")).to_have_value(typed)
        expect(page.locator("#version")).to_have_value(version)
    page.goto(service.url + AT)
    page.fill("#version", before["version"])  # a version again, which only the service knows
    page.fill("#max_groups", "3")
    page.click("text=Show the changes")
    page.click("text=Sign the card")
    expect(page.locator(".refused code")).to_have_text("data-set-exists")
    expect(page.locator("#max_groups")).to_have_value("3")
    assert card_of(service) == before


def test_a_card_that_changed_meanwhile_is_not_amended_unseen(
    owner: Watched, service: Service
) -> None:
    page = owner.page
    page.goto(service.url + AT)
    page.fill("#version", "slow")
    page.fill("#size", "444")
    page.click("text=Show the changes")
    body = {"card": {"version": "quick", "max_groups": 2}}
    assert service.call("PUT", f"{API}/card", body, token=service.owner())[0] == 200
    page.click("text=Sign the card")
    expect(page.locator(".refused code")).to_have_text("data-set-exists")
    expect(page.locator(".refused")).to_contain_text("'quick'")
    expect(page.locator("#size")).to_have_value("444")
    said = card_of(service)
    assert (said["version"], said["max_groups"]) == ("quick", 2)
    assert said["size"] != 444


@pytest.mark.parametrize("who", [("olga", "owner"), ("ada", "researcher")])
def test_a_card_is_amended_by_its_owner_alone(
    browser: Browser, service: Service, who: tuple[str, str]
) -> None:
    with context_of(browser, service, service.user(*who)) as context:
        page = context.new_page()
        for path in (AT, "/data-sets/nothing/amend"):
            reply = page.goto(service.url + path)
            assert reply is not None
            assert reply.status in (403, 404)
            assert page.locator("form.guided").count() == 0
        page.goto(f"{service.url}/data-sets/patients")
        assert page.locator("text=Amend the card").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_a_telephone_is_wide_enough(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    # axe brings its own script into the page, which the page's policy would not let in
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 844}
    )
    with context:
        bring(context, service, service.owner())
        page = context.new_page()
        page.goto(service.url + AT)
        _hold(page)
        page.fill("#version", "wide")
        page.fill("#who", "a group with " + "a long name " * 9)
        page.fill("#size", "many")
        page.click("text=Show the changes")
        expect(page.locator(".refused")).to_be_visible()
        _hold(page)
        page.fill("#size", "12345")
        page.click("text=Show the changes")
        expect(page.locator("table.changes")).to_be_visible()
        _hold(page)


def _hold(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_only_what_was_typed_otherwise_is_sent() -> None:
    assert changed(standing_of(CARD), filled(version="8", size="50")) == {
        "version": "8",
        "size": 50,
    }
    assert changed(standing_of(CARD), filled(max_rows="")) == {"max_rows": None}
    assert changed(standing_of(CARD), filled(who="a, b\n\n d ")) == {"ask": {"who": ["a, b", "d"]}}
    for typed in ({}, {"version": "8"}):
        with pytest.raises(Refused, match="changes nothing on the data card"):
            changed(standing_of(CARD), filled(**typed))


def test_caps_are_sent_whole_and_exactly_as_typed() -> None:
    user = {"epsilon": Decimal("0.5"), "delta": Decimal("1e-06")}
    group = {"epsilon": Decimal("0.30000000000000004")}
    made = changed(standing_of(CARD), filled(two="yes", group_epsilon="0.30000000000000004"))
    assert made == {"caps": {"raise": "two people", "user": user, "group": group}}
    emptied = changed(standing_of(CARD), filled(user_epsilon="", user_delta=""))
    assert emptied == {"caps": {}}


def test_a_version_that_counts_is_counted_on() -> None:
    assert [next_version(v) for v in ("7", "99", "2026-11", "²", "")] == ["8", "100", "", "", ""]


def test_every_field_has_a_label_and_is_read() -> None:
    assert set(typed_of(Form({}))) == set(LABELS) == set(standing_of(CARD))
