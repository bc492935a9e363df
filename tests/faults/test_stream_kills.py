"""Closing a stream is killed at every step, and closed again: no day twice, no block's noise twice.

The noise of these streams is next to nothing, so that a day that is counted twice would show; and
it is wide where what matters is which draw it was.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from support import postgres_server
from support.command_line import script
from support.small_vaults import card, run_traced, write_csv

CARD = """
unit = "who"
people = "town"
version = "%s"
budget = { epsilon = 1000 }
[columns.day]
type = "date"
"""
SQL = "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM visits GROUP BY day"
FIRST = [("ann", day) for day in (1, 2, 3, 4, 5)] + [("bob", day) for day in (2, 3, 5)]
SECOND = [*FIRST, *[("cid", day) for day in (1, 2, 3, 4)]]
EXACT, WIDE = 900, 0.1
STEPS = ("before-counting", "counted", "kept", "written")  # of stream_driver.py
DRIVER = Path(__file__).with_name("stream_driver.py")
CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "unlink", "rename", "mkdir")


def source(folder: Path, name: str, rows: list[tuple[str, int]]) -> Path:
    lines = [(who, f"2026-01-{day:02d}") for who, day in rows]
    return write_csv(folder / f"{name}.csv", ("who", "day"), lines)


def made_vault(folder: Path, epsilon: float, engine: str | None = None) -> Path:
    sfumato.create(folder / "vault", anchor=folder / "anchors" / "anchor", engine=engine)
    with sfumato.open(folder / "vault") as vault:
        vault.add("visits", source(folder, "first", FIRST), card(CARD % "1"))
        terms: dict[str, Any] = {"start": "2026-01-01", "periods": 5, "rows": 3}
        vault.open_stream("visits", "daily", SQL, **terms, epsilon=epsilon)
        vault.close_days("visits", "daily", until="2026-01-01")
    return folder / "vault"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_vault(tmp_path_factory.mktemp("exact"), EXACT)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_vault(tmp_path_factory.mktemp("wide"), WIDE)


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a vault like the exact one; its rows lie on a server, which its copies share."""
    with postgres_server.running() as server:
        address = server.database_url(server.own_database())
        yield made_vault(tmp_path_factory.mktemp("postgres"), EXACT, address)


