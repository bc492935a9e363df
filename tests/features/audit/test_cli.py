"""What an auditor and a researcher hold in their hands is verified without the vault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.features.audit.sheet_verification import check_receipt, check_sheet
from sfumato.query.expression import canonical_json
from support.small_vaults import patients_vault, run

SQL = "SELECT COUNT(*) AS n FROM patients"


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return patients_vault(tmp_path_factory.mktemp("sheets"), "alice")


@pytest.fixture(scope="module")
def answer(vault: Path) -> Any:
    """Return alice's answer with its receipt, as it was printed."""
    asked = run(vault, "ask", "patients", SQL, "--epsilon", "0.25", "--user", "alice", "--json")
    return json.loads(asked.stdout)


def key_of(vault: Path) -> str:
    return str(json.loads(run(vault, "ledger", "verify", "--json").stdout)["key"])


def test_a_receipt_holds_offline_and_says_what_it_does_not(
    vault: Path, answer: Any, tmp_path: Path
) -> None:
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    words = ("verify", str(tmp_path / "answer.json"), "--key", key_of(vault))
    done = run(tmp_path / "no vault", *words)
    assert done.returncode == 0, done.stdout
    assert "epsilon 1/4, charged to data-set:patients, people:city" in done.stdout
    assert "The signature does not cover the question and the answer" in done.stdout
    assert json.loads(run(tmp_path / "no vault", *words, "--json").stdout)["ok"]
    again = run(vault, "ask", "patients", SQL, "--epsilon", "0.25", "--user", "alice", "--json")
    (tmp_path / "answer.json").write_text(again.stdout)
    assert "charged to nobody (no new charge)" in run(tmp_path / "no vault", *words).stdout


@pytest.mark.parametrize("name", ["op", "epsilon", "delta", "charged"])
def test_a_receipt_that_says_other_things_than_were_signed_does_not_hold(
    answer: Any, name: str
) -> None:
    receipt = answer["receipt"]
    assert check_receipt(receipt) == ()
    other = {"op": "x", "epsilon": 0.1, "delta": 0.5, "charged": {"people:x": 0.25}}[name]
    assert check_receipt({**receipt, name: other}) == ("its text differs from what was signed",)


@pytest.mark.parametrize(
    "name", ["ledger", "epoch", "seq", "head", "op", "entry", "charged", "epsilon", "delta"]
)
def test_a_receipt_whose_signed_part_was_changed_does_not_hold(answer: Any, name: str) -> None:
    receipt = answer["receipt"]
    signed = {**receipt["signed"], name: "1" if name in ("epsilon", "delta") else []}
    assert "its signature is not that of its key" in check_receipt({**receipt, "signed": signed})


def test_a_receipt_of_another_key_does_not_hold(answer: Any) -> None:
    assert check_receipt(answer["receipt"], "ab" * 32) == (
        "another key than the vault's signed it",
    )


@pytest.mark.parametrize("receipt", [{}, {"signed": 1}, {"signed": {}, "key": "", "signature": 1}])
def test_what_is_no_receipt_is_said_to_be_none(receipt: Any) -> None:
    assert check_receipt(receipt) == ("it is not a receipt",)


def test_the_sheet_of_an_entry_is_printed_where_the_folder_lies(
    vault: Path, answer: Any, tmp_path: Path
) -> None:
    entry = str(answer["receipt"]["signed"]["entry"])
    printed = run(vault, "ledger", "sheet", entry)
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "sheet.json").write_text(printed.stdout)
    words = ("verify", str(tmp_path / "sheet.json"), "--key", key_of(vault))
    assert "The sheet is valid" in run(tmp_path / "no vault", *words).stdout
    none = run(vault, "ledger", "sheet", "1")
    assert none.returncode == 3
    assert "answer-unknown" in none.stderr
    others = run(vault, "ledger", "sheet", entry, "--user", "alice")
    assert "not-allowed" in others.stderr


def made_up(**signed: object) -> dict[str, Any]:
    """A receipt that whoever made it up has signed as well."""
    own = Ed25519PrivateKey.generate()
    body: dict[str, object] = {"op": "x", "charged": [], **signed}
    signature = own.sign(canonical_json(body).encode()).hex()
    key = own.public_key().public_bytes_raw().hex()
    return {"op": "x", "charged": {}, "epsilon": 1, "signed": body, "signature": signature,
            "key": key}  # fmt: skip


def test_a_made_up_receipt_fills_no_memory() -> None:
    """Amounts are two whole numbers: of a power of ten, a short word is as large as it likes."""
    assert check_receipt(made_up(epsilon="1/1")) == ()
    for amount in ("1e0", "1e-400", "1.0", "1/0", "\u0661", "9" * 800, ""):
        assert check_receipt(made_up(epsilon=amount)) == ("it is not a receipt",)


def test_a_sheet_that_is_deeper_than_can_be_read_is_none() -> None:
    deep = "[" * 100_000
    entry = {"seq": 1, "epoch": 1, "at": "", "kind": "", "body": deep, "prev": "", "hash": ""}
    sheet = {
        "format": "sheet/1",
        "entries": [entry],
        "proof": {"signed": 1, "key": "", **made_up()},
    }
    assert check_sheet(sheet) == ("it is not an answer sheet",)
