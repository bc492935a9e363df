"""Take the pictures of docs/console anew.

Run it as: PYTHONPATH=tests .venv/bin/python tests/support/console_screenshots.py
"""

from __future__ import annotations

import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Literal

from playwright.sync_api import Browser, Page

import sfumato
from sfumato.features.surveys.randomised_report import Truth
from support.browser import bring, chromium
from support.federated_sites import pooled, several
from support.served_vault import PASSWORD, Service, served
from support.small_vaults import card, patients_vault
from support.survey_fixtures import design, device

ROOT = Path(__file__).parents[2]
TO = ROOT / "docs" / "console"
LAB = ROOT / "src" / "sfumato" / "lab" / "data"
SQL = "SELECT zip, COUNT(*) AS people, AVG(salary) AS pay FROM medical GROUP BY zip"
Look = tuple[Literal["light", "dark"], int]
TWO: tuple[Look, ...] = (("light", 1280), ("dark", 390))
NARROW: tuple[Look, ...] = (("light", 1280), ("light", 320))
FOUR: tuple[Look, ...] = (*TWO, ("dark", 1280), ("light", 390))
PAGES = {
    "data-sets": "/data-sets",
    "history": "/history",
    "tokens": "/tokens",
    "people": "/users",
    "manage": "/data-sets/medical/manage",
    "approvals": "/approvals",
    "releases": "/releases",
    "chain": "/ledger?verify=1",
    "policies": "/policies",
    "error": "/data-sets/nothing",
}


def take(page: Page, name: str, looks: tuple[Look, ...] = TWO, *, whole: bool = True) -> None:
    """Save the page as it looks."""
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
        page.wait_for_timeout(400)
        page.screenshot(path=TO / f"{name}-{scheme}-{width}.png", full_page=whole)
    page.set_viewport_size({"width": 1280, "height": 900})


def make(folder: Path) -> Path:
    """Return a vault with the medical data and some patients."""
    vault = patients_vault(folder)
    medical = card((LAB / "medical.card.toml").read_text("utf-8"))
    medical |= {"budget": {"epsilon": Decimal(5), "delta": 0}, "ask": {"who": ["researchers"]}}
    with sfumato.open(vault) as opened:
        opened.add("medical", LAB / "medical.csv", medical)
    return vault


def fill(service: Service) -> str:
    """Let people ask, and return the session of somebody who sees every page."""
    service.owner()
    deputy = service.user("deputy", "operator")
    body = {"roles": ["owner", "operator", "researcher", "auditor"], "blocked": False}
    service.call("PUT", "/v1/users/owner", body, token=deputy)
    signed = {"user": "owner", "password": PASSWORD}
    token = str(service.call("POST", "/v1/sign-in", signed)[1]["token"])
    at, ada = "/v1/data-sets/medical", service.user("ada", "researcher")
    service.call("PUT", f"{at}/grants/ada", {}, token=token)
    for age, epsilon in ((40, 0.1), (50, 0.2), (65, 0.4)):
        asked = {
            "sql": f"SELECT COUNT(*) AS n FROM medical WHERE age > {age}",
            "epsilon": epsilon,
        }
        service.call("POST", f"{at}/ask", asked, token=ada if age == 50 else token)
    raised = {"of": "people", "epsilon": 8, "why": "The second wave of the study was agreed."}
    service.call("PUT", f"{at}/caps", raised, token=token)
    return token


def ask(page: Page, service: Service) -> None:
    """Take the question, what is offered, and the answer."""
    page.goto(f"{service.url}/data-sets/medical/ask")
    page.fill("#sql", SQL)
    page.fill("#epsilon", "0.8")
    page.wait_for_timeout(1500)
    take(page, "ask", FOUR)
    page.locator("#sql").press("End")
    page.locator("#sql").press_sequentially(" ORDER BY z")
    page.keyboard.press("ArrowDown")
    take(page, "words", (("light", 1280),))
    page.keyboard.press("Escape")
    page.fill("#sql", SQL)
    page.get_by_role("button", name="Ask and pay").click()
    page.wait_for_url("**/answer?op=*")
    take(page, "answer", FOUR)


