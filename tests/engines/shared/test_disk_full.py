"""Where a sealed vault's memory is full, its owner is told so, and not of damaged rows."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest.file_conversion import converted
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.shared.disk_full import is_full
from sfumato.engines.shared.memory_scratch import MemoryScratch
from sfumato.storage.run_folders import FileDrafts
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.card.data_card import Limits
from sfumato.vault.encryption_at_rest import AtRest
from support.engine_rows import SALT, card_of, prepare

KEY: Final = bytes(range(32))
CARD: Final = card_of("who", {"small": {"type": "integer", "lower": 0, "upper": 9}})
NAME: Final = "rows.csv.sealed"
# A file system of this test's own, which nobody else sees and which goes with its process.
MOUNTED: Final = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
ENTERED: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, "sh")
RUN: Final = "import sys; sys.path[:0] = [sys.argv.pop()]; import test_disk_full as here; here.{}()"


def main() -> None:
    """Describe and prepare a sealed source; say how each ended. Runs in a process of its own."""
    scratch, folder = map(Path, sys.argv[1:3])
    shelter = MemoryScratch(KEY, SystemRandomSource().draw, FileDrafts(scratch))
    engine = DuckDBEngine(SALT, memory_mb=1024, threads=1, shelter=shelter)
    source = folder / NAME
    for act in (lambda: engine.describe(str(source), None), lambda: prepare(engine, source, CARD)):
        try:
            act()
            print("done")
        except Refused as refused:
            print(refused.code)
    engine.close()


def endless() -> None:
    """Convert a small file whose rows have no end; say how that ended, and what is free."""
    scratch, folder = map(Path, sys.argv[1:3])
    source = folder / "a.sqlite"
    with sqlite3.connect(source) as connection:
        connection.execute(
            "CREATE VIEW a AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            " SELECT x, zeroblob(100000) FROM n"
        )
    try:
        converted(TableOrder(0, str(source), None, None, None, (), (), Limits()), scratch)
    except OSError as error:
        disk = os.statvfs(scratch)
        print("full" if is_full(error) else "failed", disk.f_bavail * 3 > disk.f_blocks)


def ended(folder: Path, size: str, what: str = "main") -> list[str]:
    """Return how it ended, where the memory that rows may lie open in has this size."""
    scratch = folder / "memory"
    scratch.mkdir(exist_ok=True)
    here = str(Path(__file__).parent)
    run = (sys.executable, "-c", RUN.format(what), str(scratch), str(folder), here)
    words = (*ENTERED, size, str(scratch), *run)
    paths = {"PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parents[3] / 'src'}"}
    done = subprocess.run(
        words, capture_output=True, text=True, env=paths | {"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Return a folder with a source of half a megabyte, sealed as an upload is."""
    rows = "".join(f"p{n},{n % 10}\n" for n in range(60_000))
    text = AtRest(KEY, SystemRandomSource().draw).encrypt(NAME, f"who,small\n{rows}".encode())
    (tmp_path / NAME).write_bytes(text)
    return tmp_path


def test_a_full_memory_is_no_damaged_source(sealed: Path) -> None:
    assert ended(sealed, "200k") == ["source-too-large"] * 2  # it cannot be laid open
    assert ended(sealed, "1m") == ["done", "source-too-large"]  # nor be made into a table
    assert ended(sealed, "64m") == ["done", "done"]


def test_a_damaged_source_is_none_of_a_full_memory(sealed: Path) -> None:
    path = sealed / NAME
    text = path.read_bytes()
    path.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    assert ended(sealed, "64m") == ["source-unreadable"] * 2


def test_a_file_whose_rows_have_no_end_leaves_space(tmp_path: Path) -> None:
    """The vault's own records are on the same disk."""
    assert ended(tmp_path, "64m", "endless") == ["full", "True"]
