"""A service whose ledger was rolled back: whoever looks is told, over HTTP too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.served_vault import Service, served
from support.small_vaults import patients_vault

ASK = {"sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": 0.1}


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[tuple[Service, dict[str, Any]]]:
    """Return a service set back with its anchor, and a researcher's receipt of what it lost."""
    vault = patients_vault(tmp_path, "ada")
    with served(vault) as running:
        token = running.user("ada", "researcher")
        running.user("vera", "auditor")
        status, answer = running.call("POST", "/v1/data-sets/patients/ask", ASK, token=token)
        assert status == 200, answer
        tokens = running.tokens
    anchor = Path(json.loads((vault / "vault.json").read_text())["anchor"])
    shutil.copytree(vault, tmp_path / "backup")
    shutil.copy(anchor, tmp_path / "anchor-then")
    with served(vault) as running:
        more = {**ASK, "epsilon": 0.2}
        status, answer = running.call("POST", "/v1/data-sets/patients/ask", more, token=token)
        assert status == 200, answer
    shutil.rmtree(vault)
    (tmp_path / "backup").rename(vault)
    shutil.copy(tmp_path / "anchor-then", anchor)  # together with the ledger: it sees nothing
    with served(vault) as running:
        running.tokens = tokens
        yield running, answer["receipt"]


def test_a_researchers_receipt_freezes_a_ledger_that_lost_its_entry(
    lost: tuple[Service, dict[str, Any]],
) -> None:
    service, receipt = lost
    ada, vera = service.tokens["ada"], service.tokens["vera"]
    assert service.call("GET", "/v1/ledger/verify", token=vera)[1]["ok"] is True
    status, said = service.call("POST", "/v1/receipts", {"receipt": receipt}, token=ada)
    assert (status, said) == (200, {"stands": False})
    assert service.call("GET", "/v1/ledger/verify", token=vera)[1]["ok"] is False
    status, said = service.call("GET", "/v1/data-sets/patients/budget", token=ada)
    assert said["refused"]["code"] == "ledger-frozen", (status, said)
    status, said = service.call("POST", "/v1/data-sets/patients/ask", ASK, token=ada)
    assert said["refused"]["code"] == "ledger-frozen", (status, said)