def bounds(page: Page, service: Service) -> None:
    """Take what a price and an answer say where contribution bounds can cut."""
    page.goto(f"{service.url}/data-sets/patients/ask")
    page.fill("#sql", "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip")
    page.fill("#epsilon", "0.3")
    page.wait_for_timeout(1500)
    take(page, "bounds")
    page.get_by_role("button", name="Ask and pay").click()
    page.wait_for_url("**/answer?op=*")
    take(page, "bounds-answer")


def job(page: Page, service: Service) -> None:
    """Take the page of a question that was asked as a job."""
    page.goto(f"{service.url}/data-sets/medical/ask")
    page.click("text=Ask as a job")
    page.wait_for_url("**/jobs/*")
    page.wait_for_timeout(2500)
    take(page, "job")


def connection(folder: Path) -> str:
    """Return a connection of the owner's, to a database that nobody asks."""
    file = folder / "clinic"
    file.write_text('address = "host=/nowhere user=reads"\nowners = ["owner"]\n')
    file.chmod(0o600)
    return f"clinic={file}"


def upload(page: Page, service: Service) -> None:
    """Take the form for a file, and the card."""
    page.goto(f"{service.url}/uploads")
    take(page, "upload")
    page.set_input_files("#file", LAB / "medical.csv")
    page.click("text=Send the file")
    page.wait_for_url("**/uploads/*")
    page.select_option("#unit", "row")
    take(page, "card")
    page.click("text=Next:")
    take(page, "card-budget")
    page.click("text=Next:")
    take(page, "card-columns")


def amend(page: Page, service: Service) -> None:
    """Take the form of a card that is amended, and what would change."""
    page.goto(f"{service.url}/data-sets/medical/amend")
    page.fill("#who", "researchers\nguests")
    page.fill("#user_epsilon", "0.5")
    page.fill("#size", "5000")
    take(page, "amend")
    page.click("text=Show the changes")
    take(page, "amended")


