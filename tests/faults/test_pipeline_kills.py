"""kill -9 while a program runs: no sandbox and no file survives, and the charge stands once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.sandbox.control_group import find_home
from sfumato.sandbox.environment_store import Environments
from support.container_images import PYTHON, layout, shell_layer
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
OP_OF_TREE = ("--epsilon", "1", "--blocks", "2", "--cpu", "20", "--op", "mine")


# --- process trees: what an image's program starts is killed, or its block's keeper ---------------

TREE = """#!/bin/bash
mkdir -p "$2"
bash -c 'bash -c "end=\\$((SECONDS + 4)); while ((SECONDS < end)); do :; done" & wait $!; true'
echo 1 > "$2/n.txt"
"""
OF_TREE: dict[str, Any] = {
    "data_set": "town", "source": TREE, "kind": "program", "name": "group",
    "outputs": [{"name": "n", "lower": 0, "upper": 10, "step": 1, "path": "n.txt", "at": [0]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the name of a small image with a shell."""
    place, kept = tmp_path_factory.mktemp("image") / "layout", Environments()
    name = kept.add_image(place, layout(place, [shell_layer()], settings=PYTHON)).name
    yield name
    kept.remove(name)


def above(pid: int) -> list[int]:
    """Return the processes above that one, from its parent up."""
    found = []
    while pid > 1:
        said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(said[1])
        found.append(pid)
    return found


def depth(pid: int) -> int:
    """Return how many PID namespaces a process is in; a block has one of its own."""
    said = Path(f"/proc/{pid}/status").read_text()
    return len(said.partition("NSpid:")[2].splitlines()[0].split())


