"""kill -9 in every step of a reviewed file: the store is true, and nothing half-written is there.

Each step is done by a process of its own, which is killed before some call that would have changed
a thing; then the vault is opened again and looked at, and the step is done anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.model import OPEN, Request, sum_of
from support.process_tree import children, is_there, waited
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import SFUMATO, card, make_vault, run, write_csv
from support.unconfined_sandbox import lay_bare

CARD = """
unit = "who"
people = "town"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[airlock]
reviewers = ["rita", "rolf", "rosa"]
[columns.site]
type = "text"
keys = ["a", "b"]
"""
PROGRAM = """
import sys
for name, text in (("t.csv", "site,n\\na,30\\nb,30\\n"), ("u.txt", "thirty of each")):
    open(sys.argv[2] + "/" + name, "w").write(text)
"""
FILES = {"t.csv": b"site,n\na,30\nb,30\n", "u.txt": b"thirty of each"}
OTHER = "c2l0ZSxuCmEsMzUKYiwyNQo="
ASKED = [{"path": "t.csv", "by": ["site"], "count": "n"}, {"path": "u.txt"}]
STEPS = ("submit", "run", "vote", "trim", "replace", "decline", "release", "fetch")
ROOM = re.compile(r"[0-9a-f]{32}")


class Driver:
    """The process that does steps in forks of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "airlock_driver.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def did(self, order: dict[str, object]) -> Any:
        """Return whether it was killed, or how many calls it made."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()


def of(vault: OpenVault, user: str, verb: str, **body: object) -> Any:
    return OpenVault(vault.house, user).call(f"{verb}-airlock", body)


def vote_of(vault: OpenVault, request: str, user: str) -> dict[str, object]:
    seen = of(vault, user, "show", request=request)
    return {"request": request, "says": "release", "seal": seen["seal"], "draft": seen["draft"]}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Return for each step a vault that is just before it, and the request it is about."""
    folder = tmp_path_factory.mktemp("airlock")
    vault = make_vault(folder)
    rows = [(f"p{n}", "ab"[n % 2]) for n in range(60)]
    with sfumato.open(vault) as opened:
        opened.add("town", write_csv(folder / "t.csv", ("who", "site"), rows), card(CARD))
        opened.enrol("ada", "researchers")
    stages: dict[str, tuple[Path, str]] = {}

    def kept(request: str, *steps: str) -> None:
        for step in steps:
            stages[step] = (copy_of(vault, folder / f"at-{step}"), request)

    kept("", "submit")
    body = {"data_set": "town", "source": PROGRAM, "files": ASKED, "cpu_s": 5}
    with sfumato.open(vault) as opened:
        lay_bare(opened)
        request = str(of(opened, "ada", "submit", **body)["request"])
        kept(request, "run")
        of(opened, "owner", "run", request=request)
        of(opened, "rita", "vote", **vote_of(opened, request, "rita"))
        kept(request, "vote", "trim", "replace", "decline")
        of(opened, "rolf", "vote", **vote_of(opened, request, "rolf"))
        kept(request, "release")
        of(opened, "rita", "release", request=request)
        kept(request, "fetch")
    return stages


def copy_of(vault: Path, folder: Path) -> Path:
    made, anchor = folder / "vault", folder / "anchor"
    shutil.copytree(vault, made)
    old = json.loads((vault / "vault.json").read_text())
    shutil.copy(old["anchor"], anchor)
    (made / "vault.json").write_text(json.dumps({**old, "anchor": str(anchor)}))
    return made


def order_of(step: str, vault: Path, request: str) -> dict[str, object]:
    """Return what the driver is told to do."""
    user = "rita"
    body: dict[str, object] = {"request": request}
    if step == "submit":
        user, body = "ada", {"data_set": "town", "source": PROGRAM, "files": ASKED, "cpu_s": 5}
    elif step in ("run", "decline"):
        user = "owner"
    elif step == "vote":
        user = "rolf"
        with sfumato.open(vault) as opened:
            body = vote_of(opened, request, "rolf")
    elif step == "fetch":
        user = "ada"
    elif step != "release":
        body |= {"path": "t.csv", **({"base64": OTHER} if step == "replace" else {})}
    verb = f"{step}-airlock"
    order: dict[str, object] = {"vault": str(vault), "user": user, "verb": verb, "body": body}
    return {**order, "save": str(vault.parent / "mine")} if step == "fetch" else order


def calls(step: str, before: tuple[Path, str], folder: Path, driver: Driver) -> int:
    """Return before how many calls a step can be killed."""
    whole = driver.did({**order_of(step, copy_of(before[0], folder), before[1]), "nth": 0})
    assert not whole["killed"]
    assert whole["count"] > 0
    return int(whole["count"])


