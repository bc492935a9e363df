"""Old clients keep working: what was said in wire 1 is understood today, and answered as then.

`wire_1.json` is a conversation as it was recorded (`python tests/server/test_old_clients.py`). It
is never recorded anew for the same wire: a change that breaks it makes the next wire.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from sfumato.client import Answer, remote_vault
from sfumato.client.display import Budget, CardView, History, Price
from support.served_vault import Service, served
from support.small_vaults import patients_vault

RECORDED: Final = Path(__file__).parent / "wire_1.json"
SQL: Final = "SELECT zip, COUNT(*) AS n, AVG(age) AS a FROM patients GROUP BY zip"
SAID: Final[tuple[tuple[str, str, str, object], ...]] = (
    ("ada", "GET", "/v1/hello", None),
    ("ada", "GET", "/v1/me", None),
    ("ada", "GET", "/v1/data-sets", None),
    ("ada", "GET", "/v1/data-sets/patients", None),
    ("ada", "GET", "/v1/data-sets/patients/budget", None),
    ("ada", "POST", "/v1/data-sets/patients/price", {"sql": SQL, "epsilon": 0.25, "people": 100}),
    ("ada", "POST", "/v1/data-sets/patients/price", {"sql": SQL, "error": {"n": 9}}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": SQL, "epsilon": 0.25, "op": "one"}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": SQL, "epsilon": 0.25, "op": "one"}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": SQL, "epsilon": "1/3", "op": "two"}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": SQL, "epsilon": 0.5, "op": "one"}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": SQL, "epsilon": 900}),
    ("ada", "POST", "/v1/data-sets/patients/ask", {"sql": "SELECT 1"}),
    ("ada", "GET", "/v1/data-sets/nothing", None),
    ("ada", "GET", "/v1/questions?limit=2", None),
    ("ada", "GET", "/v1/questions/one", None),
    ("ada", "GET", "/v1/users", None),
    ("vera", "GET", "/v1/releases?limit=1", None),
    ("vera", "GET", "/v1/ledger?limit=1", None),
)


def answered(service: Service) -> list[dict[str, Any]]:
    """Return what the service says today to what was said then."""
    made = []
    for who, method, path, body in SAID:
        status, answer = service.call(method, path, body, token=service.tokens[who])
        made.append({"status": status, "answer": answer})
    return made


def asked_service(folder: Path) -> Any:
    """Return the service that the conversation is with."""
    return served(patients_vault(folder, "ada"))


def test_what_was_said_in_wire_1_is_answered_as_then(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert [tuple(one["said"]) for one in recorded] == [
        tuple(json.loads(json.dumps(s))) for s in SAID
    ]
    with asked_service(tmp_path) as service:
        service.user("ada", "researcher")
        service.user("vera", "auditor")
        today = answered(service)
    for then, now in zip(recorded, today, strict=True):
        assert now["status"] == then["status"], then["said"]
        assert missing(then["answer"], now["answer"]) == [], then["said"]


def test_todays_client_reads_what_wire_1_answered() -> None:
    recorded = [one["answer"] for one in json.loads(RECORDED.read_text("utf-8"))]
    remote_vault.check_wire(recorded[0]["wire"])
    assert Answer.of(recorded[7]).rows == Answer.of(recorded[8]).rows
    for shown in (
        CardView(recorded[3]), Budget(recorded[4]), Price(recorded[5]), Answer.of(recorded[9]),
        History(recorded[14]),
    ):  # fmt: skip
        assert repr(shown)


def missing(then: object, now: object, where: str = "") -> list[str]:
    """Return what stood in the old answer and stands in the new one no more, or otherwise."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        gone = [f"{where}.{key}" for key in then if key not in now]
        both = [key for key in then if key in now]
        return gone + [
            one for key in both for one in missing(then[key], now[key], f"{where}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and then and now:
        return missing(then[0], now[0], f"{where}[]")
    same = kind_of(then) == kind_of(now) or None in (then, now)
    return [] if same else [f"{where}: {kind_of(then)} was, {kind_of(now)} is"]


def kind_of(value: object) -> str:
    """Return what kind of JSON a value is; whole numbers are numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def record() -> None:
    """Write the conversation down."""
    with tempfile.TemporaryDirectory() as folder, asked_service(Path(folder)) as service:
        service.user("ada", "researcher")
        service.user("vera", "auditor")
        made = [{"said": s, **a} for s, a in zip(SAID, answered(service), strict=True)]
    RECORDED.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    record()
