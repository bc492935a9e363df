"""The only place that builds concrete things and holds credentials."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sfumato.checkup import checkup
from sfumato.client import Vault, case, col
from sfumato.clock import SystemClock
from sfumato.core.card import Card, read_card
from sfumato.core.refusal import Refused
from sfumato.dice import SystemDice
from sfumato.door import Door, Ledger, NoisePool
from sfumato.faces.local import LocalTransport
from sfumato.services.data_sets import DataSets, Source, card_shape
from sfumato.services.queries import Queries
from sfumato.stores.anchor import FileAnchor
from sfumato.stores.catalogue import SQLiteCatalogue
from sfumato.stores.keys import ReceiptKey, make_secret, read_secret
from sfumato.stores.sqlite import create_ledger, open_ledger
from sfumato.vault_engine import choose_engine, open_engine

if TYPE_CHECKING:
    from sfumato.core.ports import Engine, LedgerStore

__all__ = ["House", "OpenVault", "case", "col", "create", "main", "open", "open_house"]

FORMAT = 1
OWNER = "owner"


@dataclass(frozen=True)
class House:
    """One open vault: its services, ready to be given a face."""

    folder: Path
    ledger: Ledger
    engine: Engine
    engine_kind: str
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
        self._user = user

    def add(  # noqa: PLR0913  # an owner's words
        self,
        name: str,
        source: str | os.PathLike[str],
        card: Mapping[str, object],
        *,
        inner_table: str | None = None,
        different_people: str | None = None,
        tables: Mapping[str, str | os.PathLike[str]] | None = None,
    ) -> Card:
        """Add a data set, or a new version of one; the owner's act.

        `tables` names the files of the card's other tables, if it has any.
        """
        files = {name: os.fspath(path) for name, path in (tables or {}).items()}
        where = Source(os.fspath(source), inner_table, different_people, files)
        return self.owner.data_sets.add(name, where, card)

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group that cards let ask."""
        self.owner.data_sets.enrol(user, group)

    @property
    def owner(self) -> House:
        """Return what only an owner may touch, or refuse."""
        if self._user != OWNER:
            raise Refused(
                "not-allowed", f"{self._user!r} is not the owner.", "Ask the owner to do it."
            )
        return self.house

    def close(self) -> None:
        """Let go of processes and files."""
        self.house.close()

    def __enter__(self) -> OpenVault:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def create(
    folder: str | os.PathLike[str],
    *,
    anchor: str | os.PathLike[str] | None = None,
    ledger: str | None = None,
    engine: str | None = None,
    engine_reader: str | None = None,
) -> None:
    """Make a new vault in an empty or absent folder; its anchor lies outside it.

    `ledger` is the URL of a PostgreSQL database that keeps the ledger instead of a file. `engine`
    is the address of a PostgreSQL or a Spark that is asked instead of DuckDB: `postgresql://...`,
    `spark://:SECRET@HOST:PORT` or `local[2]`. `engine_reader` is the address by which a PostgreSQL
    is asked, if its role is there already; otherwise one is made.
    """
    root = Path(folder).absolute()
    if anchor is not None and Path(anchor).exists():
        raise Refused(
            "vault-exists", f"{anchor} is another ledger's anchor.", "Choose a new place for it."
        )
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise Refused(
            "vault-exists", f"The folder {root} is not empty.", "Choose a new folder for the vault."
        )
    dice = SystemDice()
    chosen = choose_engine(engine, engine_reader, dice)
    for place in (root, *(root / part for part in ("keys", "tables", "people", "spill"))):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    chosen.keep(root)
    make_secret(root / "keys" / "salt", dice)
    make_secret(root / "keys" / "receipts", dice)
    store = _make_store(root, ledger, dice)
    where = Path(anchor).absolute() if anchor else default_anchor(store.head().ledger)
    SQLiteCatalogue(root / "catalogue.sqlite", _read_stored_card).close()
    settings = {"format": FORMAT, "anchor": str(where), "ledger": ledger, "engine": chosen.kind}
    _write(root / "vault.json", json.dumps(settings) + "\n")
    key = ReceiptKey(read_secret(root / "keys" / "receipts"))
    Ledger(store, FileAnchor(where), key).note("vault-created", {"format": FORMAT})
    store.close()


def _make_store(root: Path, url: str | None, dice: SystemDice) -> LedgerStore:
    if url is None:
        return create_ledger(root / "ledger.sqlite", SystemClock(), dice)
    made: LedgerStore = _postgres().create_ledger(url, SystemClock(), dice)
    return made


def _open_store(root: Path, url: object) -> LedgerStore:
    if url is None:
        return open_ledger(root / "ledger.sqlite", SystemClock())
    opened: LedgerStore = _postgres().open_ledger(str(url), SystemClock())
    return opened


def _postgres() -> ModuleType:
    """Return the PostgreSQL store, or refuse: it is an extra of the package."""
    try:
        return importlib.import_module("sfumato.stores.postgres")
    except ImportError:
        pass
    raise Refused(
        "not-installed", "psycopg is not installed.", 'pip install "sfumato[postgres]" brings it.'
    )


def open(  # noqa: A001  # `sfumato.open` reads as it should
    folder: str | os.PathLike[str], *, user: str = OWNER
) -> OpenVault:
    """Return the vault in the folder, open in this process for that user."""
    return OpenVault(open_house(Path(folder)), user)


def open_house(folder: Path) -> House:
    """Return the vault's services; a ledger that its anchor contradicts is frozen first."""
    root = folder.absolute()
    settings = _settings(root)
    store = _open_store(root, settings.get("ledger"))
    signer = ReceiptKey(read_secret(root / "keys" / "receipts"))
    ledger = Ledger(store, FileAnchor(Path(str(settings["anchor"]))), signer)
    if not (root / "catalogue.sqlite").is_file():
        raise Refused(
            "vault-missing",
            "The vault's catalogue is missing.",
            "Restore catalogue.sqlite from its newest backup.",
        )
    salt, dice = read_secret(root / "keys" / "salt"), SystemDice()
    kind = str(settings.get("engine", "duckdb"))
    engine = open_engine(kind, root, salt)
    catalogue = SQLiteCatalogue(root / "catalogue.sqlite", _read_stored_card)
    return House(
        folder=root,
        ledger=ledger,
        engine=engine,
        engine_kind=kind,
        catalogue=catalogue,
        data_sets=DataSets(ledger, engine, catalogue, dice, salt, root),
        queries=Queries(Door(ledger, engine, NoisePool(dice)), catalogue, dice),
    )


def default_anchor(ledger: str) -> Path:
    """Return where an anchor lies unless said otherwise: outside the vault, in the user's state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "sfumato" / "anchors" / f"{ledger}.anchor"


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
    try:
        settings = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:
        settings = {}
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
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