def points(count: int) -> range:
    """Return some of the calls before which a step is killed, the first and the last among them."""
    return range(1, count + 1, max(1, count // 5))


def check(step: str, before: tuple[Path, str], folder: Path, driver: Driver, nth: int) -> None:
    """Kill a step, look at what is there, and do it again."""
    vault, request = copy_of(before[0], folder), before[1]
    order = order_of(step, vault, request)
    assert driver.did({**order, "nth": nth})["killed"]
    mine = vault.parent / "mine"
    assert not mine.exists() or is_whole(mine)
    with sfumato.open(vault) as opened:
        lay_bare(opened)
        look(opened, request)
        again(opened, step, order, request)
        look(opened, request)
    if step == "fetch":
        shutil.rmtree(mine, ignore_errors=True)
        assert not driver.did({**order, "nth": 0})["killed"]
        assert is_whole(mine)
        assert sorted(path.name for path in vault.parent.iterdir()) == ["anchor", "mine", "vault"]
    shutil.rmtree(folder)


def is_whole(mine: Path) -> bool:
    there = {path.name for path in mine.iterdir()}
    return there == {*FILES, "reviewed-not-dp.json"} and all(
        (mine / name).read_bytes() == text for name, text in FILES.items()
    )


def look(vault: OpenVault, request: str) -> None:
    """Assert what must hold in whatever state a kill has left, the vault being opened again."""
    airlock = vault.house.desk.airlock
    requests = airlock.store.all()
    held = {one.place for one in requests if one.place and one.state in (*OPEN, "released")}
    folder = vault.house.folder / "airlock"
    assert waited(lambda: not any(folder.glob("gone-*")))  # by a thread that outlives the act
    rooms = {p.name for p in folder.iterdir() if p.is_dir()} if folder.exists() else set()
    assert rooms == held, "a draft that no request names, or a request without its draft"
    for place in held:
        found = airlock.door.files.read(place)
        assert found is not None
        assert set(found.files) <= set(FILES)
        assert all(
            text in (*FILES.values(), b"site,n\na,35\nb,25\n") for text in found.files.values()
        )
    entries = list(vault.house.ledger.store.notes("not-dp-release", 0))
    assert len(entries) <= 1
    assert vault.house.ledger.verified()["ok"]
    if not request:
        return
    if not entries:
        with pytest.raises(Refused) as refused:
            of(vault, "ada", "fetch", request=request)
        assert refused.value.code == "airlock-waits"
        assert of(vault, "ada", "show", request=request)["state"] != "released"
        return
    found = of(vault, "ada", "fetch", request=request)
    sums = {one["path"]: one["sha256"] for one in found["files"]}
    assert sums == json.loads(entries[0].body)["files"] == {p: sum_of(t) for p, t in FILES.items()}


def again(vault: OpenVault, step: str, order: dict[str, Any], request: str) -> None:
    """Do the step again; only what is done, or over, refuses it."""
    store = vault.house.desk.airlock.store
    state_before = of(vault, "owner", "show", request=request)["state"] if request else ""
    done: Request | None
    try:
        made: Any = OpenVault(vault.house, order["user"]).call(order["verb"], order["body"])
        done = store.find(made["request"])
    except Refused:  # it was done, or it is over
        done = store.find(request)
    assert done is not None
    expected = {
        "submit": ("waiting",), "run": ("in review", "failed"), "decline": ("declined",),
        "release": ("released",), "fetch": ("released",),
    }.get(step, ("in review",))  # fmt: skip
    assert done.state in expected, (state_before, done.state)
    if step == "run" and state_before in ("waiting", "in review"):
        assert done.state == "in review"


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_leaves_the_truth(
    step: str, before: dict[str, tuple[Path, str]], driver: Driver, tmp_path: Path
) -> None:
    for nth in points(calls(step, before[step], tmp_path / "whole", driver)):
        check(step, before[step], tmp_path / str(nth), driver, nth)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_anywhere_leaves_the_truth(
    step: str, before: dict[str, tuple[Path, str]], driver: Driver, tmp_path: Path
) -> None:
    for nth in range(1, 1 + calls(step, before[step], tmp_path / "whole", driver)):
        check(step, before[step], tmp_path / str(nth), driver, nth)


@needs_bubbles
def test_a_run_that_is_killed_has_failed_and_leaves_no_process_and_no_file(
    before: dict[str, tuple[Path, str]], tmp_path: Path
) -> None:
    vault = copy_of(before["submit"][0], tmp_path)
    (tmp_path / "burns.py").write_text("while True:\n    pass\n")
    said = run(
        vault, "--user", "ada", "airlock", "submit", "town", str(tmp_path / "burns.py"), "--file",
        "t.csv", "--cpu", "600", "--json",
    )  # fmt: skip  # longer than anything that is waited for here
    assert said.returncode == 0, said.stderr
    request = json.loads(said.stdout)["request"]
    with (tmp_path / "complaint").open("wb") as complaint:
        begun = subprocess.Popen(
            [*SFUMATO, "airlock", "run", request],
            env={**os.environ, "SFUMATO_VAULT": str(vault)},
            stdout=subprocess.DEVNULL, stderr=complaint,
        )  # fmt: skip
    try:
        with sfumato.open(vault) as opened:  # another process, while it runs

            def state() -> str:
                return str(of(opened, "owner", "show", request=request)["state"])

            assert waited(lambda: state() == "running" or begun.poll() is not None)
            assert waited(lambda: any((vault / "runs").glob("*/*")) or begun.poll() is not None)
            assert begun.poll() is None, (tmp_path / "complaint").read_text()
            assert state() == "running"
            assert of(opened, "ada", "show", request=request)["state"] == "in review"
        below = children(begun.pid)
        assert len(below) >= 3
    finally:
        begun.send_signal(signal.SIGKILL)
        begun.wait()
    assert waited(lambda: not any(map(is_there, below)))
    with sfumato.open(vault) as opened:
        assert of(opened, "owner", "show", request=request)["state"] == "failed"
        kinds = [one.kind for one in opened.house.ledger.store.entries() if request in one.body]
        assert kinds == ["airlock-submitted", "airlock-run"]  # or a receipt would tell its author
        assert not [path for path in (vault / "airlock").iterdir() if path.is_dir()]
    assert list((vault / "runs").iterdir()) == []
