"""The attacks from the command line: listed, run, saved, and refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab.attacks import FILES, attack
from support.small_vaults import patients_vault, run


def test_without_a_name_all_attacks_are_listed(tmp_path: Path) -> None:
    listed = run(tmp_path, "attack")
    assert listed.returncode == 0, listed.stderr
    assert [name for name in FILES if name not in listed.stdout] == []


def test_an_attack_is_told_and_its_pictures_are_saved(tmp_path: Path) -> None:
    picture = tmp_path / "loo.svg"
    ran = run(tmp_path, "attack", "loo", "--runs", "20", "--seed", "1", "--save", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert "ours, epsilon = 0.1" in ran.stdout
    assert "without any release, guessing is right" in ran.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"loo.svg", "loo-2.svg"}


def test_the_numbers_come_as_json_too(tmp_path: Path) -> None:
    ran = run(tmp_path, "attack", "differencing", "--runs", "20", "--seed", "3", "--json")
    assert json.loads(ran.stdout)["successes"][0]["rate"] == 1.0


def test_what_cannot_be_run_is_refused_in_words(tmp_path: Path) -> None:
    ran = run(tmp_path, "attack", "loo", "--set", "data=nowhere.csv")
    assert ran.returncode not in (0, 1), ran.stdout
    assert "cannot read nowhere.csv" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_slip_is_told_before_anything_is_run(tmp_path: Path) -> None:
    assert (
        "does not exist"
        in run(tmp_path, "attack", "loo", "--save", f"{tmp_path}/nowhere/x.svg").stderr
    )
    assert "not in the range" in run(tmp_path, "attack", "loo", "--seed", "-1").stderr
    (tmp_path / "empty.csv").write_text("Height,zip\n")
    assert (
        "has no rows"
        in run(tmp_path, "attack", "loo", "--set", f"data={tmp_path}/empty.csv").stderr
    )
    (tmp_path / "t.csv").write_text("age,zip\n1,2\n1,3\n")
    table = ("--set", f"data={tmp_path}/t.csv", "--set", "columns=age,zip")
    asked = ("attack", "linkage", "--runs", "10", *table)
    assert "no column 'nope'" in run(tmp_path, *asked, "--set", "secret=nope").stderr
    assert "reads no rows of the file" in run(tmp_path, *asked, "--set", "secret=zip").stdout


def test_a_vault_is_probed_and_says_what_stops_it(tmp_path: Path) -> None:
    vault = patients_vault(tmp_path, "ada")
    sql = "SELECT COUNT(*) AS n FROM patients WHERE age < 40"
    probe = ("probe", "patients", sql, "--user", "ada", "--epsilon", "0.1")
    free = run(vault, *probe, "--questions", "30", "--save", str(tmp_path / "means.svg"))
    assert free.stdout.startswith("Stopped by free repeats: 30 questions were answered")
    assert "The mean of all answers so far" in (tmp_path / "means.svg").read_text()
    refused = run(vault, *probe, "--questions", "2", "--fresh", "--save", str(tmp_path / "x.bmp"))
    assert "cannot be saved as '.bmp'" in refused.stderr  # before anything is paid, as is seen next
    paid = run(vault, *probe, "--without", f"{sql} AND salary <> 20388", "--fresh", "--json")
    told = json.loads(paid.stdout)
    assert (told["stopped_by"], told["questions"]) == ("the budget", 8)


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("magic", "a=b", "The lab has no attack 'magic'"),
        ("loo", "data=nowhere.csv", "cannot read nowhere.csv"),
        ("loo", "column=Shoe", "has no column 'Shoe'"),
        ("loo", "column=sex", "sex contains other values than numbers"),
        ("loo", "lower=300", "lower bound is not below"),
        ("loo", "lower=low", "lower must be a number"),
        ("loo", "within=nan", "within must be a number"),
        ("linkage", "shoe=1", "linkage has no option 'shoe'"),
        ("linkage", "data=nowhere.csv", "cannot read nowhere.csv"),
        ("ratings", "people=1e9", "people is a whole number from 2 to 1,000,000"),
        ("ratings", "known=-1", "known is a whole number"),
        ("ratings", "known=2.5", "known is a whole number"),
    ],
)
def test_an_option_that_cannot_be_is_refused(name: str, typed: str, words: str) -> None:
    option, _, value = typed.partition("=")
    with pytest.raises(Refused, match=words):
        attack(name).report(runs=5, seed=1, **{option: value})


def test_more_guesses_than_fit_into_memory_are_refused() -> None:
    with pytest.raises(Refused, match="The number of guesses is too large"):
        attack("loo").report(runs=100_000, seed=1)
