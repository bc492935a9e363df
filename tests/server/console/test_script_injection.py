"""Forty texts that would run on a careless page, in every field that is stored and shown again."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext

import sfumato
from support.browser import Watched, bring
from support.script_injections import CARELESS, TEXTS
from support.served_vault import Service, served
from support.small_vaults import make_vault

NAMES = tuple(text for text in TEXTS if "/" not in text)  # what a user may be called
ROLES = ("owner", "operator", "researcher", "auditor")


def the_card(columns: tuple[str, ...]) -> dict[str, Any]:
    """Return a card whose every text is an attack: its people, version, groups, columns, keys."""
    return {
        "unit": "person",
        "people": TEXTS[1],
        "version": TEXTS[5],
        "budget": {"epsilon": 50, "delta": 0},
        "ask": {"who": list(TEXTS)},
        "columns": {
            "word": {"type": "text", "keys": list(TEXTS)},
            **{name: {"type": "integer", "lower": 0, "upper": 9} for name in columns},
        },
    }


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service whose catalogue, users, tokens and questions are full of attacks."""
    folder = tmp_path_factory.mktemp("scripts")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        opened.add("cards", _rows(folder / "rows.csv"), the_card(TEXTS))
        opened.enrol("ada", TEXTS[1])
    with served(vault) as running:
        _fill(running, running.user("ada", *ROLES))
        _fill_what_owners_decide(running)
        yield running


def _rows(path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("person", "word", *TEXTS))
        writer.writerows((f"p{n}", text, *(1 for _ in TEXTS)) for n, text in enumerate(TEXTS))
    return path


def _fill(service: Service, token: str) -> None:
    for name in NAMES:
        body: dict[str, object] = {"user": name, "roles": ["researcher"]}
        assert service.call("POST", "/v1/users", body, token=token)[0] == 200
    for text in TEXTS:
        assert service.call("POST", "/v1/tokens", {"label": text}, token=token)[0] == 200
    for number in range(0, len(TEXTS), 4):  # four pictures to an answer
        outputs = ", ".join(f"COUNT(*) AS {_quoted(text)}" for text in TEXTS[number : number + 4])
        _ask(service, token, f"SELECT word, {outputs} FROM cards GROUP BY word", TEXTS[number])
    for text in TEXTS:
        literal = text.replace("'", "''")
        _ask(service, token, f"SELECT COUNT(*) AS n FROM cards WHERE word = '{literal}'", text)


def _fill_what_owners_decide(service: Service) -> None:
    """Grant in groups that are attacks, and ask for caps for reasons that are."""
    token, at = service.owner(), "/v1/data-sets/cards"
    for name in NAMES:
        body: dict[str, object] = {"group": name}
        assert service.call("PUT", f"{at}/grants/ada", body, token=token)[0] == 200
    for text in TEXTS:
        body = {"of": "people", "epsilon": 60, "why": text}
        assert service.call("PUT", f"{at}/caps", body, token=token)[0] == 200


def _ask(service: Service, token: str, sql: str, op: str) -> None:
    body = {"sql": sql, "epsilon": 0.1, "op": op + str(len(sql))}
    status, said = service.call("POST", "/v1/data-sets/cards/ask", body, token=token)
    assert status == 200, said


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def hits() -> list[int]:
    """Return the numbers of the texts that ran."""
    return []


@pytest.fixture
def context(browser: Browser, hits: list[int]) -> Iterator[BrowserContext]:
    """Return a browser that notes what runs."""
    with browser.new_context() as made:
        made.expose_function("hit", lambda number: hits.append(number))
        made.set_default_timeout(20_000)
        yield made


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_each_text_runs_on_a_careless_page(
    context: BrowserContext, hits: list[int], number: int
) -> None:
    page = context.new_page()
    page.set_content(CARELESS.replace("{0}", TEXTS[number]), wait_until="commit")
    for _ in range(40):
        if number in hits:
            break
        page.wait_for_timeout(25)
    assert number in hits


def test_there_are_forty_texts_and_each_is_another() -> None:
    assert len(set(TEXTS)) == 40


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/data-sets", 3),
        ("/data-sets/cards", len(TEXTS)),
        ("/data-sets/cards/ask", 0),  # the editor has them as words to offer
        ("/history", 30),
        ("/tokens", len(TEXTS)),
        ("/users", len(NAMES)),
        ("/releases", 30),
        ("/approvals", len(TEXTS)),
        ("/ledger", 10),
        ("/ledger?verify=1", 10),
        ("/policies", len(TEXTS)),
    ],
)
def test_no_text_runs_where_it_is_shown_again(
    service: Service, context: BrowserContext, hits: list[int], path: str, shown: int
) -> None:
    bring(context, service, service.user("ada", *ROLES))
    watched = Watched(context.new_page()).watch()
    watched.page.goto(service.url + path)
    seen = watched.page.text_content("main") or ""
    assert sum(text in seen for text in TEXTS) >= shown
    watched.page.wait_for_timeout(150)
    assert (hits, watched.complaints) == ([], [])