def copy_of(original: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    vault, anchor = folder / "vault", folder / "anchor"
    shutil.copytree(original, vault)
    shutil.copy(original.parent / "anchors" / "anchor", anchor)
    settings = json.loads((vault / "vault.json").read_text())
    (vault / "vault.json").write_text(json.dumps({**settings, "anchor": str(anchor)}))
    moved(vault)
    return vault


def moved(vault: Path) -> None:
    """Let the catalogue of a copied vault name its own tables."""
    import apsw

    with apsw.Connection(str(vault / "catalogue.sqlite")) as connection:
        (table,) = (vault / "tables").glob("*.duckdb")
        connection.execute("UPDATE versions SET place = ?", (str(table),))


def die_closing(vault: Path, step: str, day: int) -> None:
    """Close up to the fourth day in a process of its own, which is killed at that step."""
    killed = script(DRIVER, str(vault), step, str(day), "2026-01-04")
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def blocks(vault: Path) -> dict[int, list[int]]:
    """Return every block that the ledger has of each day."""
    found: dict[int, list[int]] = {}
    with sfumato.open(vault) as opened:
        for entry in opened.house.ledger.store.entries():
            if entry.kind == "stream-closed":
                body = json.loads(entry.body)
                found.setdefault(body["end"], []).append(body["block"])
        assert opened.house.ledger.verified()["ok"] is True
    return found


def close_rest(vault: Path) -> list[object]:
    """Close what is open up to the fifth day, as the owner does; return the running counts."""
    with sfumato.open(vault) as opened:
        opened.close_days("visits", "daily", until="2026-01-05")
        return [row[1] for row in opened["visits"].stream("daily").rows]


@pytest.mark.parametrize("day", [2, 4])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_takes_no_day_twice_and_drops_none(
    exact: Path, tmp_path: Path, step: str, day: int
) -> None:
    vault = copy_of(exact, tmp_path)
    die_closing(vault, step, day)
    assert close_rest(vault) == [1, 3, 5, 5, 6]  # ann has three by the third day, and bob three
    assert {end: len(one) for end, one in blocks(vault).items()} == dict.fromkeys(range(1, 6), 1)
    left = sorted(path.name for path in (vault / "streams" / "visits.daily").iterdir())
    assert left == ["5", "lock"]  # what the killed one left is gone


@pytest.mark.parametrize("step", ["counted", "kept"])
def test_a_kill_takes_no_day_twice_where_the_rows_lie_on_a_server(
    on_postgres: Path, tmp_path: Path, step: str
) -> None:
    test_a_kill_at_any_step_takes_no_day_twice_and_drops_none(on_postgres, tmp_path, step, 2)


@pytest.mark.parametrize("step", ["kept", "written"])
def test_once_a_block_has_its_noise_it_keeps_it_whatever_comes(
    wide: Path, tmp_path: Path, step: str
) -> None:
    """Even if the owner adds a new version before the day is closed again."""
    vault = copy_of(wide, tmp_path)
    die_closing(vault, step, 3)
    kept = vault / "streams" / "visits.daily" / "3" / "taken.json"
    drawn = json.loads(kept.read_text())
    with sfumato.open(vault) as opened:
        opened.add("visits", source(tmp_path, "second", SECOND), card(CARD % "2"))
    close_rest(vault)
    assert blocks(vault)[3] == [drawn["block"]]
    assert drawn["version"] == "1"


@pytest.mark.parametrize("step", ["before-counting", "counted"])
def test_before_it_is_kept_nothing_has_left(wide: Path, tmp_path: Path, step: str) -> None:
    vault = copy_of(wide, tmp_path)
    die_closing(vault, step, 3)
    assert sorted(blocks(vault)) == [1, 2]
    assert not (vault / "streams" / "visits.daily" / "3").exists()


def traced(vault: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the real command under strace; every thread and child is followed."""
    close = ("stream", "close", "visits", "daily", "--until", "2026-01-03", "--json")
    return run_traced(vault, close, CALLS, *options)


def points(original: Path, folder: Path) -> list[tuple[str, int]]:
    """Return every (system call, how many-th) that closing two days makes."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: make system")
    whole = traced(copy_of(original, folder))
    assert whole.returncode == 0, whole.stderr
    lines = (folder / "strace.log").read_text().splitlines()
    found: list[tuple[str, int]] = []
    for call in CALLS:
        count = sum(f" {call}(" in line for line in lines)
        found += [(call, n) for n in range(1, count + 1)]
    return found


def check(original: Path, folder: Path, call: str, nth: int, fault: str) -> None:
    """Hurt one closing at one call; what is closed afterwards is right, and each day once."""
    vault = copy_of(original, folder)
    traced(vault, "-e", f"inject={call}:{fault}:when={nth}")
    before = blocks(vault)
    close_rest(vault)
    after = blocks(vault)
    assert {end: after[end] for end in before} == before
    assert after == {1: [1], 2: [2], 3: [2], 4: [0], 5: [1]}
    shutil.rmtree(folder)


def test_a_kill_at_every_twelfth_call_leaves_every_day_once(exact: Path, tmp_path: Path) -> None:
    for place, (call, nth) in enumerate(points(exact, tmp_path / "count")[::12]):
        check(exact, tmp_path / f"k{place}", call, nth, "signal=KILL")


@pytest.mark.slow
def test_a_kill_at_many_calls_leaves_every_day_once_where_the_rows_lie_on_a_server(
    on_postgres: Path, tmp_path: Path
) -> None:
    for place, (call, nth) in enumerate(points(on_postgres, tmp_path / "count")[::24]):
        check(on_postgres, tmp_path / f"p{place}", call, nth, "signal=KILL")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=ENOSPC", "error=EIO"])
def test_every_fault_at_every_call_leaves_every_day_once(
    exact: Path, tmp_path: Path, fault: str
) -> None:
    for place, (call, nth) in enumerate(points(exact, tmp_path / "count")):
        check(exact, tmp_path / f"f{place}", call, nth, fault)
