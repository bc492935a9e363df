"""kill -9 while a program runs: no sandbox and no file survives, and the charge stands once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sfumato
from support.process_tree import children, cpu_s, is_there, waited
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import SFUMATO, card, make_vault, run, run_hurried, write_csv

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 3, delta = 0 }
[columns.height]
type = "integer"
lower = 100
upper = 220
"""
PROGRAM = """
import time

def burns(rows):
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    return 1.0
"""
OP = ("--epsilon", "1", "--blocks", "4", "--cpu", "3", "--op", "mine")


@needs_bubbles
def test_a_killed_run_leaves_nothing_and_is_resumed_for_what_was_paid(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    rows = [(f"p{place}", 170) for place in range(20)]
    with sfumato.open(vault) as made:
        made.add("town", write_csv(tmp_path / "t.csv", ("who", "height"), rows), card(CARD))
    (tmp_path / "burns.py").write_text(PROGRAM)
    handed_in = run(
        vault, "pipeline", "submit", "town", str(tmp_path / "burns.py"), "--function", "burns",
        "--output", "n:0:10", "--json",
    )  # fmt: skip
    digest = json.loads(handed_in.stdout)["digest"]
    begun = subprocess.Popen(
        [*SFUMATO, "pipeline", "run", "town", digest, *OP],
        env={**os.environ, "SFUMATO_VAULT": str(vault)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    drafts = vault / "runs"
    worker, idle, block = 1, 4, 1  # two bubbles: each an outer wall and the first process within
    least = worker + idle + block
    assert waited(lambda: any(drafts.glob("*/3.tsv")) and len(children(begun.pid)) >= least)
    below = children(begun.pid)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert waited(lambda: not any(map(is_there, below)))
    again = run_hurried(vault, "pipeline", "run", "town", digest, *OP, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["receipt"]["epsilon"] == 1
    with sfumato.open(vault) as made:
        accounts = {a.name: a.spent.epsilon for a in made.house.ledger.store.accounts()}
    assert accounts["data-set:town"] == 10**9
    assert list(drafts.iterdir()) == []


STUDY_CARD = """
unit = "participant_id"
people = "cohort"
budget = { epsilon = 1000, delta = 0 }
[bids]
people = 4
files = ["anat/{sub}_T1w.nii.gz"]
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
APP = """
import glob, os, sys, time
source, target, level = sys.argv[1:]
if level == "participant" and glob.glob(source + "/sub-*"):
    until = time.process_time() + 0.8
    while time.process_time() < until:
        pass
    os.makedirs(target + "/" + os.path.basename(glob.glob(source + "/sub-*")[0]))
    open(glob.glob(target + "/sub-*")[0] + "/done.txt", "w").close()
elif level == "group":
    with open(target + "/group.txt", "w") as file:
        file.write(str(len(glob.glob(target + "/sub-*/done.txt"))))
"""
FOUND = [{"name": "found", "lower": 0, "upper": 4, "step": 1, "path": "group.txt", "at": [0]}]
TERMS = {"data_set": "cohort", "epsilon": 500, "blocks": 2, "cpu_s": 20}


def study(folder: Path) -> Path:
    """Write a folder with three people."""
    for place in range(3):
        (folder / f"sub-{place:02d}" / "anat").mkdir(parents=True)
    lines = ["participant_id\tage", *(f"sub-{place:02d}\t30" for place in range(3))]
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    return folder


def burning(bubbles: tuple[int, ...]) -> list[int]:
    """Return the blocks that have run for a while: below launcher, zygote and keeper."""
    found = []
    for bubble in bubbles:
        below = {pid: children(pid) for pid in children(bubble)}
        for pid, own in below.items():
            above = sum(pid in others for others in below.values())
            if above >= 2 and not own and cpu_s(pid) > 0.2:
                found.append(pid)
    return found


@needs_bubbles
def test_a_persons_turn_that_is_killed_is_missing_once_and_run_again_the_next_time(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as made:
        made.add("cohort", study(tmp_path / "study"), card(STUDY_CARD))
        sandbox: Any = made.house.desk.pipelines.door.sandbox
        sandbox._sleep = lambda _: None
        shape = {"source": APP, "kind": "bids", "name": "app", "outputs": FOUND}
        submitted: Any = made.call("submit-pipeline", {"data_set": "cohort", **shape})
        body = {**TERMS, "pipeline": submitted["digest"]}
        with ThreadPoolExecutor(1) as thread:
            begun = thread.submit(made.call, "run-pipeline", {**body, "op": "first"})
            assert waited(lambda: burning(sandbox.pids()))
            os.kill(burning(sandbox.pids())[0], signal.SIGKILL)
            answer: Any = begun.result()
        assert answer["rows"][0][0] == pytest.approx(1, abs=0.1)  # two of three, in two blocks
        assert len(list((vault / "tables").glob("*.kept/*/*"))) == 2
        again: Any = made.call("run-pipeline", {**body, "epsilon": 400})
        assert again["rows"][0][0] == pytest.approx(1.5, abs=0.1)
        assert len(list((vault / "tables").glob("*.kept/*/*"))) == 3
        spent = {a.name: a.spent.epsilon for a in made.house.ledger.store.accounts()}
        assert spent["data-set:cohort"] == 900 * 10**9
        assert list((vault / "runs").iterdir()) == []


@needs_bubbles
def test_a_run_that_is_killed_among_peoples_turns_is_resumed_for_what_was_paid(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as made:
        made.add("cohort", study(tmp_path / "study"), card(STUDY_CARD))
    (tmp_path / "app.py").write_text(APP)
    handed_in = run(
        vault, "pipeline", "submit", "cohort", str(tmp_path / "app.py"), "--participants",
        "--output", "found:0:4:1@group.txt#0", "--json",
    )  # fmt: skip
    digest = json.loads(handed_in.stdout)["digest"]
    terms = ("--epsilon", "500", "--blocks", "2", "--cpu", "6", "--op", "mine")
    begun = subprocess.Popen(
        [*SFUMATO, "pipeline", "run", "cohort", digest, *terms],
        env={**os.environ, "SFUMATO_VAULT": str(vault)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert waited(lambda: burning(tuple(children(begun.pid))) and any((vault / "runs").glob("*/*")))
    below = children(begun.pid)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert waited(lambda: not any(map(is_there, below)))
    again = run_hurried(vault, "pipeline", "run", "cohort", digest, *terms, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["rows"][0][0] == pytest.approx(1.5, abs=0.1)
    with sfumato.open(vault) as made:
        accounts = {a.name: a.spent.epsilon for a in made.house.ledger.store.accounts()}
    assert accounts["data-set:cohort"] == 500 * 10**9
    assert list((vault / "runs").iterdir()) == []
