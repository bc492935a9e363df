"""What the command line says to somebody who is there for the first time."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sfumato.app.command_line import CommandLine
from sfumato.cli.guided_card import proposed
from sfumato.cli.main import run
from sfumato.cli.shell import Shell
from sfumato.features.audit.ledger_cli import _gist


@pytest.mark.parametrize(
    ("vault", "setting", "named"),
    [
        ("my vault", None, " --vault 'my vault'"),
        ("clinic-vault", "other", " --vault clinic-vault"),
        ("clinic-vault", "clinic-vault", ""),
        (None, None, ""),
    ],
)
def test_a_next_command_names_the_vault_unless_the_environment_does(
    vault: str | None, setting: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SFUMATO_VAULT", raising=False)
    if setting is not None:
        monkeypatch.setenv("SFUMATO_VAULT", setting)
    assert Shell(CommandLine(), vault, "owner", as_json=False).named == named


def test_what_is_no_receipt_is_not_called_a_broken_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "receipt.json").write_text('{"receipt": {"op": "a"}}')
    assert run(["verify", str(tmp_path / "receipt.json")], CommandLine()) == 3
    assert "THE RECEIPT IS NOT VALID: it is not a receipt" in capsys.readouterr().out


def test_the_ledger_says_into_which_group_somebody_was_put() -> None:
    assert _gist({"user": "alice", "group": "researchers"}) == "alice, researchers"


def test_a_proposed_card_does_not_say_that_texts_need_keys() -> None:
    text = proposed("clinic", [("zip", "text")], {"columns": {}})
    assert "# keys = [" in text
    assert "no GROUP BY" not in text


def test_a_proposed_card_says_which_words_it_assumes() -> None:
    words = {"type": "boolean", "true": ["ja", "j"], "false": ["nein", "n"]}
    text = proposed("clinic", [("raucht", "boolean")], {"columns": {"raucht": words}})
    assert tomllib.loads(text)["columns"] == {"raucht": words}
    assert 'true = ["ja", "j"]        # assumed' in text


def test_a_proposed_card_names_the_words_that_may_mean_missing() -> None:
    column = {"type": "number", "decimal": ".", "markers": {"k. A.": 2, '"': 1}}
    text = proposed("clinic", [("kg", "number")], {"columns": {"kg": column}})
    assert tomllib.loads(text)["columns"] == {"kg": {"type": "number", "decimal": "."}}
    freed = tomllib.loads(text.replace("# nulls = ", "nulls = "))
    assert freed["columns"]["kg"]["nulls"] == ["k. A.", '"']
