"""Open a vault's stores: files of its folder, or PostgreSQL."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.airlock.release import AirlockPorts
from sfumato.features.airlock.service import Airlock
from sfumato.features.airlock.store import FileAirlock, SqlAirlock
from sfumato.features.pipelines.image_request_service import ImageRequests
from sfumato.features.pipelines.image_request_store import SqlImageRequests
from sfumato.features.pipelines.release import PipelinePorts
from sfumato.features.pipelines.review_service import ProgramReviews
from sfumato.features.pipelines.review_store import SqlReviews
from sfumato.features.pipelines.rule_service import PipelineRules
from sfumato.features.pipelines.rule_store import SqlPipelineRules
from sfumato.features.pipelines.service import Pipelines
from sfumato.features.pipelines.store import SqlPipelines
from sfumato.features.pipelines.trial_limits import TrialLimits
from sfumato.features.surveys.ballot_key_store import FileBallotKeys
from sfumato.features.surveys.service import Surveys
from sfumato.features.surveys.store import SqlSurveys
from sfumato.release.ledger_guard import Ledger
from sfumato.sandbox.environment_store import Environments
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey, read_secret
from sfumato.storage.records_database import Records
from sfumato.storage.run_folders import FileDrafts
from sfumato.storage.sqlite_ledger import open_forgetful_records, open_ledger, open_records
from sfumato.system.clock import SystemClock
from sfumato.system.optional_packages import need_package
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.encryption_at_rest import AtRest
from sfumato.vault.ports import Catalogue, LedgerStore

CATALOGUE: Final = "catalogue.sqlite"
SURVEYS: Final = "surveys.sqlite"


def ledger_of(root: Path, settings: Mapping[str, object], rest: AtRest | None) -> Ledger:
    """Open a vault's ledger with its signing key and its anchor, which detects a rollback."""
    store = _ledger_store(root, settings.get("ledger"))
    signer = ReceiptKey(read_secret(root / "keys" / "receipts", rest))
    anchor = FileAnchor(Path(str(settings["anchor"])))
    store.mark_with(anchor.advance)
    ledger = Ledger(store, anchor, signer)
    anchor.check_with(ledger.has)
    # check now, so that a rolled-back ledger freezes before its first use
    if ledger.history_fault() is None:
        ledger.keep_sums()
    return ledger


def _ledger_store(root: Path, url: object) -> LedgerStore:
    """Open the ledger's database: an SQLite file of the vault, or PostgreSQL."""
    if url is None:
        return open_ledger(root / "ledger.sqlite", SystemClock())
    opened: LedgerStore = postgres_store().open_ledger(str(url), SystemClock())
    return opened


def check_catalogue(root: Path, url: object) -> None:
    """Refuse a vault whose catalogue file is missing; an empty one is never created."""
    if url is None and not (root / CATALOGUE).is_file():
        raise Refused(
            "vault-missing",
            "The vault's catalogue is missing.",
            "Restore catalogue.sqlite from its newest backup.",
        )


def records_of(root: Path, url: object) -> Records:
    """Open the database of users, jobs and catalogue: a vault file, or the ledger's database."""
    if url is None:
        return open_records(root / CATALOGUE)
    opened: Records = postgres_store().open_records(str(url))
    return opened


def postgres_store() -> ModuleType:
    """Import the PostgreSQL storage module; refuse if the `postgres` extra is not installed."""
    need_package("psycopg", "postgres")
    return importlib.import_module("sfumato.storage.postgres_ledger")


def surveys_of(
    root: Path, url: object, ledger: Ledger, salt: bytes, rest: AtRest | None
) -> Surveys:
    """Return the service of surveys with local differential privacy.

    The store does not keep the order in which reports arrived.
    """
    dice = SystemRandomSource()
    records = records_of(root, url) if url else open_forgetful_records(root / SURVEYS)
    keys = FileBallotKeys(root / "keys" / "ballots", dice, rest)
    return Surveys(ledger, SqlSurveys(records, dice), keys, SystemClock(), dice, salt)


def pipelines_of(
    records: Records,
    door: PipelinePorts,
    catalogue: Catalogue,
    brought: Environments,
    timing: str,
) -> Pipelines:
    """Return the service that runs submitted programs, with the rules that approve some of them."""
    clock, dice = SystemClock(), SystemRandomSource()
    rules = PipelineRules(door.ledger, SqlPipelineRules(records), clock, dice)
    reviews = ProgramReviews(SqlReviews(records), clock, brought.find)
    store = SqlPipelines(records)
    names, asked = brought.names, SqlImageRequests(records)
    images = ImageRequests(asked, clock, dice, names, brought.registries)
    trials = TrialLimits(clock)
    return Pipelines(
        door, store, catalogue, clock, dice, rules, names, reviews, images, trials, timing
    )


def runs_of(root: Path) -> FileDrafts:
    """Return the store of temporary folders for program runs; delete those of killed runs."""
    runs = FileDrafts(root / "runs")
    runs.sweep()
    return runs


def airlock_of(
    root: Path, records: Records, pipelines: Pipelines, catalogue: Catalogue, rest: AtRest | None
) -> Airlock:
    """Return the airlock service (output checking); delete drafts that killed runs left."""
    clock, dice = SystemClock(), SystemRandomSource()
    files = FileAirlock(root / "airlock", dice, rest)
    ports = AirlockPorts(pipelines.door, files)
    about = pipelines.reviews.about
    made = Airlock(ports, SqlAirlock(records), catalogue, clock, dice, about)
    made.sweep()
    return made


@cache
def code_digest() -> str:
    """Return the SHA-256 (hex) of the package's Python files, to record which code answered."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name, text = str(path.relative_to(root)).encode(), path.read_bytes()
        found.update(b"%d %s %d\n%s" % (len(name), name, len(text), text))
    return found.hexdigest()


def default_anchor(ledger: str) -> Path:
    """Return the default path of an anchor: outside the vault, in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sfumato" / "anchors" / f"{ledger}.anchor"
