"""How rows were read, over HTTP: the owner is told, in bands; nobody else, and no log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.vault.add_report import BANDS
from support.served_vault import Service, served
from support.small_vaults import make_vault, write_csv

OTHERS: Final = {"ada": 403, "olga": 404, "otto": 403, "vera": 403}
ROLES: Final = {"ada": "researcher", "olga": "owner", "otto": "operator", "vera": "auditor"}
CARD: Final[dict[str, Any]] = {
    "unit": "row", "budget": {"epsilon": 1}, "ask": {"who": ["researchers"]},
    "columns": {"x": {"type": "number", "lower": 0, "upper": 9, "step": 1}},
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(make_vault(tmp_path_factory.mktemp("reports"))) as running:
        running.owner()
        for name, role in ROLES.items():
            running.user(name, role)
        yield running


def vault_of(service: Service) -> sfumato.client.remote_vault.RemoteVault:
    return sfumato.connect(service.url, token=service.owner())


def jobs_of(vault: sfumato.client.remote_vault.RemoteVault) -> list[dict[str, Any]]:
    found: Any = vault.call("jobs", {})["jobs"]  # JSON of the wire
    return list(found)


def says_bands(shape: object) -> bool:
    text = json.dumps(shape, default=str)
    return any(word in text for word in BANDS)


def test_the_owner_of_a_service_is_told_and_nobody_else(service: Service, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "r.csv", ["x", "y"], [["70", "a"]] * 30 + [["5", "b"]] * 30)
    with vault_of(service) as vault:
        added = vault.add("told", rows, {**CARD, "people": "told"})
        assert added.report is not None
        (column,) = added.report["tables"][0]["columns"]
        assert column["outside_bounds"] == "25 to 50 %"
        for name in ("ada", "olga"):  # another owner who may ask is told no more than others
            vault.grant("told", name)
        assert not says_bands(vault.call("jobs", {}))
        assert not says_bands(vault.call("card", {"data_set": "told"}))
    for name, status in OTHERS.items():
        at = "/v1/data-sets/told/add-report"
        assert service.call("GET", at, token=service.tokens[name])[0] == status
        for path in (
            "/v1/jobs",
            "/v1/data-sets",
            "/v1/data-sets/told",
            "/v1/data-sets/told/budget",
        ):
            assert not says_bands(service.call("GET", path, token=service.tokens[name])[1])
    assert service.call("GET", "/v1/data-sets/told/add-report")[0] == 401
    assert not any(word in line for line in service.said for word in BANDS)


def test_a_refused_column_is_a_matter_between_the_service_and_its_owner(
    service: Service, tmp_path: Path
) -> None:
    rows = write_csv(tmp_path / "r.csv", ["x", "y"], [["7,5", "a"]] * 30)
    before = service.call("GET", "/v1/data-sets", token=service.tokens["ada"])[1]
    with vault_of(service) as vault:
        with pytest.raises(Refused) as refused:
            vault.add("bad", rows, {**CARD, "people": "bad"})
        assert refused.value.code == "cells-unreadable"
        assert 'decimal = ","' in refused.value.next_step
        (job,) = [j for j in jobs_of(vault) if j["data_set"] == "bad"]
        assert job["failed"]["code"] == "cells-unreadable"
    for name in OTHERS:
        token = service.tokens[name]
        assert service.call("GET", f"/v1/jobs/{job['job']}", token=token)[0] in (403, 404)
        assert "cells-unreadable" not in json.dumps(service.call("GET", "/v1/jobs", token=token))
    metrics = service.call("GET", "/v1/metrics", token=service.tokens["otto"])[1]
    assert "cells-unreadable" not in json.dumps(metrics)
    assert service.call("GET", "/v1/data-sets", token=service.tokens["ada"])[1] == before
    assert not any("cells-unreadable" in line or "'x'" in line for line in service.said)
    with vault_of(service) as vault:
        added = vault.add("bad", rows, {**CARD, "people": "bad"}, accept_unreadable=["x"])
        assert added.report is not None
        assert added.report["tables"][0]["columns"][0]["unreadable"] == "over 95 %"


def test_a_frame_is_sent_and_added(service: Service, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.5, None, 3.0] * 20})
    with vault_of(service) as vault:
        added = vault.add("frame", frame, {**CARD, "people": "frame"})
        assert added.report is not None
        (column,) = added.report["tables"][0]["columns"]
        assert (column["empty"], column["unreadable"]) == ("25 to 50 %", "under 1 %")
        with pytest.raises(Refused, match="for text files"):
            vault.add("frame", frame, {**CARD, "decimal": ","})
        with pytest.raises(Refused, match="a file or a frame"):
            vault.add("frame", [1, 2], CARD)


def test_a_file_without_a_header_has_no_card_proposed(service: Service, tmp_path: Path) -> None:
    rows = "".join(f"Alice Moor {n},{30 + n}\n" for n in range(20)).encode()
    sent: Any = service.call("PUT", "/v1/uploads?name=a.csv", rows, token=service.owner())[1]
    status, said = service.call("GET", f"/v1/uploads/{sent['upload']}", token=service.owner())
    assert (status, said["refused"]["code"]) == (422, "no-header")
    assert "Alice" not in json.dumps(said)


def test_a_card_is_proposed_with_the_formats_of_the_file(service: Service) -> None:
    rows = "Größe;Besuch;Nr\r\n" + "".join(
        f"1,{n % 10};{n + 1:02}.03.2024;{n}\r\n" for n in range(31)
    )
    sent: Any = service.call(
        "PUT", "/v1/uploads?name=a.csv", rows.encode("cp1252"), token=service.owner()
    )[1]
    said = service.call("GET", f"/v1/uploads/{sent['upload']}", token=service.owner())[1]
    assert said["card"]["encoding"] == "cp1252"
    assert said["card"]["columns"]["Größe"] == {"type": "number", "decimal": ","}
    assert said["card"]["columns"]["Besuch"] == {"type": "date", "format": "%d.%m.%Y"}
    assert said["card"]["columns"]["Nr"] == {"type": "integer"}
