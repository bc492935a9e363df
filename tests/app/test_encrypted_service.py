"""A sealed vault that is served: the door alone is told its key, and uploads are sealed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from sfumato.vault.encryption_at_rest import MAGIC
from sfumato.wire.json_text import json_text
from support.encrypted_vaults import image, lies_open, make_sealed, memory
from support.process_tree import PATIENCE_S, children
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, write_patients


def ended(service: Service, job: str) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        status, said = service.call("GET", f"/v1/jobs/{job}", token=service.owner())
        if status == 200 and said["state"] in ("done", "failed", "cancelled"):
            return said
        time.sleep(0.1)
    raise AssertionError(job)


def test_rows_that_come_over_http_are_sealed_from_the_first_byte(tmp_path: Path) -> None:
    rows = write_patients(tmp_path / "patients.csv", 200).read_bytes()
    with memory() as scratch:
        place, key = make_sealed(tmp_path)
        with served(place, "--at-rest-key", f"command:cat {key}") as service:
            token = service.owner()
            _, sent = service.call("PUT", "/v1/uploads?name=p.csv", rows, token=token)
            (kept,) = place.glob("incoming/*.csv*")
            assert kept.read_bytes().startswith(MAGIC)
            body = {"name": "clinic", "upload": sent["upload"], "card": card(PATIENTS_CARD)}
            _, job = service.call("POST", "/v1/data-sets", json_text(body).encode(), token=token)
            assert ended(service, job["job"])["state"] == "done"
            asked = {"sql": "SELECT COUNT(*) FROM clinic", "epsilon": 0.5}
            status, answer = service.call("POST", "/v1/data-sets/clinic/ask", asked, token=token)
            assert status == 200, answer
            secret = Path(key).read_text().strip()
            for pid in children(service.process.pid) | {service.process.pid}:
                said = Path(f"/proc/{pid}/cmdline").read_bytes()
                assert secret.encode() not in said + Path(f"/proc/{pid}/environ").read_bytes()
        there = image(place)
        lines = [line for line in rows.splitlines()[1:] if len(line) > 8]
        assert not any(line in there for line in lines)
        assert lies_open(scratch) == []
        assert secret not in json.dumps(service.said)
