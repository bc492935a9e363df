"""The contract that stays: commands, JSON, refusals and exit statuses that scripts rely on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.small_vaults import PATIENTS_CARD, make_vault, run, write_patients

COUNT = "SELECT COUNT(*) AS n FROM clinic"
OTHER = "SELECT COUNT(*) AS n FROM clinic WHERE age > 40"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contract")
    vault = make_vault(folder)
    source = write_patients(folder / "patients.csv")
    card = folder / "card.toml"
    card.write_text(PATIENTS_CARD)
    added = run(vault, "add", "clinic", str(source), "--card", str(card), "--json")
    assert added.returncode == 0, added.stderr
    return vault


@pytest.fixture
def vault(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the vault with nothing spent, its anchor beside it."""
    copy = tmp_path / "vault"
    shutil.copytree(original, copy)
    anchor = tmp_path / "anchor"
    shutil.copy(original.parent / "anchors" / "anchor", anchor)
    (copy / "vault.json").write_text(json.dumps({"format": 1, "anchor": str(anchor)}))
    return copy


def ok(finished: subprocess.CompletedProcess[str]) -> Any:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def refused(finished: subprocess.CompletedProcess[str]) -> Any:
    assert finished.returncode == 3, finished.stdout + finished.stderr
    body = json.loads(finished.stdout)["refused"]
    assert {"code", "cause", "next"} <= set(body)
    return body


def test_init_makes_a_vault_and_will_not_do_it_twice(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    first = run(tmp_path, "init", str(tmp_path / "v"), "--json", **home)
    assert ok(first) == {"vault": str(tmp_path / "v")}
    again = refused(run(tmp_path, "init", str(tmp_path / "v"), "--json", **home))
    assert again["code"] == "vault-exists"
    assert not any((tmp_path / "v").rglob("*.anchor"))  # the anchor lies outside


def test_an_answer_has_the_promised_shape(vault: Path) -> None:
    sql = "SELECT zip, COUNT(*) AS n, AVG(salary) AS pay FROM clinic GROUP BY zip"
    answer = ok(run(vault, "ask", "clinic", sql, "--epsilon", "0.5", "--op", "a", "--json"))
    assert answer["columns"] == ["zip", "n", "pay"]
    assert [row[0] for row in answer["rows"]] == ["10001", "10002"]
    assert [[cell is None for cell in row] for row in answer["std"]] == [[True, False, False]] * 2
    assert answer["guarantee"] == "central-dp"
    receipt = answer["receipt"]
    assert receipt["epsilon"] == 0.5
    assert receipt["delta"] == 0
    assert receipt["left"]["epsilon"] == 2.5
    assert receipt["op"] == "a"
    assert receipt["free"] is False
    assert isinstance(receipt["seq"], int)


def test_a_price_says_the_error_and_spends_nothing(vault: Path) -> None:
    price = ok(run(vault, "price", "clinic", COUNT, "--epsilon", "0.5", "--json"))
    assert price["epsilon"] == 0.5
    assert price["error"] == {"n": 6}
    assert price["spent"] is False
    assert ok(run(vault, "budget", "clinic", "--json"))["spent"]["epsilon"] == 0


def test_an_error_finds_the_smallest_epsilon(vault: Path) -> None:
    price = ok(run(vault, "price", "clinic", COUNT, "--error", "n=5", "--json"))
    assert price["error"]["n"] <= 5
    below = str(round(price["epsilon"] - 1e-6, 6))
    assert ok(run(vault, "price", "clinic", COUNT, "--epsilon", below, "--json"))["error"]["n"] > 5
    answer = ok(run(vault, "ask", "clinic", COUNT, "--error", "n=5", "--json"))
    assert answer["receipt"]["epsilon"] == price["epsilon"]


def test_the_budget_adds_up(vault: Path) -> None:
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json"))
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.2", "--json"))
    budget = ok(run(vault, "budget", "clinic", "--json"))
    assert budget["cap"]["epsilon"] == 3.0
    assert budget["spent"]["epsilon"] == 0.5
    assert budget["left"]["epsilon"] == 2.5


def test_a_question_that_does_not_fit_is_refused_and_says_what_is_left(vault: Path) -> None:
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.9", "--json"))
    body = refused(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.2", "--json"))
    assert body["code"] == "budget-exceeded"
    assert body["spent"]["epsilon"] == 0.9
    assert body["needed"]["epsilon"] == 0.2
    assert body["left"]["next_epsilon"] == pytest.approx(0.1)


def test_the_same_question_again_is_free_and_the_same_to_the_byte(vault: Path) -> None:
    first = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json"))
    again = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json"))
    assert again["receipt"]["free"] is True
    for part in ("columns", "rows", "std", "interval"):
        assert again[part] == first[part]
    assert ok(run(vault, "budget", "clinic", "--json"))["spent"]["epsilon"] == 0.3


def test_fresh_noise_is_paid_and_is_new(vault: Path) -> None:
    first = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.01", "--json"))
    fresh = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.01", "--fresh", "--json"))
    assert fresh["receipt"]["free"] is False
    assert fresh["rows"] != first["rows"]  # the same number by chance: about 1 in 400
    assert ok(run(vault, "budget", "clinic", "--json"))["spent"]["epsilon"] == 0.02


def test_a_retry_with_its_operation_pays_once_and_another_question_may_not_use_it(
    vault: Path,
) -> None:
    first = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--op", "x", "--json"))
    retry = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--op", "x", "--json"))
    assert retry["rows"] == first["rows"]
    other = run(vault, "ask", "clinic", COUNT, "--epsilon", "0.4", "--op", "x", "--json")
    assert refused(other)["code"] == "op-reused"
    assert ok(run(vault, "budget", "clinic", "--json"))["spent"]["epsilon"] == 0.3


def test_another_user_pays_their_own_cap_and_not_the_data_sets_again(vault: Path) -> None:
    first = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json"))
    denied = run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json", "--user", "bob")
    assert refused(denied)["code"] == "unknown-data-set"
    ok(run(vault, "enrol", "bob", "researchers", "--json"))
    bob = ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json", "--user", "bob"))
    assert bob["rows"] == first["rows"]
    assert bob["receipt"]["charged"] == {"user:clinic/bob": 0.3}
    budget = ok(run(vault, "budget", "clinic", "--json", "--user", "bob"))
    assert budget["spent"]["epsilon"] == 0.3
    assert budget["yours"]["user:clinic/bob"]["spent"]["epsilon"] == 0.3


@pytest.mark.parametrize(
    "epsilon", ["nan", "inf", "-1", "0", "1e-320", "true", "", "0x1", "1_0", "1e-7", "1e9", "½"]
)
def test_a_budget_that_is_no_budget_is_refused(vault: Path, epsilon: str) -> None:
    asked = run(vault, "ask", "clinic", COUNT, f"--epsilon={epsilon}", "--json")
    assert refused(asked)["code"] == "bad-budget"


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT SUM(name) FROM clinic", "unknown-column"),
        ("SELECT SUM(zip) FROM clinic", "type-mismatch"),
        ("SELECT * FROM clinic", "not-in-language"),
        ("SELECT age, COUNT(*) FROM clinic GROUP BY age", "keys-needed"),
        ("SELECT zip FROM clinic GROUP BY zip", "no-aggregate"),
        ("SELECT COUNT(*) FROM clinic WHERE age = 'x'", "type-mismatch"),
        ("SELECT COUNT(*) FROM clinic WHERE patient_id = 'p00001'", "unknown-column"),
        ("nonsense", "not-in-language"),
        ("SELECT ((", "bad-sql"),
    ],
)
def test_a_question_outside_is_refused_with_its_code(vault: Path, sql: str, code: str) -> None:
    assert refused(run(vault, "ask", "clinic", sql, "--epsilon", "0.1", "--json"))["code"] == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "clinic"),
        ("ask", "clinic", COUNT),
        ("ask", "clinic", COUNT, "--epsilon", "1", "--error", "n=1"),
        ("ask", "clinic", COUNT, "--error", "n"),
        ("nonsense",),
        ("budget",),
    ],
)
def test_wrong_usage_ends_with_status_two(vault: Path, arguments: tuple[str, ...]) -> None:
    assert run(vault, *arguments).returncode == 2


