"""kill -9 while a program runs: no sandbox and no file survives, and the charge stands once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import sfumato
from bubbles import needs_bubbles
from vaults import SFUMATO, card, make_vault, run, write_csv

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
def burns(rows):
    import time
    until = time.process_time() + 2
    while time.process_time() < until:
        pass
    return 1.0
"""
OP = ("--epsilon", "1", "--blocks", "8", "--cpu", "3", "--op", "mine")
PATIENCE_S = 60


def children(pid: int) -> set[int]:
    """Return the processes below that one, as far down as they go."""
    above: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                said = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            above[int(place.name)] = int(said[1])
    found, left = set(), {pid}
    while left:
        left = {one for one, parent in above.items() if parent in left}
        found |= left
    return found


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def waited(is_so: object) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if callable(is_so) and is_so():
            return True
        time.sleep(0.1)
    return False


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
    assert waited(lambda: any(drafts.glob("*/7.tsv")) and len(children(begun.pid)) >= 8)
    below = children(begun.pid)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert waited(lambda: not any(map(is_there, below)))
    again = run(vault, "pipeline", "run", "town", digest, *OP, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["receipt"]["epsilon"] == 1
    with sfumato.open(vault) as made:
        accounts = {a.name: a.spent.epsilon for a in made.house.ledger.store.accounts()}
    assert accounts["data-set:town"] == 10**9
    assert list(drafts.iterdir()) == []
