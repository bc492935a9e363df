"""Alive is not ready: a service that cannot charge or read says so, and to whom it may concern."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sfumato.app.vault import OpenVault
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.driver_process import DriverHandle
from sfumato.features.health import service as readiness_module
from sfumato.features.health.service import Readiness
from sfumato.server.ipc.call_metrics import TIMED, UNWRITTEN, CallMetrics, to_nowhere
from sfumato.server.ipc.door_server import HEAVY, REPORT, SHEET, TELLING, TENSORS
from sfumato.wire.verb_table import VERBS
from support.engine_rows import SALT
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, make_vault, open_with, write_patients


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_patients(tmp_path / "p.csv")
    with open_with(tmp_path, "patients", source, PATIENTS_CARD) as opened:
        yield opened


def fresh(vault: OpenVault, **changed: Any) -> Readiness:  # Any: parts of it
    """Return one that has looked at nothing yet."""
    health, house = vault.house.desk.health, vault.house
    parts = {"can_read": lambda: True, "folders": dict(health.folders), **changed}
    return Readiness(house.ledger, house.catalogue, **parts)


def read(service: Service, path: str) -> tuple[int, str]:
    """Return the status of a page that needs no token, and its text."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(service.url + path, timeout=60) as reply:  # noqa: S310
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(service: Service, status: int) -> str:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        found, text = read(service, "/readyz")
        if found == status:
            return text
        time.sleep(0.2)
    raise AssertionError(f"it was never {status}: {text}")


def test_a_service_without_its_anchor_is_alive_and_not_ready(tmp_path: Path) -> None:
    folder = make_vault(tmp_path)
    anchor = tmp_path / "anchors" / "anchor"
    with served(folder) as service:
        assert until(service, 200) == "ready\n"
        anchor.rename(anchor.with_name("away"))
        refused = json.loads(until(service, 503))["refused"]
        assert (refused["code"], refused["missing"]) == ("service-down", ["anchor-missing"])
        assert read(service, "/healthz") == (200, "ok\n")
        anchor.with_name("away").rename(anchor)
        assert until(service, 200) == "ready\n"


def test_what_is_missing_is_named(vault: OpenVault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fresh(vault).missing() == ()
    assert fresh(vault, can_read=lambda: False).missing() == ("engine-unavailable",)
    assert fresh(vault, folders={"vault": Path("/nowhere")}).missing() == ("disk",)
    with monkeypatch.context() as patched:
        patched.setattr(readiness_module, "FREE", 1 << 80)
        assert fresh(vault).missing() == ("disk",)
    vault.house.ledger.store.freeze("a test")
    assert fresh(vault, can_read=lambda: False).missing() == ("ledger-frozen", "engine-unavailable")
    assert fresh(vault).measures()["ledger"] == {"frozen": True}


def test_a_rolled_back_ledger_is_not_ready(vault: OpenVault) -> None:
    head = vault.house.ledger.store.head()
    vault.house.ledger.anchor.advance(replace(head, seq=head.seq + 5, hash="f" * 64))
    assert fresh(vault).missing() == ("ledger-frozen",)


def test_one_looks_at_a_time_and_nobody_waits_for_it(vault: OpenVault) -> None:
    """It is open to all: whoever asks often has nothing started more often."""
    looks, go_on = threading.Semaphore(0), threading.Event()

    def slowly() -> bool:
        looks.release()
        return go_on.wait(60)

    health = fresh(vault, can_read=slowly)
    first = threading.Thread(target=health.missing)
    first.start()
    assert looks.acquire(timeout=60)
    assert health.missing() == ("starting",)
    go_on.set()
    first.join(60)
    assert [health.missing() for _ in range(20)] == [()] * 20
    assert not looks.acquire(blocking=False)


def test_an_engine_is_ready_where_a_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, vault: OpenVault
) -> None:
    with (
        closing(DuckDBEngine(SALT)) as engine,
        closing(DriverHandle("postgres.worker", {})) as held,
    ):
        assert engine.is_ready()
        assert engine.worker_pid() is None
        assert held.can_start(with_probe=False)
        assert not held.can_start(with_probe=True)  # there is no server
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        assert not held.can_start(with_probe=False)


def test_what_may_have_rows_in_its_time_is_not_timed() -> None:
    by_verb = {route.name: route for route in VERBS}
    slow = TENSORS | TELLING | UNWRITTEN | {REPORT, SHEET, "upload", "add", "proposed", "amend"}
    assert set(by_verb) >= TIMED
    reading = {route.name for route in VERBS if route.is_long} - HEAVY
    assert not TIMED & (slow | reading)
    assert not {verb for verb in TIMED if by_verb[verb].carries != "json"}
    assert {"price", "begin", "verify-ledger"} == TIMED & HEAVY
    tally = CallMetrics(to_nowhere)
    for verb in ("ask", "card", "dp-twin", "sign-in"):
        tally.note(verb, "ada", None, 1.5)
    (took,) = cast(Any, tally.counts()["took"])
    assert (took["verb"], took["calls"], took["seconds"]) == ("card", 1, 1.5)
    assert took["within"] == [[0.005, 0], [0.025, 0], [0.1, 0], [0.5, 0], [2.0, 1], [10.0, 1]]


def test_no_measure_moves_with_what_became_of_a_question(vault: OpenVault) -> None:
    """Stopped by its own limit, or answered: an operator's numbers are the same."""
    from sfumato import Refused
    from sfumato.engines.duckdb.engine import Limits

    engine, health = vault.house.engine, fresh(vault)
    assert isinstance(engine, DuckDBEngine)
    before, found = health.measures(), []
    for number, deadline_s in enumerate((None, 0.0)):
        engine._limits = Limits(deadline_s=deadline_s)
        tally = CallMetrics(to_nowhere)
        try:
            vault["patients"].ask(
                f"SELECT SUM(age) AS s FROM patients WHERE age > {number}", epsilon=0.1
            )
            code = None
        except Refused as refused:
            code = refused.code
        tally.note("ask", "owner", code, 5.0 * number)
        found.append((health.measures(), {**tally.counts(), "began": 0}))
    assert vault.house.data_sets.frozen_shapes()
    assert [one for one, _ in found] == [before, before]
    assert found[0][1] == found[1][1]