def test_a_fault_of_ours_ends_with_status_seventy_and_says_nothing(vault: Path) -> None:
    (vault / "catalogue.sqlite").write_bytes(b"not a database at all" * 400)
    broken = run(vault, "budget", "clinic")
    assert broken.returncode == 70
    assert "Traceback" not in broken.stderr


def test_verify_says_that_the_chain_holds(vault: Path) -> None:
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.3", "--json"))
    verdict = ok(run(vault, "ledger", "verify", "--json"))
    assert verdict["ok"] is True
    assert verdict["entries"] > 5
    assert len(verdict["head"]) == 64


def test_an_old_copy_of_the_vault_is_noticed_and_frozen(vault: Path) -> None:
    old = vault.parent / "old"
    shutil.copytree(vault, old)
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.9", "--json"))
    shutil.rmtree(vault)
    old.rename(vault)
    frozen = refused(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.9", "--json"))
    assert frozen["code"] == "ledger-frozen"
    assert run(vault, "ledger", "verify", "--json").returncode == 3
    said = ok(run(vault, "ledger", "acknowledge", "--why", "restored by hand", "--json"))
    assert said["measured"] is True
    assert said["debited"]["people:city-hospital-patients"] == 0.9
    ok(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.1", "--json"))
    spent = refused(run(vault, "ask", "clinic", OTHER, "--epsilon", "0.1", "--json"))
    assert spent["code"] == "budget-exceeded"


def test_a_receipt_that_the_ledger_does_not_hold_freezes_it(vault: Path, tmp_path: Path) -> None:
    anchor = Path(json.loads((vault / "vault.json").read_text())["anchor"])
    old, old_anchor = tmp_path / "old", anchor.read_bytes()
    shutil.copytree(vault, old)
    asked = run(vault, "ask", "clinic", COUNT, "--epsilon", "0.9", "--json")
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(ok(asked)))
    verified = run(vault, "ledger", "verify", "--receipt", str(receipt), "--json")
    assert ok(verified)["receipt"] is True
    said = run(vault, "ledger", "verify", "--receipt", str(receipt)).stdout
    assert "The ledger contains the receipt's entry" in said
    assert "receipt's entry" not in run(vault, "ledger", "verify").stdout
    shutil.rmtree(vault)
    old.rename(vault)
    anchor.write_bytes(old_anchor)  # rolled back together with the ledger
    assert ok(run(vault, "ledger", "verify", "--json"))["ok"] is True
    shown = run(vault, "ledger", "verify", "--receipt", str(receipt), "--json")
    assert shown.returncode == 3
    frozen = refused(run(vault, "ask", "clinic", COUNT, "--epsilon", "0.1", "--json"))
    assert frozen["code"] == "ledger-frozen"


READERS: list[Callable[[Path], tuple[str, ...]]] = [
    lambda _: ("datasets",),
    lambda _: ("card", "clinic"),
    lambda _: ("price", "clinic", COUNT, "--epsilon", "0.1"),
    lambda _: ("ask", "clinic", COUNT, "--epsilon", "0.1"),
    lambda _: ("budget", "clinic"),
    lambda _: ("ledger",),
    lambda _: ("ledger", "thaw"),
    lambda _: ("doctor",),
]


@pytest.mark.parametrize("reader", READERS)
def test_json_is_one_object_and_nothing_else(
    vault: Path, reader: Callable[[Path], tuple[str, ...]]
) -> None:
    shown = run(vault, *reader(vault), "--json")
    assert isinstance(json.loads(shown.stdout), dict)
    assert shown.stdout.count("\n") == 1


def test_no_face_shows_a_canary(vault: Path) -> None:
    for reader in READERS:
        for form in ((), ("--json",)):
            shown = run(vault, *reader(vault), *form)
            assert "canary" not in shown.stdout + shown.stderr


def test_an_answer_is_drawn_beside_what_is_printed(vault: Path, tmp_path: Path) -> None:
    sql = "SELECT zip, COUNT(*) AS n FROM clinic GROUP BY zip"
    for name in ("a.svg", "a.png", "a.html"):
        ran = run(
            vault,
            "ask",
            "clinic",
            sql,
            "--epsilon",
            "0.1",
            "--json",
            "--plot",
            str(tmp_path / name),
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["columns"] == ["zip", "n"]
        assert (tmp_path / name).stat().st_size > 1000


def test_a_picture_that_cannot_be_is_refused_before_it_is_paid(vault: Path) -> None:
    ran = run(vault, "ask", "clinic", "SELECT COUNT(*) FROM clinic", "--epsilon", "0.1", "--json",
              "--plot", "a.bmp")  # fmt: skip
    assert refused(ran)["code"] == "not-in-language"
    budget = json.loads(run(vault, "budget", "clinic", "--json").stdout)
    assert budget["spent"]["epsilon"] == 0


def test_an_answer_is_raised_by_the_id_that_it_was_asked_under(vault: Path) -> None:
    terms = ("ask", "clinic", COUNT, "--delta", "0", "--json")
    first = ok(run(vault, *terms, "--epsilon", "0.25", "--op", "mine"))
    raised = ok(run(vault, *terms, "--epsilon", "0.75", "--top-up", "mine"))
    assert raised["receipt"]["epsilon"] == 0.5
    assert raised["receipt"]["top_up"]["of"] == "mine"
    assert raised["std"][0][0] < first["std"][0][0]
    again = ok(run(vault, *terms, "--epsilon", "0.75", "--top-up", "mine"))
    assert again["receipt"]["free"] is True
    assert again["rows"] == raised["rows"]
    other = run(vault, *terms, "--epsilon", "0.75", "--top-up", "not-mine")
    assert refused(other)["code"] == "top-up-unknown"


def test_what_others_typed_tells_a_terminal_nothing(vault: Path) -> None:
    """A question's text is in the ledger, and whoever reads it there may be somebody else."""
    sql = f"{COUNT} WHERE zip = 'x\x1b]0;mine\x07\x1b[2J\tleft\u202e'"
    assert run(vault, "ask", "clinic", sql, "--epsilon", "0.1").returncode == 0
    for arguments in (["ledger"], ["history"], ["price", "clinic", sql, "--epsilon", "0.1"]):
        shown = run(vault, *arguments)
        assert shown.returncode == 0, shown.stderr
        assert r"\x1b]0;mine\x07" in shown.stdout, arguments
        assert not set(shown.stdout) & set("\x1b\x07\t\u202e"), arguments


def test_an_invitation_of_a_folder_is_no_address(vault: Path) -> None:
    shown = run(vault, "invite", "ada", "--role", "researcher")
    assert shown.returncode == 0, shown.stderr
    assert "Open /welcome" not in shown.stdout
    assert re.search(r"serves this vault, followed by:\n  /welcome/sfm1_\S+\n$", shown.stdout)
