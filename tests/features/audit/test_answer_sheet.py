"""Whatever is charged has an answer sheet that holds: questions, streams, choices, programs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sfumato.app.vault import OpenVault
from sfumato.features.audit.sheet_verification import check_sheet
from support.small_vaults import open_with, write_csv

CARD = """
unit = "who"
people = "town"
version = "1"
budget = { epsilon = 100 }
[columns.day]
type = "date"
[columns.age]
type = "integer"
lower = 0
upper = 100
[columns.zip]
type = "text"
keys = ["a", "b"]
[columns.sex]
type = "text"
keys = ["f", "m"]
"""
RUNNING = "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM visits GROUP BY day"


@pytest.fixture
def vault(tmp_path: Path) -> OpenVault:
    rows = [(f"p{n}", f"2026-01-0{1 + n % 5}", n % 90, "ab"[n % 2], "fm"[n % 2]) for n in range(99)]
    source = write_csv(tmp_path / "visits.csv", ("who", "day", "age", "zip", "sex"), rows)
    return open_with(tmp_path, "visits", source, CARD)


def mean_age(rows: Any) -> object:
    return rows["age"].mean()


def ask(vault: OpenVault) -> None:
    vault["visits"].group_by("zip").count().ask(epsilon=1)


def stream(vault: OpenVault) -> None:
    terms: dict[str, Any] = {"start": "2026-01-01", "periods": 5, "rows": 3}
    vault.open_stream("visits", "daily", RUNNING, **terms, epsilon=1)


def twin(vault: OpenVault) -> None:
    vault["visits"].dp_twin(epsilon=1, method="mst", rows=10)


def program(vault: OpenVault) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: make system")
    vault["visits"].run(
        mean_age, outputs={"mean_age": (0, 100)}, epsilon=1, blocks=4, columns=["age"], cpu_s=1
    )


@pytest.mark.parametrize("act", [ask, stream, twin, program])
def test_every_charge_has_a_sheet_that_holds(vault: OpenVault, act: Any) -> None:
    with vault:
        act(vault)
        house = vault.house
        charged = [e.seq for e in house.ledger.store.entries() if e.kind == "charged"]
        assert charged
        for seq in charged:
            made = json.loads(json.dumps(house.desk.audit.sheet(seq)))
            assert check_sheet(made) == ()
