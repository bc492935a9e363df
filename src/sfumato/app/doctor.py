"""`sfumato doctor`: check what is installed, and start engine, ledger and sandbox as a test."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from sfumato.app.engine import NAMES
from sfumato.app.settings import settings_of
from sfumato.dp.refusal import Bug, Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.sandbox.availability_report import held_in_words, why_not
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import Runtime, program, read_runtime
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import SandboxLimits, SandboxStopped
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import SandboxProcessEnded
from sfumato.sandbox.squashfs import can_unfold
from sfumato.storage.sqlite_ledger import create_ledger
from sfumato.system.clock import SystemClock
from sfumato.system.optional_packages import (
    CHECKOUT,
    EXTRAS,
    absent_packages,
    is_checkout,
    make,
    make_of,
    pip_of,
)
from sfumato.system.randomness import SystemRandomSource
from sfumato.system.temporary_folders import temporary_folder
from sfumato.vault.engine_port import EngineStopped

if TYPE_CHECKING:
    from sfumato.app.vault import VaultServices


class Finding(NamedTuple):
    """The result of one doctor check: if it passed, what was found, what to install."""

    name: str
    is_well: bool
    says: str
    get: str | None = None


FOR: Final[Mapping[str, str]] = {
    "serve": "serving a vault and its console over HTTP",
    "databases": "rows from MySQL, MariaDB and other databases",
    "files": "rows from Excel, OpenDocument, Arrow, SPSS, Stata, SAS and .zst files",
    "frames": "answers as pandas, polars or arrow, and programs on pandas frames",
    "plot": "pictures of answers as .svg and .png files",
    "lab": "attacks and audits (the lab's pages also need serve)",
    "postgres": "vaults and ledgers on PostgreSQL, and rows from PostgreSQL",
    "spark": "vaults on Spark",
    "federated": "remote tensors, and training at several sites",
}


FLEET: Final = "flower"
# system packages, by their Debian and Ubuntu names
PACKAGES: Final[Mapping[str, str]] = {
    "sandbox": "bubblewrap",
    "images": "squashfs-tools-ng",
    "spark": "default-jre-headless",
}


def checkup(folder: str | None) -> list[tuple[str, bool, str, str | None]]:
    """Run all doctor checks; return each one's name, success, finding and install command."""
    found = [
        _check_python(),
        _check_engine(),
        _check_sqlite(),
        _check_anchors(),
        _check_sandbox(folder),
        _check_environments(),
        *map(_check_extra, EXTRAS),
        _check_flower(),
        *(_check_vault(Path(folder)) if folder else []),
    ]
    return [*found, *_all_at_once(found)]


def _all_at_once(found: Sequence[Finding]) -> list[Finding]:
    """Return a finding with the command that installs all that is missing, except Flower.

    If nothing is missing, the list is empty.
    """
    wanted = [one.name for one in found if one.get is not None and one.name != FLEET]
    if not wanted:
        return []
    says = (
        f"not installed: {', '.join(wanted)}. Each is needed only for the purpose "
        "above. This installs all of them"
    )
    extras = [name for name in wanted if name in EXTRAS and name != "federated"]
    packages = [PACKAGES[name] for name in wanted if name in PACKAGES]
    if is_checkout():
        return [Finding("all of it", True, says, f"{make()} .venv/torch.done system")]
    commands = [pip_of(*extras)] if extras else []
    commands += [f"sudo apt-get install {' '.join(packages)}"] if packages else []
    commands += [pip_of("federated")] if "federated" in wanted else []
    return [Finding("all of it", True, says, " && ".join(commands))]


def _bringing(extra: str) -> str:
    """Return the command that installs an optional extra of the package, such as `plot`.

    In a checkout, the command installs into the checkout's own environment.
    """
    return make_of(extra) if is_checkout() else pip_of(extra)


def _check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version)


