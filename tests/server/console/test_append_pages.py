"""An owner appends rows that arrived later, by the console's form."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

import sfumato
from support.browser import Watched, context_of
from support.served_vault import Service
from support.small_vaults import card, write_csv

AT = "/data-sets/arrivals"
CARD = """
unit = "who"
people = "arrivals"
budget = { epsilon = 90, delta = 0 }
[columns.age]
type = "integer"
lower = 0
upper = 99
[tables.visits]
unit = "who"
[tables.visits.columns.cost]
type = "integer"
lower = 0
upper = 9
"""


def people(place: Path, first: int, count: int, column: str = "age") -> Path:
    rows = [(f"arrived {n}", 5) for n in range(first, first + count)]
    return write_csv(place, ("who", column), rows)


def _book(path: Path) -> Path:
    book = openpyxl.Workbook()
    for name in ("notes", "visits"):
        sheet = book.create_sheet(name)
        for row in [("who", "cost"), *((f"arrived {n}", 5) for n in range(200, 240))]:
            sheet.append(row)
    book.save(path)
    return path


def test_an_owner_appends_a_file_and_a_sheet_of_another_table(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    tables = {"visits": people(tmp_path / "v.csv", 0, 200, "cost")}
    with (
        sfumato.connect(service.url, token=service.owner()) as vault,
        context_of(browser, service, service.owner()) as context,
    ):
        vault.add("arrivals", people(tmp_path / "a.csv", 0, 300), card(CARD), tables=tables)
        owner = Watched(context.new_page()).watch()
        page = owner.page
        page.goto(f"{service.url}{AT}/manage")
        page.click("text=Append rows")
        assert Axe().run(page).violations_count == 0
        page.set_input_files("#file", people(tmp_path / "b.csv", 300, 50))
        page.click("text=Send the file")
        page.wait_for_url(f"**{AT}/append/*")
        expect(page.locator("main")).to_contain_text("The rows of b.csv become part")
        expect(page.locator("#version")).to_have_value("2")
        assert Axe().run(page).violations_count == 0
        page.fill("#version", "1")
        page.click("text=Append the rows")
        expect(page.locator(".refused code")).to_have_text("data-set-exists")
        page.fill("#version", "2")
        page.click("text=Append the rows")
        page.click("text=See the data set", timeout=30_000)
        expect(page.locator("main")).to_contain_text("2")

        page.goto(f"{service.url}{AT}/append")
        page.set_input_files("#file", _book(tmp_path / "book.xlsx"))
        page.click("text=Send the file")
        page.wait_for_url(f"**{AT}/append/*")
        page.select_option("#inner", "visits")
        page.click("text=Next")
        page.select_option("#into", "visits")
        page.click("text=Append the rows")
        page.click("text=See the data set", timeout=30_000)
        assert vault.call("card", {"data_set": "arrivals"})["version"] == "3"
        for table, true in (("arrivals", 350), ("visits", 240)):
            answer = vault["arrivals"].ask(f"SELECT COUNT(*) AS n FROM {table}", epsilon=10)
            assert abs(float(str(answer.rows[0][0])) - true) < 10
        assert all("409" in said for said in owner.complaints)  # of the version that exists


@pytest.mark.parametrize("page", ["append", "append/none"])
def test_nobody_else_sees_the_form(browser: Browser, service: Service, page: str) -> None:
    with context_of(browser, service, service.user("ada", "researcher")) as context:
        shown = context.new_page()
        shown.goto(f"{service.url}/data-sets/patients/{page}")
        expect(shown.locator("#version, #file")).to_have_count(0)
