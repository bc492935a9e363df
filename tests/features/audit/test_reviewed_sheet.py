"""The answer sheet of files that left the airlock: it holds anywhere, unless changed."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.features.airlock.client import Files
from sfumato.features.audit.sheet_verification import check_files, check_sheet
from support.small_vaults import card, make_vault, run, write_csv
from support.unconfined_sandbox import lay_bare

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[airlock]
reviewers = ["rita", "rolf"]
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
PROGRAM = "import sys; open(sys.argv[2] + '/of/t.txt', 'w').write('old')"
PROGRAM = f"import os, sys; os.mkdir(sys.argv[2] + '/of'); {PROGRAM}"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a vault of which files have left, and their sheet; they lie in `mine` beside it."""
    folder = tmp_path_factory.mktemp("sheet")
    vault = make_vault(folder)
    rows = [(f"p{n}", 20 + n % 50) for n in range(40)]
    with sfumato.open(vault) as opened:
        opened.add("town", write_csv(folder / "t.csv", ("who", "age"), rows), card(CARD))
        opened.enrol("ada", "researchers")
        lay_bare(opened)
        opened["town"].ask("SELECT COUNT(*) FROM town", epsilon=0.5)
        ada, rita, rolf = (
            OpenVault(opened.house, u)["town"].airlock for u in ("ada", "rita", "rolf")
        )
        made = ada.submit(PROGRAM, ["of/t.txt"])
        request = str(made["request"])
        opened["town"].airlock.run(request)
        rita.vote(rita.show(request), "reject")
        for reviewer in (rita, rolf):
            reviewer.vote(reviewer.show(request), "release")
        receipt: Any = rita.release(request)["receipt"]
        Files(ada.fetch(request).shape).save(folder / "mine")
        sheet = opened.house.desk.audit.sheet(receipt["seq"])
    return folder, json.loads(json.dumps(sheet))


def test_the_sheet_says_what_left_by_whose_word_and_that_no_noise_is_on_it(
    left: tuple[Path, Any],
) -> None:
    _, sheet = left
    assert check_sheet(sheet) == ()
    assert (sheet["guarantee"], sheet["epsilon"], sheet["reviewer"]) == (
        "reviewed (not DP)",
        None,
        "rita, rolf",
    )
    assert (sheet["asked_by"], list(sheet["files"])) == ("ada", ["of/t.txt"])
    assert sheet["earlier"]["not_dp"] == 1
    assert [one["epsilon"] for one in sheet["earlier"]["releases"]] == ["1/2"]
    kinds = [one["kind"] for one in sheet["entries"]]
    assert kinds == ["not-dp-release", "airlock-run", *["airlock-vote"] * 3]
    assert "nonce" not in json.dumps(sheet)


def test_the_command_checks_it_and_the_files_without_the_vault(
    left: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, sheet = left
    path = tmp_path / "sheet.json"
    path.write_text(json.dumps(sheet))
    shutil.copytree(folder / "mine", tmp_path / "mine")
    words = ("verify", str(path), "--key", sheet["proof"]["key"], "--files", str(tmp_path / "mine"))
    said = run(tmp_path / "no-vault", *words)
    assert said.returncode == 0, said.stderr
    assert "reviewed (not DP)" in said.stdout
    (tmp_path / "mine" / "of" / "t.txt").write_text("new")
    said = run(tmp_path / "no-vault", *words)
    assert said.returncode != 0
    assert "not the file that was released" in said.stdout


def changed(sheet: Any, **fields: object) -> Any:
    return {**copy.deepcopy(sheet), **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"guarantee": "central-dp"},
        {"epsilon": "1"},
        {"reviewers": ["rita"]},
        {"author": "eve"},
        {"question": "something else"},
        {"files": {"of/t.txt": "0" * 64}},
        {"by": "ada"},
        {"format": "sheet/1"},
        {"format": "other/1"},
    ],
    ids=str,
)
def test_a_sheet_that_was_changed_does_not_hold(
    left: tuple[Path, Any], fields: dict[str, object]
) -> None:
    assert check_sheet(changed(left[1], **fields))


def test_a_sheet_without_its_reviewers_words_does_not_hold(left: tuple[Path, Any]) -> None:
    """Even where the vault's own key has signed it: the words have to stand in the chain."""
    sheet = left[1]
    votes = sheet["entries"][2:]
    for entries in (sheet["entries"][:2], [*sheet["entries"][:2], votes[0], votes[2]]):
        faults = check_sheet(changed(sheet, entries=entries))
        assert any("did not approve" in fault for fault in faults)
    forged = copy.deepcopy(votes[0])
    forged["body"] = forged["body"].replace('"reject"', '"release"')
    faults = check_sheet(changed(sheet, entries=[*sheet["entries"][:2], forged, votes[2]]))
    assert any("does not match the entry" in fault for fault in faults)


def test_files_are_those_of_the_sheet_each_and_all(left: tuple[Path, Any]) -> None:
    sheet = left[1]
    assert check_files(sheet, {"of/t.txt": b"old"}) == ()
    for files in ({}, {"of/t.txt": b"new"}, {"of/t.txt": b"old", "more.txt": b""}):
        assert len(check_files(sheet, files)) == 1
