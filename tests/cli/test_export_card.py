"""`sfumato add --as`: an export is proposed as a card, or published; also at a service."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import sfumato
from sfumato.cli.export_card import STANDARDS
from sfumato.client import ready_made
from support.exports.fhir_export import write_fhir
from support.exports.omop_export import write_omop
from support.exports.redcap_export import write_redcap
from support.served_vault import served
from support.small_vaults import make_vault, run, run_hurried


def test_the_command_offers_every_standard_that_can_be_read() -> None:
    assert set(STANDARDS) == set(ready_made.STANDARDS)


def test_a_card_is_proposed_changed_and_published(tmp_path: Path) -> None:
    vault, export = make_vault(tmp_path), write_redcap(tmp_path / "export", 60)
    words = ("add", "study", str(export), "--as", "redcap", "--years", "2015-2023")
    done = run_hurried(vault, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Assumed" in done.stdout
    assert "identifier: first_name, email, dob" in done.stdout
    assert "--years 2015-2023 --budget EPSILON --yes" in done.stdout
    draft = tmp_path / "study.card.toml"
    text = draft.read_text()
    assert "# 1 = Male, 2 = Female, 9 = Other" in text
    again = run_hurried(vault, *words, folder=tmp_path)
    assert again.returncode == 3
    assert "exists already" in again.stderr
    # the owner knows a range and a code, and wants one form less
    text = text.replace("[columns.age]\n", "[columns.age]\nlower = 18\nupper = 100\n")
    text = text.replace('nulls = [""]', 'nulls = ["", "-99"]').replace(", -99]", "]")
    text = text.replace('"Severe", "Not known"]', '"Severe"]').replace("lower = -99", "lower = 1")
    text = text.replace("# budget", "budget").partition("\n[tables.followup]")[0]
    draft.write_text(text)
    done = run_hurried(vault, *words[:5], "--card", "study.card.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with sfumato.open(vault) as opened:
        card = opened["study"].card
        assert "followup" not in str(card)
        answer = opened["study"].ask("SELECT AVG(age) AS age FROM study", epsilon=1)
    assert 18 <= float(str(answer.value)) <= 100


def test_a_published_card_is_the_proposed_one_with_the_budget(tmp_path: Path) -> None:
    vault, export = make_vault(tmp_path), write_fhir(tmp_path / "export", 40)
    words = ("add", "cohort", str(export), "--as", "fhir", "--budget", "2,1e-7", "--json")
    done = run_hurried(vault, *words, "--only", "condition", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tables"] == ["cohort", "condition"]
    draft = tomllib.loads((tmp_path / "cohort.card.toml").read_text())
    assert draft["budget"] == {"epsilon": 2, "delta": 1e-7}
    assert list(draft["tables"]) == ["condition"]
    done = run_hurried(vault, *words, "--only", "condition", "--yes", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] == "cohort"
    assert "Not taken" in done.stderr


def test_without_a_budget_nothing_is_published(tmp_path: Path) -> None:
    vault, export = make_vault(tmp_path), write_omop(tmp_path / "export", 5)
    done = run(vault, "add", "cohort", str(export), "--as", "omop", "--yes")
    assert done.returncode == 3
    assert "bad-budget" in done.stderr
    assert "--budget EPSILON" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--budget", "1"), "are for --as"),
        (("--as", "omop", "--card", "c.toml", "--budget", "1"), "the card says the budget"),
        (("--as", "omop", "--table", "x"), "do not go with --as"),
        (("--as", "omop", "--years", "2020"), "FIRST-LAST"),
        ((), "--as omop|fhir|redcap|bids"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    vault, export = make_vault(tmp_path), write_redcap(tmp_path / "export", 5)
    (tmp_path / "c.toml").write_text('unit = "person_id"')
    done = run_hurried(vault, "add", "cohort", str(export), *words, folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_service_takes_an_export_by_the_same_command(tmp_path: Path) -> None:
    export = write_omop(tmp_path / "export", 60)
    with served(make_vault(tmp_path)) as service:
        where = {"SFUMATO_VAULT": service.url, "SFUMATO_TOKEN": service.owner()}
        words = ("add", "cohort", str(export), "--as", "omop", "--budget", "100", "--yes")
        done = run(Path(service.url), *words, **where)
        assert done.returncode == 0, done.stdout + done.stderr
        with sfumato.connect(service.url, token=service.owner()) as vault:
            vault.grant("cohort", "owner")
            answer = vault["cohort"].ask("SELECT COUNT(*) AS n FROM cohort", epsilon=50)
    assert answer.rows[0][0] == pytest.approx(60, abs=2)
