"""The only place that builds concrete things and holds credentials."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.client import Vault
from sfumato.core.card import Card, read_card
from sfumato.core.refusal import Refused
from sfumato.dice import SystemDice
from sfumato.door import Door, Ledger, NoisePool
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.faces.local import LocalTransport
from sfumato.services.data_sets import DataSets, Source, card_shape
from sfumato.services.queries import Queries
from sfumato.stores.anchor import FileAnchor
from sfumato.stores.catalogue import SQLiteCatalogue
from sfumato.stores.keys import ReceiptKey, make_secret, read_secret
from sfumato.stores.sqlite import create_ledger, open_ledger

if TYPE_CHECKING:
    from sfumato.core.ports import LedgerStore

FORMAT = 1
OWNER = "owner"


class SystemClock:
    """The time of day of this machine."""

    def now(self) -> str:
        """Return the time as ISO 8601 in UTC."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class House:
    """One open vault: its services, ready to be given a face."""

    folder: Path
    ledger: Ledger
    engine: DuckDBEngine
    catalogue: SQLiteCatalogue
    data_sets: DataSets
    queries: Queries

    def close(self) -> None:
        """Let go of processes and files."""
        self.engine.close()
        self.ledger.store.close()
        self.catalogue.close()


class OpenVault(Vault):
    """A vault in a folder, open in this process, for one user; what an owner does is here too."""

    def __init__(self, house: House, user: str) -> None:
        super().__init__(LocalTransport(house.queries, user))
        self.house = house

    def add(
        self,
        name: str,
        source: str | os.PathLike[str],
        card: Mapping[str, object],
        *,
        inner_table: str | None = None,
        different_people: str | None = None,
    ) -> Card:
        """Add a data set, or a new version of one; the owner's act."""
        where = Source(os.fspath(source), inner_table, different_people)
        return self.house.data_sets.add(name, where, card)

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group that cards let ask."""
        self.house.data_sets.enrol(user, group)

    def close(self) -> None:
        """Let go of processes and files."""
        self.house.close()

    def __enter__(self) -> OpenVault:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def create(folder: str | os.PathLike[str], *, anchor: str | os.PathLike[str] | None = None) -> None:
    """Make a new vault in an empty or absent folder; its anchor lies outside it."""
    root = Path(folder).absolute()
    if root.exists() and any(root.iterdir()):
        raise Refused(
            "vault-exists", f"The folder {root} is not empty.", "Choose a new folder for the vault."
        )
    for place in (root, *(root / part for part in ("keys", "tables", "people", "spill"))):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    dice = SystemDice()
    make_secret(root / "keys" / "salt", dice)
    make_secret(root / "keys" / "receipts", dice)
    store = create_ledger(root / "ledger.sqlite", SystemClock(), dice)
    where = Path(anchor).absolute() if anchor else default_anchor(store.head().ledger)
    _write(root / "vault.json", json.dumps({"format": FORMAT, "anchor": str(where)}) + "\n")
    ledger = Ledger(store, FileAnchor(where), ReceiptKey(read_secret(root / "keys" / "receipts")))
    ledger.note("vault-created", {"format": FORMAT})
    store.close()


def open(  # noqa: A001  # `sfumato.open` reads as it should
    folder: str | os.PathLike[str], *, user: str = OWNER
) -> OpenVault:
    """Return the vault in the folder, open in this process for that user."""
    return OpenVault(open_house(Path(folder)), user)


def open_house(folder: Path) -> House:
    """Return the vault's services; a ledger that its anchor contradicts is frozen first."""
    root = folder.absolute()
    settings = _settings(root)
    store: LedgerStore = open_ledger(root / "ledger.sqlite", SystemClock())
    signer = ReceiptKey(read_secret(root / "keys" / "receipts"))
    ledger = Ledger(store, FileAnchor(Path(str(settings["anchor"]))), signer)
    ledger.check_history()
    salt, dice = read_secret(root / "keys" / "salt"), SystemDice()
    engine = DuckDBEngine(salt=salt)
    catalogue = SQLiteCatalogue(root / "catalogue.sqlite", _read_stored_card)
    return House(
        folder=root,
        ledger=ledger,
        engine=engine,
        catalogue=catalogue,
        data_sets=DataSets(ledger, engine, catalogue, dice, salt, root),
        queries=Queries(Door(ledger, engine, NoisePool(dice)), catalogue, dice),
    )


def default_anchor(ledger: str) -> Path:
    """Return where an anchor lies unless said otherwise: outside the vault, in the user's state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sfumato" / "anchors" / f"{ledger}.anchor"


def checkup(folder: str | None) -> list[tuple[str, bool, str]]:
    """Return what is there and what is missing: name, whether it is well, and what to do."""
    return [
        _check_python(),
        _check_engine(),
        _check_sqlite(),
        _check_sandbox(),
        *_check_extras(),
        *([_check_vault(Path(folder))] if folder else []),
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
    import apsw

    return "ledger", True, f"SQLite {apsw.sqlite_lib_version()}, WAL, synchronous=FULL"


def _check_sandbox() -> tuple[str, bool, str]:
    found = shutil.which("bwrap")
    if found is None:
        return "sandbox", True, "no bubblewrap; only pipelines (part 7) will need it: make system"
    return "sandbox", True, f"bubblewrap is at {found}; pipelines come with part 7"


def _check_extras() -> list[tuple[str, bool, str]]:
    wanted = {"pandas": "frames", "polars": "frames", "pyarrow": "frames", "psycopg": "postgres"}
    absent = [name for name in wanted if importlib.util.find_spec(name) is None]
    if not absent:
        return [("extras", True, "pandas, polars, pyarrow and psycopg are installed")]
    extra = wanted[absent[0]]
    return [("extras", True, f'{absent[0]} is not here; pip install "sfumato[{extra}]" brings it')]


def _check_vault(folder: Path) -> tuple[str, bool, str]:
    try:
        house = open_house(folder)
    except Refused as refused:
        return "vault", False, f"{refused.cause} {refused.next_step}"
    frozen = house.ledger.store.frozen()
    house.close()
    if frozen is not None:
        return "vault", False, f"the ledger is frozen: {frozen}; see docs/codes/ledger-frozen.md"
    return "vault", True, "its ledger agrees with its anchor"


def main() -> int:
    """Run the command line."""
    from sfumato.faces.cli import run

    return run(sys.argv[1:], CommandLine())


class CommandLine:
    """What the command line is given: it builds nothing itself."""

    create = staticmethod(create)
    open = staticmethod(open)
    checkup = staticmethod(checkup)


def _settings(root: Path) -> dict[str, object]:
    path = root / "vault.json"
    settings = json.loads(path.read_text()) if path.is_file() else {}
    if settings.get("format") != FORMAT:
        raise Refused(
            "vault-missing",
            f"There is no vault in {root}.",
            "Make one with `sfumato init DIR`, or name it with --vault DIR or SFUMATO_VAULT.",
        )
    return dict(settings)


def _read_stored_card(name: str, text: str) -> Card:
    return read_card(name, card_shape(text))


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
