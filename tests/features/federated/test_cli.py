"""Federations from the shell: keys, agreements, and the demo with its real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.small_vaults import PATIENTS_CARD, make_vault, run, write_patients


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Return a vault with patients."""
    made = make_vault(tmp_path)
    (tmp_path / "card.toml").write_text(PATIENTS_CARD)
    source = write_patients(tmp_path / "patients.csv")
    added = run(made, "add", "patients", str(source), "--card", str(tmp_path / "card.toml"))
    assert added.returncode == 0, added.stderr
    return made


def an_agreement(vault: Path, folder: Path, **changed: Any) -> Path:
    """An agreement of this site and two that are nowhere."""
    key = run(vault, "federate", "key").stdout.strip()
    convener = run(vault, "federate", "convener", str(folder / "convener.key")).stdout.strip()
    sites = {"east": key, "north": "1" * 64, "west": "2" * 64}
    shape = {"name": "clinics", "convener": convener, "sites": sites, "floor": 3, "colluders": 1}
    path = folder / "agreement.json"
    path.write_text(json.dumps({**shape, **changed}))
    return path


def test_an_owner_joins_lists_and_leaves(vault: Path, tmp_path: Path) -> None:
    agreement = an_agreement(vault, tmp_path)
    joined = run(vault, "federate", "join", "patients", str(agreement))
    assert joined.stdout == "patients now takes part in clinics as east.\n"
    listed = run(vault, "federate", "list", "patients")
    assert listed.stdout == "clinics: east, north, west; floor 3, colluders 1\n"
    left = run(vault, "federate", "leave", "patients", "clinics")
    assert left.stdout == "patients has left clinics.\n"
    assert run(vault, "federate", "list", "patients").stdout == "None.\n"


def test_the_key_is_one_for_ever_and_its_file_is_private(vault: Path) -> None:
    first, again = (run(vault, "federate", "key").stdout for _ in range(2))
    assert first == again
    assert len(first) == 65
    assert (vault / "keys" / "site").stat().st_mode & 0o077 == 0


def test_a_convener_key_is_never_written_over(vault: Path, tmp_path: Path) -> None:
    an_agreement(vault, tmp_path)
    secret = (tmp_path / "convener.key").read_bytes()
    again = run(vault, "federate", "convener", str(tmp_path / "convener.key"))
    assert again.returncode == 3
    assert (tmp_path / "convener.key").read_bytes() == secret


@pytest.mark.parametrize("changed", [{"colluders": 0}, {"sites": {"a": "1" * 64}}, {"floor": "3"}])
def test_an_agreement_that_is_none_is_refused(
    vault: Path, tmp_path: Path, changed: dict[str, Any]
) -> None:
    agreement = an_agreement(vault, tmp_path, **changed)
    refused = run(vault, "federate", "join", "patients", str(agreement), "--json")
    assert refused.returncode == 3
    code = json.loads(refused.stdout)["refused"]["code"]
    assert code in ("bad-federation", "sum-not-trusted")


@pytest.mark.slow
def test_the_demo_asks_four_real_sites_and_goes_on_when_one_is_killed(tmp_path: Path) -> None:
    shown = run(tmp_path, "federate", "demo", "--sites", "4", "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    first, *_, last = found["answers"]
    assert abs(first["rows"][0][0] - 8000) < 100
    assert first["left_out"] == {}
    assert last["left_out"] == {"west": "service-down"}
    assert abs(last["rows"][0][0] - 6000) < 100
    assert found["spent"] == {"east": 6.0, "north": 6.0, "south": 6.0}
    assert found["trained"]["paid"] == dict.fromkeys(("east", "north", "south", "west"), 1.0)
    assert "round 15: 4 sites" in shown.stderr
    assert "epsilon spent at each site" in shown.stderr


def written(vault: Path, folder: Path, *words: str) -> Any:
    """What `federate agreement` writes for six sites, and what it says."""
    keys = {name: f"{place:064x}" for place, name in enumerate("bcdef", 1)}
    (folder / "keys.json").write_text(json.dumps(keys))
    own = run(vault, "federate", "key").stdout.strip()
    named = ("--name", "clinics", "--convener", "0" * 64, "--site", f"a={own}")
    asked = ("federate", "agreement", str(folder / "made.json"), *named)
    return run(vault, *asked, "--sites", str(folder / "keys.json"), *words)


def test_an_agreement_is_written_with_what_was_left_out(vault: Path, tmp_path: Path) -> None:
    said = written(vault, tmp_path)
    assert "clinics: a, b, c, d, e, f; floor 4, colluders 1\n" in said.stdout, said.stderr
    made = json.loads((tmp_path / "made.json").read_text())
    assert (made["floor"], made["colluders"], "neighbours" in made) == (4, 1, False)
    again = written(vault, tmp_path)
    assert again.returncode == 3
    assert "already exists" in again.stderr


def test_an_agreement_with_neighbours_is_written_joined_and_listed(
    vault: Path, tmp_path: Path
) -> None:
    said = written(vault, tmp_path, "--neighbours", "4", "--floor", "5")
    line = "clinics: a, b, c, d, e, f; floor 5, colluders 1, neighbours 4\n"
    assert line in said.stdout, said.stderr
    joined = run(vault, "federate", "join", "patients", str(tmp_path / "made.json"))
    assert joined.stdout == "patients now takes part in clinics as a.\n", joined.stderr
    assert run(vault, "federate", "list", "patients").stdout == line


def test_neighbours_that_make_no_ring_are_not_written(vault: Path, tmp_path: Path) -> None:
    said = written(vault, tmp_path, "--neighbours", "3")
    assert "no ring of sites has this number of neighbours" in said.stderr
    assert not (tmp_path / "made.json").exists()