def grandchild_and_keeper(launchers: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the grandchild of a program that computes, and its block's keeper; None if not yet.

    From the grandchild upwards there are its parent, the program and the keeper.
    """
    try:
        for pid in (one for launcher in launchers for one in children(launcher)):
            if cpu_s(pid) > 0.1 and not children(pid):
                child, program, keeper, *_ = above(pid)
                if depth(pid) == depth(child) == depth(program) > depth(keeper):
                    return pid, keeper
    except (OSError, ValueError, IndexError):  # one of them has just ended
        return None
    return None


def groups_of(pids: Iterable[int]) -> set[Path]:
    """Return the control groups of these processes' sandboxes, if this machine lets us make any."""
    found, home = set[Path](), find_home()
    if home is None:
        return found
    for pid in pids:
        with suppress(OSError):
            said = Path(f"/proc/{pid}/cgroup").read_text()
            found |= {home.place / name for name in re.findall(r"/(sfumato-sandbox-\w+)", said)}
    return found


def mounts_of(folder: Path) -> list[str]:
    """Return the mounts of this process that name a folder."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(folder) in line]


@needs_bubbles
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["grandchild", "keeper"])
def test_a_process_of_a_paid_tree_is_killed_and_the_run_is_charged_once(
    victim: str, image: str, tmp_path: Path
) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as made:
        rows = [(f"p{place}", 170) for place in range(20)]
        made.add("town", write_csv(tmp_path / "t.csv", ("who", "height"), rows), card(CARD))
        sandbox: Any = made.house.desk.pipelines.door.sandbox
        sandbox._sleep = lambda _: None
        submitted: Any = made.call("submit-pipeline", {**OF_TREE, "environment": image})
        body: dict[str, Any] = {
            "data_set": "town", "pipeline": submitted["digest"], "epsilon": 1, "blocks": 2,
            "cpu_s": 20, "op": "mine",
        }  # fmt: skip
        with ThreadPoolExecutor(1) as thread:
            begun = thread.submit(answer_or_refusal, made, body)
            assert waited(lambda: grandchild_and_keeper(sandbox.pids()) or begun.done())
            seen = grandchild_and_keeper(sandbox.pids())
            assert seen is not None, begun.result()
            there = {pid for one in sandbox.pids() for pid in (one, *children(one))}
            groups = groups_of(there)
            assert bool(groups) == (find_home() is not None)
            os.kill(seen[0] if victim == "grandchild" else seen[1], signal.SIGKILL)
            first = begun.result()
        warm = {pid for one in sandbox.pids() for pid in (one, *children(one))}
        assert seen[victim == "keeper"] not in warm
        assert waited(lambda: not any(map(is_there, there - warm)))
        assert spent(made) == 10**9
        again: Any = made.call("run-pipeline", body)
        assert spent(made) == 10**9  # once, and the repeat is free
        assert again["receipt"]["epsilon"] == 1
        if isinstance(first, Refused):
            assert "paid" in f"{first.cause} {first.next_step}"
        else:
            assert again["rows"] == first["rows"]
        warm = {pid for one in sandbox.pids() for pid in (one, *children(one))}
        groups |= groups_of(warm)
        assert list((vault / "runs").iterdir()) == []
    assert waited(lambda: not any(map(is_there, warm)))
    assert waited(lambda: not any(group.exists() for group in groups))
    assert mounts_of(tmp_path) == []


def answer_or_refusal(made: OpenVault, body: dict[str, Any]) -> Any:
    """Return the answer of a run, or the refusal if it could not end."""
    try:
        return made.call("run-pipeline", body)
    except Refused as refused:
        return refused


def spent(made: OpenVault) -> int:
    """Return what the data set has spent, in billionths of epsilon."""
    accounts = {a.name: a.spent.epsilon for a in made.house.ledger.store.accounts()}
    return int(accounts["data-set:town"])


# --- the whole process -------------------------------------------------------------------------


@needs_bubbles
@pytest.mark.parametrize("brings", ["nothing", pytest.param("image", marks=pytest.mark.slow)])
def test_a_killed_run_leaves_nothing_and_is_resumed_for_what_was_paid(
    brings: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    vault = make_vault(tmp_path)
    rows = [(f"p{place}", 170) for place in range(20)]
    with sfumato.open(vault) as made:
        made.add("town", write_csv(tmp_path / "t.csv", ("who", "height"), rows), card(CARD))
    is_tree = brings == "image"
    (tmp_path / "burns.py").write_text(TREE if is_tree else PROGRAM)
    how, op = ("--function", "burns", "--output", "n:0:10"), OP
    if is_tree:
        own = request.getfixturevalue("image")
        how, op = ("--environment", own, "--output", "n:0:10@n.txt#0"), OP_OF_TREE
    handed_in = run(
        vault, "pipeline", "submit", "town", str(tmp_path / "burns.py"), *how, "--json"
    )  # fmt: skip
    digest = json.loads(handed_in.stdout)["digest"]
    begun = subprocess.Popen(
        [*SFUMATO, "pipeline", "run", "town", digest, *op],
        env={**os.environ, "SFUMATO_VAULT": str(vault)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    drafts = vault / "runs"
    worker, idle, block = 1, 4, 1  # two bubbles: each an outer wall and the first process within
    least = worker + idle + block
    if is_tree:
        assert waited(lambda: grandchild_and_keeper((begun.pid,)))
    else:
        assert waited(lambda: any(drafts.glob("*/3.tsv")) and len(children(begun.pid)) >= least)
    below = children(begun.pid)
    groups = groups_of(below)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert waited(lambda: not any(map(is_there, below)))
    again = run_hurried(vault, "pipeline", "run", "town", digest, *op, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["receipt"]["epsilon"] == 1
    free = run_hurried(vault, "pipeline", "run", "town", digest, *op, "--json")
    assert json.loads(free.stdout)["rows"] == json.loads(again.stdout)["rows"]
    with sfumato.open(vault) as made:
        assert spent(made) == 10**9
    assert list(drafts.iterdir()) == []
    assert bool(groups) == (is_tree and find_home() is not None)
    assert not any(group.exists() for group in groups)
    assert mounts_of(tmp_path) == []


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