LINES = ["the 1", "the 2", "the 7", "the 9", "the 11", "the 14", "the 22", "the 30"]
ASKED: list[dict[str, object]] = [
    {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"},
    {"id": "line", "text": "Which bus brings you?", "kind": "choice", "options": LINES},
    {"id": "hours", "text": "How many hours do you sit a day?", "kind": "number", "low": 0,
     "high": 12, "unit": "h"},
]  # fmt: skip


def surveys(page: Page, service: Service, token: str) -> None:
    """Take what respondents see of a survey, with coins and with dice, and what its owner sees."""
    made = design(questions=ASKED, epsilon=3, minimum=10, people=400)
    survey = str(service.call("POST", "/v1/surveys", {"survey": made}, token=token)[1]["survey"])
    dice = design(paper=True, title="How we work, with dice")
    paper = str(service.call("POST", "/v1/surveys", {"survey": dice}, token=token)[1]["survey"])
    at, asked = f"/v1/surveys/{survey}/invitations", {"count": 90}
    codes = service.call("POST", at, asked, token=token)[1]["codes"]
    house, random = sfumato.connect(service.url, token=""), Random(7)
    for code in codes[1:]:
        truths: dict[str, Truth] = {"smokes": random.random() < 0.3}
        truths |= {"line": random.choice(LINES[:3]), "hours": random.randint(3, 9)}
        device().answer(house, survey, code, truths)
    page.goto(f"{service.url}/s/{survey}#{codes[0]}")
    page.wait_for_selector("#flip")
    take(page, "survey", NARROW)
    page.check("#q0-1")
    page.check("#q1-2")
    page.fill("#q2", "6")
    page.click("#flip")
    page.wait_for_selector("#send")
    take(page, "survey-coins", NARROW)
    page.click("#send")
    page.wait_for_selector("#mark")
    take(page, "survey-receipt", NARROW)
    for name, path in (("results", f"{survey}/results"), ("dice", f"{paper}/paper")):
        page.goto(f"{service.url}/s/{path}")
        take(page, f"survey-{name}", NARROW)
    page.goto(f"{service.url}/surveys/{survey}")
    take(page, "survey-own", NARROW)


LESSON: dict[str, Any] = {
    "features": ["age"], "target": "ill", "epsilon": 20, "delta": 1e-6, "rounds": 8,
    "people": 480, "clip": 1, "rate": 2.0,
}  # fmt: skip


def lessons(browser: Browser, folder: Path) -> None:
    """Take what one of four sites sees of a lesson that it took part in."""
    public = [{"age": age, "ill": ill == "true"} for _, age, _, _, ill in pooled()[:100]]
    with several(folder) as sites:
        sites.together().train("patients", public=public, **LESSON)
        sites.vaults.pop("east").close()
        with served(folder / "east" / "vault") as service, browser.new_context() as context:
            bring(context, service, service.owner())
            page = context.new_page()
            page.goto(f"{service.url}/data-sets/patients/lessons")
            take(page, "lessons")


FIRST = """import csv, json, sys

source, target, level = sys.argv[1:]
with open(source + "/participants.tsv") as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
print(len(people), "people")
ages = [float(one["age"]) for one in people] or [50]
with open(target + "/ages.json", "w") as file:
    old = sum(age > 65 for age in ages) / len(ages)
    json.dump({"mean": sum(ages) / len(ages), "old": old}, file)
"""
PLACES = ("mean", 0, 110), ("old", 0, 1)


def programs(page: Page, service: Service, token: str) -> None:
    """Take a program that is reviewed, one that is priced, and an answer."""
    at, digests = "/data-sets/patients/programs", []
    service.call("PUT", "/v1/data-sets/patients/grants/ada", {}, token=token)
    outputs = [
        {"name": name, "lower": low, "upper": high, "path": "ages.json", "at": [name]}
        for name, low, high in PLACES
    ]
    body = {"kind": "program", "name": "group", "columns": ["age"], "outputs": outputs}
    for source in (FIRST, FIRST.replace("65", "70")):
        made = {**body, "source": source}
        path = "/v1/data-sets/patients/pipelines"
        sent = service.call("POST", path, made, token=service.user("ada", "researcher"))[1]
        digests.append(sent["digest"])
        decided = {"state": "approved", "most_epsilon": 1}
        if source == FIRST:
            service.call("POST", f"{path}/{sent['digest']}/decision", decided, token=token)
    page.goto(f"{service.url}{at}/{digests[1]}/review")
    page.get_by_role("button", name="Try it on synthetic people").click()
    page.wait_for_selector("table:has-text('noise at 95 %')", timeout=180_000)
    take(page, "program-review")
    page.goto(f"{service.url}{at}/{digests[0]}")
    page.fill("#epsilon", "0.9")
    page.get_by_role("button", name="Show the price").click()
    page.get_by_role("button", name="Run it and pay").click()
    page.get_by_role("link", name="See the answer").click(timeout=180_000)
    page.wait_for_url("**/program-answer?op=*")
    take(page, "program-answer")
    page.goto(f"{service.url}{at}/new")
    take(page, "program-new")


def main() -> None:
    """Take them all, or some alone: with the word `surveys`, `programs` or `lessons`."""
    TO.mkdir(exist_ok=True)
    if sys.argv[1:] in ([], ["lessons"]):
        with tempfile.TemporaryDirectory() as folder, chromium() as browser:
            lessons(browser, Path(folder))
    if sys.argv[1:] != ["lessons"]:
        _console()


def _console() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        served(make(Path(folder)), "--connection", connection(Path(folder))) as service,
        chromium() as browser,
        browser.new_context() as context,
    ):
        page = context.new_page()
        if sys.argv[1:] == ["surveys"]:
            token = fill(service)
            bring(context, service, token)
            surveys(page, service, token)
            return
        if sys.argv[1:] == ["programs"]:
            token = fill(service)
            bring(context, service, token)
            programs(page, service, token)
            return
        for name, path in (("welcome", f"/welcome/{service.invitation}"), ("sign-in", "/sign-in")):
            page.goto(service.url + path)
            take(page, name)
        token = fill(service)
        bring(context, service, token)
        surveys(page, service, token)
        programs(page, service, token)
        ask(page, service)
        bounds(page, service)
        job(page, service)
        upload(page, service)
        page.goto(f"{service.url}/data-sets/medical")
        take(page, "data-set", FOUR)
        for name, path in PAGES.items():
            page.goto(service.url + path)
            take(page, name, whole=name != "chain")
        amend(page, service)
        page.goto(f"{service.url}/releases")
        page.locator("tbody th a").first.click()
        take(page, "sheet")


if __name__ == "__main__":
    main()
