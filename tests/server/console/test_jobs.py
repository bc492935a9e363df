"""A question as a job: begun from the form, followed while it goes on, ended while it waits."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from support.browser import COOKIE, Watched, context_of
from support.process_tree import waited
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, patients_vault, write_patients

AT = "/data-sets/patients/ask"
SQL = "SELECT COUNT(*) AS n FROM patients WHERE age > {}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service where ada may ask and olga is an owner too."""
    with served(patients_vault(tmp_path_factory.mktemp("jobs"), "ada")) as running:
        running.owner()
        running.user("ada", "researcher")
        running.user("olga", "owner")
        yield running


@pytest.fixture
def ada(browser: Browser, service: Service) -> Iterator[Watched]:
    """Return a page of the researcher's."""
    with context_of(browser, service, service.tokens["ada"]) as context:
        yield Watched(context.new_page()).watch()


def waiting_job(service: Service, folder: Path, name: str) -> str:
    """Return a job of olga's that waits for a second person, and so for as long as we like."""
    rows = write_patients(folder / "rows.csv", 20).read_bytes()
    token = service.tokens["olga"]
    sent: Any = service.call("PUT", "/v1/uploads?name=rows.csv", rows, token=token)[1]
    text = PATIENTS_CARD.replace("city-hospital-patients", name).replace("3.0", "3")
    shape = json.loads(json.dumps(card(text), default=float))
    body = {"name": name, "upload": sent["upload"], "card": shape, "different_people": "owner"}
    status, job = service.call("POST", "/v1/data-sets", body, token=token)
    assert status == 200, job
    return str(job["job"])


def test_a_question_is_begun_as_a_job_and_its_answer_is_found(
    ada: Watched, service: Service
) -> None:
    page = ada.page
    page.goto(service.url + AT)
    page.fill("#sql", SQL.format(40))
    page.fill("#epsilon", "0.05")
    page.click("text=Ask as a job")
    page.wait_for_url("**/jobs/*")
    expect(page.locator("[role=status]")).to_have_text("The question is answered.", timeout=30_000)
    page.click("text=See the answer")
    page.wait_for_url("**/answer?op=*")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert ada.complaints == []
    questions = service.call("GET", "/v1/questions", token=service.tokens["ada"])[1]["questions"]
    assert [one["epsilon"] for one in questions] == ["1/20"]  # paid once


def test_a_job_that_is_refused_is_said_above_the_form_as_it_was(
    ada: Watched, service: Service
) -> None:
    page = ada.page
    page.goto(service.url + AT)
    page.fill("#sql", "SELECT SUM(name) FROM patients")
    page.click("text=Ask as a job")
    expect(page.locator(".refused code")).to_have_text("unknown-column")
    expect(page.locator("#sql")).to_have_value("SELECT SUM(name) FROM patients")


def test_the_page_of_a_job_follows_it(browser: Browser, service: Service, tmp_path: Path) -> None:
    job = waiting_job(service, tmp_path, "followed")
    with context_of(browser, service, service.tokens["olga"]) as context:
        watched = Watched(context.new_page()).watch()
        page = watched.page
        page.goto(f"{service.url}/jobs/{job}")
        expect(page.locator("[role=status]")).to_contain_text("until owner confirms")
        seconds = page.locator("[data-seconds]")
        expect(seconds).to_be_visible()
        first = int(seconds.inner_text())
        assert waited(lambda: int(seconds.inner_text()) > first)
        waits = service.call("GET", "/v1/approvals", token=service.owner())[1]["approvals"]
        path = f"/v1/approvals/{waits[0]['approval']}"
        service.call("POST", path, {"approve": True}, token=service.owner())
        expect(page.locator("[role=status]")).to_have_text("The data set is ready.", timeout=30_000)
        assert watched.complaints == []


def test_a_job_is_cancelled_while_it_waits(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    job = waiting_job(service, tmp_path, "ended")
    with context_of(browser, service, service.tokens["olga"], javascript=False) as context:
        page = context.new_page()
        page.goto(f"{service.url}/history")  # where it is found again
        page.click("text=Rows of ended")
        expect(page).to_have_url(f"{service.url}/jobs/{job}")
        expect(page.locator("text=Reload")).to_be_visible()
        page.click("text=Cancel the job")
        expect(page.locator("[role=status]")).to_have_text("The job was cancelled.")
        assert page.locator("text=Cancel the job").count() == 0


def test_a_job_that_is_over_is_not_cancelled(ada: Watched, service: Service) -> None:
    page = ada.page
    page.goto(service.url + AT)
    page.fill("#sql", SQL.format(50))
    page.fill("#epsilon", "0.05")
    page.click("text=Ask as a job")
    expect(page.locator("[role=status]")).to_have_text("The question is answered.", timeout=30_000)
    csrf = page.locator("[name=csrf]").first.get_attribute("value") or ""
    reply = page.request.post(
        f"{page.url}/cancel", form={"csrf": csrf}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert (reply.status, "job-begun" in reply.text()) == (409, True)


def _get(service: Service, path: str, token: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    try:
        connection.request("GET", path, headers={"Cookie": f"{COOKIE}={token}"})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_nobody_follows_or_ends_a_job_of_another(service: Service, tmp_path: Path) -> None:
    job = waiting_job(service, tmp_path, "private")
    for token in (service.tokens["ada"], service.owner()):
        assert _get(service, f"/jobs/{job}/events", token)[0] == 404
        assert _get(service, f"/jobs/{job}", token)[0] == 404
    assert _get(service, f"/jobs/{job}/events", "")[0] == 401
    assert _get(service, "/jobs/nothing/events", service.owner())[0] == 404