def _check_anchors() -> Finding:
    """Check that the default folder of anchors, which detect ledger rollbacks, is writable."""
    from sfumato.app.stores import default_anchor

    place = default_anchor("of-no-ledger").parent
    there = next(p for p in (place, *place.parents) if p.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return Finding("anchors", True, f"the anchors of new vaults are in {place}")
    says = f"sfumato cannot write {place}; give `sfumato init` an --anchor outside the vault"
    return Finding("anchors", False, says)


def _check_engine() -> Finding:
    engine = DuckDBEngine(salt=bytes(32))
    try:
        open_doors = engine.self_test()
    except EngineStopped:
        return Finding(
            "engine", False, "DuckDB did not answer in time, or its process was stopped; try again"
        )
    finally:
        engine.close()
    if open_doors:
        return Finding(
            "engine", False, f"DuckDB allowed a forbidden action ({open_doors[0]}); do not use it"
        )
    return Finding(
        "engine", True, "DuckDB answers in a separate process, and blocks every forbidden action"
    )


def _check_sqlite() -> Finding:
    """Create a temporary ledger; this fails with an old SQLite, or settings that lose entries."""
    with temporary_folder() as folder:
        try:
            create_ledger(folder / "ledger.sqlite", SystemClock(), SystemRandomSource()).close()
        except (Refused, Bug) as wrong:
            return Finding("ledger", False, str(wrong))
    version = apsw.sqlite_lib_version()
    return Finding("ledger", True, f"SQLite {version} keeps every acknowledged entry (WAL, FULL)")


def _check_environments() -> Finding:
    """Count the package environments for submitted programs, and say what prevents adding more."""
    kept = Environments()
    try:
        says = f"{len(kept.all())} environments of programs, in {kept.root}"
    except (Refused, OSError):
        return Finding(
            "environments", False, "the folder of environments belongs to another user; remove it"
        )
    if find_spec("pip") is None:
        says += "; this Python has no pip, which adding a lock file needs: python -m ensurepip"
    if not can_unfold():
        says += f"; adding a SIF image needs a package: sudo apt-get install {PACKAGES['images']}"
    return Finding("environments", True, says)


def _check_sandbox(folder: str | None) -> Finding:
    """Start a sandbox for submitted programs, with the runtime of the vault if a folder is given.

    Without a sandbox, submitted programs are refused.
    """
    try:
        runtime = read_runtime(_settings(folder).get("sandbox"))
    except Refused as refused:
        return Finding("sandbox", False, f"{refused.cause} {refused.next_step}")
    if shutil.which(program(runtime)) is None:
        if runtime != Runtime():
            return Finding("sandbox", False, why_not(runtime))
        says = "bubblewrap is not installed, so submitted programs are refused"
        return Finding("sandbox", True, says, f"sudo apt-get install {PACKAGES['sandbox']}")
    sandbox = SandboxPool(environment, SystemRandomSource(), runtime=runtime)
    try:
        sandbox.check(SandboxLimits())
        return Finding("sandbox", True, held_in_words(runtime, sandbox.group_home()))
    except (SandboxStopped, SandboxProcessEnded, Refused, OSError):
        return Finding("sandbox", False, why_not(runtime))
    finally:
        sandbox.close()


def _settings(folder: str | None) -> Mapping[str, object]:
    """Return a vault's settings, or {} without a readable vault, which another check reports."""
    try:
        return settings_of(Path(folder)) if folder else {}
    except Refused:
        return {}


def _check_extra(extra: str) -> Finding:
    """Report whether an optional extra of the package is fully installed, and what it is for."""
    missing, what = absent_packages(extra), FOR[extra]
    if missing:
        return Finding(
            extra, True, f"{', '.join(missing)} not installed; needed for {what}", _bringing(extra)
        )
    if extra == "spark" and shutil.which("java") is None:
        says = f"pyspark is installed, but Java is not; needed for {what}"
        return Finding(extra, True, says, f"sudo apt-get install {PACKAGES[extra]}")
    return Finding(extra, True, what)


def _check_flower() -> Finding:
    """Report whether Flower (federated learning) is installed; `_all_at_once` leaves it out."""
    says = "sfumato's clipping, noise and secure aggregation in fleets that run Flower"
    if find_spec("flwr") is not None:
        return Finding(FLEET, True, says)
    return Finding(
        FLEET,
        True,
        f"flwr not installed; needed for {says}; install it in a separate environment",
        fleet(),
    )


def fleet() -> str:
    """Return the command that installs Flower into a virtual environment of its own.

    Flower's version pins clash with those of `serve`. See docs/how-to/flower.md. A checkout is
    installed by its path, since an index may lack this package or have another one of its name.
    """
    what = f"{CHECKOUT if is_checkout() else 'sfumato'}[flower]"
    return f"python3 -m venv fleet && fleet/bin/pip install {shlex.quote(what)}"


def _check_vault(folder: Path) -> list[Finding]:
    from sfumato.app.vault import open_services

    try:
        house = open_services(folder)
    except Refused as refused:
        return [Finding("vault", False, f"{refused.cause} {refused.next_step}")]
    try:
        house.ledger.check_history()
        return [
            Finding("vault", True, "its ledger agrees with its anchor"),
            _check_its_engine(house),
        ]
    except Refused as refused:
        return [Finding("vault", False, f"{refused.cause} {refused.next_step}")]
    finally:
        house.close()


def _check_its_engine(house: VaultServices) -> Finding:
    """Test that the vault's database engine answers, and that it blocks all forbidden actions."""
    name = NAMES[house.engine_kind]
    try:
        found = house.engine.self_test()
    except EngineStopped:
        return Finding(
            "its engine",
            False,
            f"{name} does not answer; questions would fail after they are charged",
        )
    if found:
        return Finding("its engine", False, f"{name} allows forbidden actions: {', '.join(found)}")
    return Finding("its engine", True, f"{name} answers, and blocks every forbidden action")
