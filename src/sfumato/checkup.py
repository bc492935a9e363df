"""What `sfumato doctor` looks at: each part is started for real, in a place of its own."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from sfumato.clock import SystemClock
from sfumato.core.ports import EngineStopped
from sfumato.core.refusal import Bug, Refused
from sfumato.dice import SystemDice
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.stores.sqlite import create_ledger
from sfumato.vault_engine import NAMES

if TYPE_CHECKING:
    from sfumato.app import House


def checkup(folder: str | None) -> list[tuple[str, bool, str]]:
    """Return what is there and what is missing: name, whether it is well, and what to do."""
    return [
        _check_python(),
        _check_engine(),
        _check_sqlite(),
        _check_sandbox(),
        *_check_extras(),
        *(_check_vault(Path(folder)) if folder else []),
    ]


def _check_python() -> tuple[str, bool, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    return "python", sys.version_info >= (3, 11), version


def _check_engine() -> tuple[str, bool, str]:
    engine = DuckDBEngine(salt=bytes(32))
    open_doors = engine.self_test()
    engine.close()
    if open_doors:
        return "engine", False, f"DuckDB let a probe through ({open_doors[0]}); do not use it"
    return "engine", True, "DuckDB answers in a process of its own, and every probe was blocked"


def _check_sqlite() -> tuple[str, bool, str]:
    """Make a ledger and open it: that refuses an old SQLite and settings that lose entries."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            create_ledger(Path(folder) / "ledger.sqlite", SystemClock(), SystemDice()).close()
        except (Refused, Bug) as wrong:
            return "ledger", False, str(wrong)
    version = apsw.sqlite_lib_version()
    return "ledger", True, f"SQLite {version} keeps what it has acknowledged (WAL, FULL)"


def _check_sandbox() -> tuple[str, bool, str]:
    found = shutil.which("bwrap")
    if found is None:
        return "sandbox", True, "no bubblewrap; only pipelines (part 7) will need it: make system"
    return "sandbox", True, f"bubblewrap is at {found}; pipelines come with part 7"


def _check_extras() -> list[tuple[str, bool, str]]:
    wanted = {"pandas": "frames", "polars": "frames", "pyarrow": "frames"}
    wanted |= {"psycopg": "postgres", "pyspark": "spark"}
    absent = [name for name in wanted if importlib.util.find_spec(name) is None]
    if not absent:
        return [("extras", True, "pandas, polars, pyarrow, psycopg and pyspark are installed")]
    extra = wanted[absent[0]]
    return [("extras", True, f'{absent[0]} is not here; pip install "sfumato[{extra}]" brings it')]


def _check_vault(folder: Path) -> list[tuple[str, bool, str]]:
    from sfumato.app import open_house

    try:
        house = open_house(folder)
    except Refused as refused:
        return [("vault", False, f"{refused.cause} {refused.next_step}")]
    try:
        house.ledger.check_history()
        return [("vault", True, "its ledger agrees with its anchor"), _check_its_engine(house)]
    except Refused as refused:
        return [("vault", False, f"{refused.cause} {refused.next_step}")]
    finally:
        house.close()


def _check_its_engine(house: House) -> tuple[str, bool, str]:
    """Start the vault's own engine, and try what it would let through."""
    name = NAMES[house.engine_kind]
    try:
        found = house.engine.self_test()
    except EngineStopped:
        return "its engine", False, f"{name} does not answer; questions would fail, and be charged"
    if found:
        return "its engine", False, f"{name} would let through: {', '.join(found)}"
    return "its engine", True, f"{name} answers, and lets nothing through but answers"
