"""An owner's way through the console: bring rows, sign a card, grant, cap, stop."""

from __future__ import annotations

import http.client
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openpyxl
import pytest
from playwright.sync_api import Browser, Page, expect

import sfumato
from sfumato.server.console.session import csrf_of
from support.browser import COOKIE, Watched, context_of
from support.served_vault import Service
from support.small_vaults import write_csv

MEDICAL = Path(__file__).parents[3] / "src" / "sfumato" / "lab" / "data" / "medical.csv"
MANAGE = "/data-sets/patients/manage"


@pytest.fixture
def owner(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the owner's."""
    with context_of(browser, service, service.owner()) as context:
        yield Watched(context.new_page()).watch()


@pytest.fixture
def ada(browser: Browser, service: Service) -> Iterator[Page]:
    """Return a page of the researcher's."""
    with context_of(browser, service, service.user("ada", "researcher")) as context:
        yield context.new_page()


def _column(page: Page, name: str, **fields: str) -> None:
    body = page.locator("tbody", has=page.get_by_role("rowheader", name=name, exact=True))
    if body.locator("details[open]").count() == 0:
        body.locator("summary").click()
    for field, value in fields.items():
        if field == "type":
            body.locator(".type").select_option(value)
        else:
            body.locator(f".{field}").fill(value)


def test_an_owner_brings_rows_signs_a_card_and_grants_and_a_researcher_asks_up_to_the_cap(
    owner: Watched, ada: Page, service: Service
) -> None:
    page = owner.page
    page.goto(f"{service.url}/data-sets")
    page.click("text=Add a data set")
    page.set_input_files("#file", MEDICAL)
    page.click("text=Send the file")
    page.wait_for_url("**/uploads/*")
    page.fill("#people", "synthetic-town")
    page.select_option("#unit", "row")
    page.click("text=Next:")
    page.fill("#epsilon", "1")
    page.click("text=More terms")
    page.fill("#user_epsilon", "0.5")
    page.click("text=Next:")
    _column(page, "age", lower="0", upper="110")
    _column(page, "salary", lower="0", upper="200000", step="1")
    zips = [f"003{n}" for n in range(10, 20)]
    _column(page, "zip", type="text", keys=", ".join(zips))
    page.click("text=Sign the card")
    page.click("text=See the data set", timeout=30_000)
    page.click("text=Manage")
    page.fill("#user", "ada")
    page.get_by_role("button", name="Grant", exact=True).click()
    expect(page.locator("main")).to_contain_text("ada in researchers")
    assert owner.complaints == []

    ada.goto(f"{service.url}/data-sets/medical/ask")
    for epsilon, is_let in (("0.4", True), ("0.2", False)):
        ada.fill("#sql", "SELECT zip, COUNT(*) AS n FROM medical GROUP BY zip")
        ada.fill("#epsilon", epsilon)
        ada.click("text=Ask and pay")
        if is_let:
            expect(ada.locator("tbody tr")).to_have_count(10)
            ada.click("text=Ask another")
    expect(ada.locator(".refused code")).to_have_text("budget-exceeded")

    page.reload()
    line = page.locator("tr", has=page.get_by_role("rowheader", name="User ada"))
    expect(line.locator("td.n").first).to_have_text("0.4")
    page.click("text=The charged questions")
    expect(page.locator("main")).to_contain_text("the number of rows, for each zip")


def _upload(page: Page, service: Service, file: Path) -> None:
    page.goto(f"{service.url}/uploads")
    page.set_input_files("#file", file)
    page.click("text=Send the file")
    page.wait_for_url("**/uploads/*")


def test_a_card_that_contradicts_itself_is_refused_and_kept(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    page = owner.page
    _upload(page, service, write_csv(tmp_path / "small.csv", ("age",), [(1,), (2,)]))
    expect(page.locator("#unit")).to_have_value("")  # no name of a column tells
    page.click("text=Next:")
    expect(page.locator("#unit:invalid")).to_have_count(1)
    page.select_option("#unit", "row")
    page.click("text=Next:")
    page.click("text=Next:")
    _column(page, "age", lower="10", upper="0")
    page.click("text=Sign the card")
    expect(page.locator(".refused code")).to_have_text("bad-card")
    expect(page.locator(".lower")).to_have_value("10")
    expect(page.locator("#c0-fault")).to_contain_text("is not below its upper")


def test_the_three_steps_lose_nothing_back_and_forth_without_a_script(
    owner: Watched, browser: Browser, service: Service, tmp_path: Path
) -> None:
    file = write_csv(tmp_path / "odd.csv", ("patient no", '<b>ag"e', "w"), [("a", 1, "1.5")])
    _upload(owner.page, service, file)
    with context_of(browser, service, service.owner(), javascript=False) as context:
        page = context.new_page()
        page.goto(owner.page.url)
        expect(page.locator("#unit")).to_have_value("patient no")
        page.fill("#people", "walkers & co")
        page.click("text=Next:")
        expect(page.locator("#epsilon")).to_have_value("1")
        page.fill("#max_rows", "4")
        page.fill("#delta", "1e-6")
        page.click("text=More terms")
        page.uncheck("#two")
        page.click("text=Next:")
        _column(page, '<b>ag"e', lower="0", upper="110")
        page.click("text=Update the preview")
        row = page.locator("tr", has=page.get_by_role("rowheader", name='<b>ag"e', exact=True))
        expect(row).to_contain_text("27, 55, 82")
        page.click("button:text('Back')")
        expect(page.locator("#max_rows")).to_have_value("4")
        page.click("button:text('Back')")
        expect(page.locator("#people")).to_have_value("walkers & co")
        page.select_option("#unit", "row")
        page.click("text=Next:")
        expect(page.locator("#max_rows")).to_have_count(0)  # a row has no rows
        page.click("text=More terms")
        expect(page.locator("#two")).not_to_be_checked()
        page.click("text=Next:")
        page.click("text=Change <b>ag")
        expect(page.locator("#c1-lower")).to_have_value("0")


def test_a_new_version_by_the_form_keeps_caps_and_output_checking(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    page = owner.page
    file = write_csv(tmp_path / "kept.csv", ("person", "age"), [(n, n) for n in range(50)])
    card = {
        "unit": "person", "people": "keepers", "version": "3", "delta_per_request": 1e-7,
        "budget": {"epsilon": 2, "delta": 1e-6}, "airlock": {"reviewers": ["ada", "rolf"]},
        "caps": {"user": {"epsilon": 0.5}, "raise": "two people"}, "columns": {},
    }  # fmt: skip
    with sfumato.connect(service.url, token=service.owner()) as vault:
        vault.add("kept", file, card)
        _upload(page, service, file.rename(tmp_path / "newer.csv"))
        page.fill("#name", "kept")
        page.click("text=Next:")
        said = page.locator("main")
        expect(said).to_contain_text("This is a new version of kept.")
        expect(said).to_contain_text("each user may spend ε 0.5")
        expect(page.locator("#user_epsilon")).to_have_value("0.5")
        expect(page.locator("#airlock")).to_be_checked()
        expect(page.locator("#epsilon")).to_have_value("2")
        page.fill("#user_epsilon", "0.25")
        page.click("button:text('Back')")
        page.click("text=Next:")
        expect(page.locator("#user_epsilon")).to_have_value("0.25")
        page.click("text=Next:")
        page.click("text=Sign the card")
        page.click("text=See the data set", timeout=30_000)
        made: dict[str, Any] = vault.call("card", {"data_set": "kept"})
    assert (made["version"], made["people"]) == ("4", "keepers")
    assert made["caps"]["user"]["epsilon"] == 0.25
    assert made["caps"]["raise"] == "two people"
    assert made["delta_per_request"] == 1e-7
    assert made["airlock"]["reviewers"] == ["ada", "rolf"]
    assert owner.complaints == []


def test_a_wrong_answer_is_said_beside_its_field_and_nothing_goes_on(
    owner: Watched, service: Service, tmp_path: Path
) -> None:
    page = owner.page
    _upload(page, service, write_csv(tmp_path / "few.csv", ("age",), [(1,), (2,)]))
    page.fill("#name", "2 fast")
    page.select_option("#unit", "row")
    page.click("text=Next:")
    expect(page.locator("#name-fault")).to_contain_text("begin with a letter")
    expect(page.locator("#name")).to_have_attribute("aria-describedby", "name-fault name-hint")
    page.fill("#name", "few")
    page.click("text=Next:")
    page.fill("#delta", "2")
    page.click("text=More terms")
    page.fill("#average_sites", "few")
    page.click("text=Next:")
    expect(page.locator("#delta-fault")).to_contain_text("between 1e-15 and 0.1")
    expect(page.locator("#average_sites-fault")).to_be_visible()


def _book(path: Path, whose: str) -> Path:
    book = openpyxl.Workbook()
    for name in ("Visits", "Lab 2024 <b>"):
        sheet = book.create_sheet(name)
        for row in (("who", name[:3].lower()), (f"Anna {whose}", 3), (f"Bert {whose}", 4)):
            sheet.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize("is_zipped", [False, True])
def test_an_owner_chooses_the_sheet_of_a_workbook(
    owner: Watched, service: Service, tmp_path: Path, is_zipped: bool
) -> None:
    page, sent = owner.page, _book(tmp_path / "book.xlsx", f"of {is_zipped}")
    if is_zipped:
        sent = tmp_path / "export.zip"
        with zipfile.ZipFile(sent, "w") as archive:
            archive.write(tmp_path / "book.xlsx", "participants of 2024/book.xlsx")
            archive.writestr("__MACOSX/participants.tsv", "")
    page.goto(f"{service.url}/uploads")
    page.set_input_files("#file", sent)
    page.click("text=Send the file")
    page.wait_for_url("**/uploads/*")
    expect(page.locator("main")).to_contain_text("The file has 2 sheets.")
    expect(page.locator("#inner option")).to_have_text(["Visits", "Lab 2024 <b>"])
    page.select_option("#inner", "Lab 2024 <b>")
    page.click("text=Propose a card")
    expect(page.locator("main")).to_contain_text("Table or sheet: Lab 2024 <b>")
    name = f"lab{int(is_zipped)}"
    page.fill("#name", name)
    page.fill("#people", name)
    page.select_option("#unit", "row")
    page.click("text=Next:")
    page.click("text=Next:")
    expect(page.get_by_role("rowheader", name="lab", exact=True)).to_have_count(1)
    _column(page, "lab", lower="10", upper="0")
    page.click("text=Sign the card")
    expect(page.locator(".refused code")).to_have_text("bad-card")
    _column(page, "lab", lower="0", upper="10")
    page.click("text=Sign the card")
    page.click("text=See the data set", timeout=30_000)


def test_a_file_of_another_kind_is_refused_before_it_is_kept(
    owner: Watched, service: Service
) -> None:
    page = owner.page
    page.goto(f"{service.url}/uploads")
    page.set_input_files("#file", {"name": "x.exe", "mimeType": "a/b", "buffer": b"MZ"})
    page.click("text=Send the file")
    expect(page.locator("#sent")).to_contain_text("Give CSV, TSV")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin", "X-Csrf": "0" * 64},
        {"Sec-Fetch-Site": "cross-site", "X-Csrf": "right"},
        {"X-Csrf": "right"},
    ],
)
def test_a_file_from_elsewhere_is_not_taken(service: Service, headers: dict[str, str]) -> None:
    token = service.owner()
    sent = {**headers, "Cookie": f"{COOKIE}={token}"}
    if headers.get("X-Csrf") == "right":
        sent["X-Csrf"] = csrf_of(token)
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    connection.request("PUT", "/uploads?name=x.csv", b"a\n1\n", sent)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    assert reply.status == 403


def test_a_cap_is_raised_by_two(owner: Watched, browser: Browser, service: Service) -> None:
    opal = service.user_from_folder("opal", "operator")
    page = owner.page
    page.goto(service.url + MANAGE)
    page.select_option("#account", "people:city-hospital-patients")
    page.fill("#epsilon", "4")
    page.fill("#why", "a second wave was agreed")
    page.click("text=Set the cap")
    page.wait_for_url("**/approvals")
    expect(page.locator("main")).to_contain_text("a second wave was agreed")
    assert page.get_by_role("button", name="Approve").count() == 0
    with context_of(browser, service, opal) as context:
        second = context.new_page()
        second.goto(f"{service.url}/approvals")
        second.get_by_role("button", name="Approve").click()
        expect(second.locator("main")).to_contain_text("approved by opal")
    page.goto(service.url + MANAGE)
    expect(page.locator("#account option").first).to_contain_text("now ε 4")


def test_a_frozen_data_set_answers_nobody_until_it_is_thawed(
    owner: Watched, ada: Page, service: Service
) -> None:
    owner.page.goto(service.url + MANAGE)
    owner.page.click("button:text('Freeze')")
    expect(owner.page.locator("[role=status]")).to_contain_text("Frozen.")
    ada.goto(f"{service.url}/data-sets/patients/ask")
    ada.click("text=Ask and pay")
    expect(ada.locator(".refused code")).to_have_text("data-set-frozen")
    owner.page.click("button:text('Thaw')")
    expect(owner.page.locator("[role=status]")).to_have_count(0)
    ada.click("text=Ask and pay")
    ada.wait_for_url("**/answer?op=*")


def test_a_grant_is_taken_back(owner: Watched, browser: Browser, service: Service) -> None:
    token = service.user("kay", "researcher")
    owner.page.goto(service.url + MANAGE)
    owner.page.fill("#user", "kay")
    owner.page.get_by_role("button", name="Grant", exact=True).click()
    with context_of(browser, service, token) as context:
        page = context.new_page()
        page.goto(f"{service.url}/data-sets/patients")
        expect(page.locator("h1")).to_have_text("patients")
        owner.page.get_by_role("button", name="Revoke the grant of kay").click()
        expect(owner.page.locator("form[action$='/grants/revoke']")).to_have_count(0)
        expect(owner.page.locator("main")).to_contain_text("ada in researchers")  # enrolled
        page.reload()
        expect(page.locator("code")).to_have_text("unknown-data-set")


def test_another_owner_manages_nothing_here(browser: Browser, service: Service) -> None:
    with context_of(browser, service, service.user("olga", "owner")) as context:
        page = context.new_page()
        page.goto(service.url + MANAGE)
        expect(page.locator("code")).to_have_text("unknown-data-set")