def test_no_text_runs_where_an_owner_decides(
    service: Service, context: BrowserContext, hits: list[int]
) -> None:
    bring(context, service, service.owner())
    watched = Watched(context.new_page()).watch()
    watched.page.goto(f"{service.url}/data-sets/cards/manage")
    seen = watched.page.text_content("main") or ""
    assert sum(text in seen for text in TEXTS) >= len(TEXTS)
    name = quote(f"{TEXTS[1]}.csv", safe="")
    rows = f"{'|'.join(TEXTS)}\n".replace(",", " ").replace("|", ",").replace('"', "'") + "1," * 39
    sent = service.call("PUT", f"/v1/uploads?name={name}", rows.encode(), token=service.owner())[1]
    watched.page.goto(f"{service.url}/uploads/{sent['upload']}")
    assert TEXTS[0] in (watched.page.text_content("main") or "")
    watched.page.wait_for_timeout(150)
    assert (hits, watched.complaints) == ([], [])


def test_no_text_runs_on_a_card_that_is_amended(
    service: Service, context: BrowserContext, hits: list[int]
) -> None:
    bring(context, service, service.owner())
    watched = Watched(context.new_page()).watch()
    page = watched.page
    page.goto(f"{service.url}/data-sets/cards/amend")
    assert page.input_value("#who").split("\n") == list(TEXTS)
    for text in TEXTS:
        page.goto(f"{service.url}/data-sets/cards/amend")
        for name in ("version", "size", "user_epsilon"):
            page.fill(f"#{name}", text)
        page.click("text=Show the changes")
        page.locator(".refused").wait_for()
        assert page.input_value("#version") == text
        for name in ("size", "user_epsilon"):
            page.fill(f"#{name}", "")
        page.fill("#version", f"{text}.")  # one of the texts is the version's already
        page.fill("#who", text)
        page.click("text=Show the changes")
        assert page.locator("table.changes b").all_inner_texts() == [f"{text}.", text]
    page.wait_for_timeout(150)
    assert hits == []
    assert [said for said in watched.complaints if "status of 4" not in said] == []


def test_no_text_runs_in_answers_and_their_pictures(
    service: Service, context: BrowserContext, hits: list[int]
) -> None:
    token = service.user("ada", *ROLES)
    bring(context, service, token)
    watched = Watched(context.new_page()).watch()
    questions = service.call("GET", "/v1/questions?limit=200", token=token)[1]["questions"]
    wide = [one["op"] for one in questions if "for each word" in one["says"]]
    assert len(wide) == 10
    for op in wide:
        watched.page.goto(f"{service.url}/answer?op={quote(op, safe='')}")
        images = watched.page.eval_on_selector_all("img", "all => all.map(i => i.naturalWidth)")
        assert len(images) > 0
        assert all(width > 100 for width in images)
    address = watched.page.locator("img").first.get_attribute("src")
    watched.page.goto(f"{service.url}{address}")  # the picture by itself is a document too
    watched.page.wait_for_timeout(150)
    assert (hits, watched.complaints) == ([], [])


def test_no_text_runs_from_a_field_that_refuses_it(
    service: Service, context: BrowserContext, hits: list[int]
) -> None:
    bring(context, service, service.user("ada", *ROLES))
    watched = Watched(context.new_page()).watch()
    page = watched.page
    for text in TEXTS[::3]:
        page.goto(f"{service.url}/data-sets/cards/ask")
        page.fill("#sql", f"SELECT COUNT(*) FROM cards WHERE {_quoted(text)} = {_quoted(text)} x")
        page.fill("#error_column", text)
        page.locator("#problem").wait_for()
        page.click("text=Ask and pay")
        page.locator(".refused").wait_for()
    for text in TEXTS[::5]:
        page.goto(f"{service.url}/data-sets/{quote(text, safe='')}")
        page.goto(f"{service.url}/releases?data_set={quote(text, safe='')}")
        page.goto(f"{service.url}/sign-in?next=/{quote(text, safe='')}")
    assert hits == []
    assert [said for said in watched.complaints if "status of 4" not in said] == []


def test_no_text_runs_as_it_is_offered_by_the_editor(
    service: Service, context: BrowserContext, hits: list[int]
) -> None:
    bring(context, service, service.user("ada", *ROLES))
    watched = Watched(context.new_page()).watch()
    page = watched.page
    page.goto(f"{service.url}/data-sets/cards/ask")
    page.fill("#sql", "")
    page.locator("#sql").press_sequentially("SELECT COUNT(*) FROM cards WHERE word = '<")
    assert page.locator("#offer li").count() == 8
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "word = '<script>hit(0)</script>'" in page.input_value("#sql")
    assert (hits, watched.complaints) == ([], [])
