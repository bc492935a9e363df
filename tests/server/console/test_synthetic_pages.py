"""The form of a paid twin: the price first, the archive then, the same form again for nothing."""

from __future__ import annotations

import http.client
import io
import json
import zipfile
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from sfumato.server.console.session import csrf_of
from support.browser import COOKIE
from support.served_vault import Service, served
from support.small_vaults import patients_vault

FORM = "/data-sets/patients/dp-twin"
SENT = {"epsilon": "0.5", "method": "independent", "rows": "40", "op": "monday"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of its own: no browser is needed for a form."""
    with served(patients_vault(tmp_path_factory.mktemp("twins"), "ada")) as running:
        yield running


def sent(service: Service, path: str, fields: dict[str, str]) -> tuple[int, str, bytes]:
    """Return status, kind and content of what a form that ada sends is answered with."""
    token = service.user("ada", "researcher")
    headers = {
        "Cookie": f"{COOKIE}={token}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
        "Accept": "text/html",
    }
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=300)
    try:
        body = urlencode({**fields, "csrf": csrf_of(token)})
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.getheader("Content-Type", ""), reply.read()
    finally:
        connection.close()


def spent(service: Service) -> float:
    token = service.user("ada", "researcher")
    _, budget = service.call("GET", "/v1/data-sets/patients/budget", token=token)
    return float(budget["spent"]["epsilon"])


def test_the_price_is_shown_and_nothing_is_spent(service: Service) -> None:
    before = spent(service)
    status, _, page = sent(service, f"{FORM}/price", SENT)
    assert status == 200
    assert b"Nothing is spent yet" in page
    assert b'value="monday"' in page  # whoever buys now buys under the same name
    assert spent(service) == before


def test_the_archive_is_paid_once_however_often_the_form_is_sent(service: Service) -> None:
    before = spent(service)
    status, kind, made = sent(service, FORM, SENT)
    assert (status, kind) == (200, "application/zip")
    assert before < spent(service) <= before + 0.5 + 1e-9
    paid = spent(service)
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        name = next(one for one in archive.namelist() if one.endswith("TWIN.json"))
        assert json.loads(archive.read(name))["guarantee"] == "central-dp"
    assert sent(service, FORM, SENT)[2] == made
    assert spent(service) == paid


def test_private_bins_and_an_error_are_priced_on_the_form_and_bought(service: Service) -> None:
    more = {**SENT, "op": "bins", "epsilon": "0.1", "private_bins": "age", "error_epsilon": "0.05"}
    status, _, page = sent(service, f"{FORM}/price", more)
    assert status == 200
    assert b"Private bins for patients.age take" in page
    assert b"Measuring its error costs an additional" in page
    before = spent(service)
    status, _, made = sent(service, FORM, more)
    assert status == 200
    assert spent(service) == pytest.approx(before + 0.15, abs=1e-4)
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        name = next(one for one in archive.namelist() if one.endswith("TWIN.json"))
        assert json.loads(archive.read(name))["error"]["epsilon"] == 0.05


def test_what_does_not_fit_is_refused_on_the_form_and_kept(service: Service) -> None:
    before = spent(service)
    status, _, page = sent(service, FORM, {**SENT, "epsilon": "900", "op": "tuesday"})
    assert status >= 400
    assert b"budget-exceeded" in page
    assert b'value="900"' in page
    assert spent(service) == before


def test_a_form_of_another_site_is_not_taken(service: Service) -> None:
    token = service.user("ada", "researcher")
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=300)
    try:
        connection.request("POST", FORM, urlencode(SENT), {
            "Cookie": f"{COOKIE}={token}", "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "text/html",
        })  # fmt: skip
        assert connection.getresponse().status == 403
    finally:
        connection.close()
