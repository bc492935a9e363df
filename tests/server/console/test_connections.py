"""An owner takes a table of a connection in the console: named, its card filled in, signed."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from support.browser import Watched, context_of
from support.postgres_server import Server, running
from support.script_injections import TEXTS
from support.served_vault import Service, served
from support.small_vaults import make_vault

SHORT = tuple(text for text in TEXTS if len(text.encode()) <= 63)  # what a column may be called
COLUMNS = ", ".join('"' + text.replace('"', '""') + '" int' for text in SHORT)
MADE = (
    "CREATE TABLE visits AS SELECT n AS patient_id, n % 90 AS age FROM generate_series(1, 500) n",
    f"CREATE TABLE odd ({COLUMNS})",
    "CREATE ROLE reads LOGIN",
    "GRANT SELECT ON visits, odd TO reads",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a PostgreSQL with a table, and one whose columns are attacks."""
    with running() as made:
        for statement in MADE:
            made.run(statement)
        yield made


@pytest.fixture(scope="module")
def service(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with a connection of the owner's."""
    folder = tmp_path_factory.mktemp("connected")
    file = folder / "clinic"
    address = server.database_url("postgres", "reads")
    file.write_text(f'address = "{address}"\nowners = ["owner"]\n')
    file.chmod(0o600)
    with served(make_vault(folder), "--connection", f"clinic={file}") as made:
        made.owner()
        made.user("olga", "owner")
        yield made


@pytest.fixture
def owner(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the owner's."""
    with context_of(browser, service, service.owner()) as context:
        context.expose_function("hit", lambda number: pytest.fail(f"text {number} ran"))
        yield Watched(context.new_page()).watch()


def test_an_owner_takes_a_table_and_signs_its_card(owner: Watched, service: Service) -> None:
    page = owner.page
    page.goto(f"{service.url}/uploads")
    page.fill("#table", "visits")
    page.click("text=Propose a card")
    expect(page.locator("h1")).to_have_text("A card for visits")
    expect(page.locator("#unit")).to_have_value("patient_id")
    page.click("text=Next:")
    page.fill("#epsilon", "many")
    page.click("text=Next:")
    expect(page.locator("#epsilon-fault")).to_contain_text("must be a plain number")
    expect(page.locator("#epsilon")).to_have_value("many")
    page.fill("#epsilon", "9")
    page.click("text=Next:")
    page.click("text=Sign the card")
    page.wait_for_url("**/jobs/*")
    page.click("text=See the data set", timeout=40_000)
    expect(page.locator("h1")).to_have_text("visits")
    body = {"sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 5}
    path = "/v1/data-sets/visits/ask"
    said = service.call("POST", path, body, token=service.owner())[1]
    assert abs(said["rows"][0][0] - 500) < 10
    assert [one for one in owner.complaints if "status of 4" not in one] == []


def test_a_table_that_is_not_there_is_said_and_kept(owner: Watched, service: Service) -> None:
    page = owner.page
    for text in ("nothing", *SHORT[::6]):
        page.goto(f"{service.url}/uploads")
        page.fill("#table", text)
        page.click("text=Propose a card")
        expect(page.locator(".refused code")).to_have_text("source-unreadable")
        expect(page.locator("#table")).to_have_value(text)
    page.wait_for_timeout(150)
    assert [one for one in owner.complaints if "status of 4" not in one] == []


def test_no_name_of_a_column_runs(owner: Watched, service: Service) -> None:
    page = owner.page
    page.goto(f"{service.url}/connections?connection=clinic&table={quote('public.odd')}")
    page.select_option("#unit", "row")
    page.click("text=Next:")
    page.click("text=Next:")
    names = page.locator("table.seen tbody th").all_inner_texts()
    assert [name.strip() for name in names] == list(SHORT)
    page.wait_for_timeout(150)
    assert owner.complaints == []


def test_another_owner_is_offered_no_connection(browser: Browser, service: Service) -> None:
    with context_of(browser, service, service.tokens["olga"]) as context:
        page = context.new_page()
        page.goto(f"{service.url}/uploads")
        assert page.locator("#connection").count() == 0
        page.goto(f"{service.url}/connections?connection=clinic&table=visits")
        expect(page.locator(".refused code")).to_have_text("connection-unknown")
