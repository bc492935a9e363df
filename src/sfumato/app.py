"""The only place that builds concrete things and holds credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.client import Vault, case, col, remote
from sfumato.client.asynchronous import AsyncVault
from sfumato.client.builder import Builder
from sfumato.client.card_file import CardOrFile, card_of
from sfumato.client.frames import Rows, is_frame, writer_of
from sfumato.client.owning import Added
from sfumato.client.shown import AddReport
from sfumato.client.surveys import LocalSurvey
from sfumato.client.terms import Number
from sfumato.clock import SystemClock
from sfumato.convening import federation, site_of
from sfumato.core.card import Card, read_card
from sfumato.core.question import question_json
from sfumato.core.refusal import Refused
from sfumato.dice import StretchedDice, SystemDice
from sfumato.door import Door, Ledger, NoisePool, PipelineDoor, StreamDoor
from sfumato.engines.duckdb import SALT_BYTES, DuckDBEngine
from sfumato.engines.postgres_tables import PostgresTables
from sfumato.engines.spark import SparkEngine
from sfumato.faces.connection_desk import described, proposal, taken
from sfumato.faces.desk import Desk
from sfumato.faces.local import LocalTransport
from sfumato.federated.rooms import RoomLimits
from sfumato.sandbox import Bubblewrap, Environments, environment, read_runtime
from sfumato.services.access import ACTIONS, OWNER, Access, Admission, Caller
from sfumato.services.anonymity import Anonymity, HandingOut, Recoding
from sfumato.services.audit import Audit
from sfumato.services.connections import set_up
from sfumato.services.data_sets import DataSets, Source, card_shape
from sfumato.services.health import Readiness
from sfumato.services.jobs import Jobs
from sfumato.services.pipelines import Unsplit
from sfumato.services.policy import Caps, Confirmations, Policy
from sfumato.services.queries import Queries
from sfumato.services.streams import Opening, Streams
from sfumato.services.twins import PrivateTwins, Twins
from sfumato.services.uploads import MOST, Uploads
from sfumato.settings import FORMAT, settings_of, write_settings
from sfumato.stores.access import SqlAccess
from sfumato.stores.anchor import FileAnchor
from sfumato.stores.approvals import SqlApprovals
from sfumato.stores.catalogue import SqlCatalogue
from sfumato.stores.confirmations import SqlConfirmations
from sfumato.stores.jobs import SqlJobs
from sfumato.stores.keys import ReceiptKey, make_secret, read_secret
from sfumato.stores.passwords import Argon2Passwords
from sfumato.stores.sqlite import create_ledger
from sfumato.stores.streams import FileStreams
from sfumato.temporary import sweep
from sfumato.vault_engine import NAMES, choose_engine, open_engine
from sfumato.vault_rest import SETTING, check_sealable, new_rest, sealing_of
from sfumato.vault_stores import (
    airlock_of,
    check_catalogue,
    code_digest,
    default_anchor,
    ledger_of,
    pipelines_of,
    postgres_store,
    records_of,
    runs_of,
    surveys_of,
)
from sfumato.wire import read_connection

if TYPE_CHECKING:
    from sfumato.core.ports import Engine, LedgerStore

__all__ = [
    "House",
    "OpenVault",
    "anonymity",
    "case",
    "col",
    "connect",
    "connect_async",
    "create",
    "federation",
    "local_survey",
    "open",
    "open_house",
]


@dataclass(frozen=True)
class House:
    """One open vault: its services, ready to be given a face."""

    folder: Path
    ledger: Ledger
    engine: Engine
    engine_kind: str
    catalogue: SqlCatalogue
    environments: Environments
    desk: Desk

    @property
    def data_sets(self) -> DataSets:
        """Return the owner's service."""
        return self.desk.data_sets

    @property
    def queries(self) -> Queries:
        """Return the query service."""
        return self.desk.queries

    def close(self) -> None:
        """Let go of processes and files."""
        self.engine.close()
        self.desk.pipelines.door.sandbox.close()
        self.ledger.store.close()
        self.catalogue.close()
        self.desk.surveys.store.shut()


class OpenVault(Vault):
    """A vault in a folder, open in this process, for one user; what an owner does is here too."""

    def __init__(self, house: House, user: str) -> None:
        actions = frozenset(ACTIONS) if user == OWNER else frozenset({"read", "ask"})
        self._caller = Caller(user, actions)
        super().__init__(LocalTransport(house.desk, self._caller))
        self.house = house
        self._user = user

    def add(  # noqa: PLR0913  # an owner's words
        self,
        name: str,
        source: Rows,
        card: CardOrFile,
        *,
        inner_table: str | None = None,
        different_people: str | None = None,
        tables: Mapping[str, Rows] | None = None,
        accept_unreadable: Sequence[str] = (),
    ) -> Added:
        """Add a data set, or a new version of one; the owner's act.

        The source is a file, or a frame of pandas, polars or pyarrow. The card is a table, or the
        TOML file that it stands in. A table of a connection is
        `connection:NAME/SCHEMA.TABLE`. `tables` names the sources of
        the card's other tables, if it has any. `accept_unreadable` names columns of which more than
        5 % of the cells may be unreadable; they count as empty.
        """
        shape, given = card_of(card), {"": source, **(tables or {})}
        named = {name: writer_of(rows) if is_frame(rows) else rows for name, rows in given.items()}
        with taken(self.owner.desk, self._caller, named) as files:
            where = Source(
                files.pop(""),
                inner_table,
                different_people,
                files,
                tuple(accept_unreadable),
                is_plain=any(
                    callable(one) or read_connection(os.fspath(one)) is not None
                    for one in named.values()
                ),
            )
            made = self.owner.data_sets.add(name, where, shape)
        return Added(made.name, made.version, made.people, self.add_report(made.name))

    def add_report(self, name: str) -> AddReport:
        """Return how the rows of your data set were read when they were added; for you alone."""
        return AddReport(self.call("add-report", {"data_set": name}))

    def open_stream(  # noqa: PLR0913  # an owner's words
        self,
        data_set: str,
        name: str,
        question: str | Builder,
        *,
        start: str,
        periods: int,
        rows: int,
        epsilon: Number,
    ) -> dict[str, object]:
        """Open a running count that goes on while days come in; all of it is paid now.

        `rows` is how many rows of a person count over all `periods` together.
        """
        sql, shape = (question, None) if isinstance(question, str) else (None, question)
        asked = None if shape is None else question_json(shape.question())
        opening = Opening(data_set, name, start, periods, rows, epsilon, sql, asked)
        return self.owner.desk.streams.open(self._caller, opening)

    def close_days(self, data_set: str, name: str, *, until: str) -> dict[str, object]:
        """Close a stream's open periods up to that day, in order; a period is closed for good."""
        return self.owner.desk.streams.close(self._caller, data_set, name, until)

    def describe(
        self, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> list[tuple[str, str]]:
        """Return the names and likely types of a source's columns, for a proposed card."""
        found = described(self.owner.desk, self._caller, os.fspath(source), inner_table)
        return list(found.columns)

    def proposed(
        self, name: str, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> dict[str, object]:
        """Return a source's columns, and a card to be filled in."""
        found = described(self.owner.desk, self._caller, os.fspath(source), inner_table)
        return proposal(name, found)

    def hand_out(self, data_set: str, how: Recoding) -> dict[str, object]:
        """Write down that a table of these people is handed out, k-anonymous and not DP."""
        record = HandingOut(self.owner.ledger, self.owner.catalogue)
        return record.record(self._caller, data_set, how)

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group that cards let ask."""
        self.owner.data_sets.enrol(user, group)

    @property
    def environments(self) -> Environments:
        """Return what programs may bring along to run with here: add, find, remove; an owner's."""
        return self.owner.environments

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


def create(  # noqa: PLR0913  # what `init` is told
    folder: str | os.PathLike[str],
    *,
    anchor: str | os.PathLike[str] | None = None,
    ledger: str | None = None,
    engine: str | None = None,
    engine_reader: str | None = None,
    sandbox: str | None = None,
    at_rest_key: str | None = None,
) -> None:
    """Make a new vault in an empty or absent folder; its anchor lies outside it.

    `ledger` is the URL of a PostgreSQL database that keeps the ledger instead of a file. `engine`
    is the address of a PostgreSQL or a Spark that is asked instead of DuckDB: `postgresql://...`,
    `spark://:SECRET@HOST:PORT` or `local[2]`. `engine_reader` is the address by which a PostgreSQL
    is asked, if its role is there already; otherwise one is made. `sandbox` may be `podman`.
    `at_rest_key` seals rows and keys: a file elsewhere that holds 64 hexadecimal digits (made, if
    there is none), or `command:` and what prints them. Who loses that key has lost the rows.
    """
    read_runtime(sandbox)
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
    if at_rest_key is not None:
        check_sealable(engine, at_rest_key, root, dice)
    chosen = choose_engine(engine, engine_reader, dice)
    for place in (root, *(root / part for part in ("keys", "tables", "people", "spill"))):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    chosen.keep(root)
    rest = None if at_rest_key is None else new_rest(root, at_rest_key, dice)
    make_secret(root / "keys" / "salt", dice, rest)
    make_secret(root / "keys" / "receipts", dice, rest)
    store = _make_store(root, ledger, dice)
    where = Path(anchor).absolute() if anchor else default_anchor(store.head().ledger)
    SqlCatalogue(records_of(root, ledger), _read_stored_card).close()
    kept = {"anchor": str(where), "ledger": ledger, "engine": chosen.kind, "sandbox": sandbox}
    write_settings(root, kept if rest is None else {**kept, SETTING: True})
    key = ReceiptKey(read_secret(root / "keys" / "receipts", rest))
    Ledger(store, FileAnchor(where), key).begin("vault-created", {"format": FORMAT})
    store.close()


def _make_store(root: Path, url: str | None, dice: SystemDice) -> LedgerStore:
    if url is None:
        return create_ledger(root / "ledger.sqlite", SystemClock(), dice)
    made: LedgerStore = postgres_store().create_ledger(url, SystemClock(), dice)
    return made


def open(  # noqa: A001  # `sfumato.open` reads as it should
    folder: str | os.PathLike[str],
    *,
    user: str = OWNER,
    connections: Mapping[str, str] | None = None,
    at_rest_key: str | None = None,
) -> OpenVault:
    """Return the vault in the folder, open in this process; `connections` are files, by name.

    `at_rest_key` is where the key of a sealed vault is, if SFUMATO_AT_REST_KEY does not say so.
    """
    house = open_house(Path(folder), connections=connections, at_rest_key=at_rest_key)
    return OpenVault(house, user)


def connect(url: str, *, token: str) -> remote.RemoteVault:
    """Return the vault that is served at the URL, for whoever the token was made for."""
    return remote.connect(url, token=token, draw=SystemDice().draw)


def connect_async(url: str, *, token: str) -> AsyncVault:
    """Return the vault that is served at the URL, for `async with`."""
    return AsyncVault(remote.AsyncTransport(url, token, SystemDice().draw))


def local_survey(design: Mapping[str, object]) -> LocalSurvey:
    """Return a survey to be tried on people who do not exist, and published if it is good."""
    return LocalSurvey(design, SystemDice().draw)


def open_house(
    folder: Path,
    *,
    most_upload: int = MOST,
    connections: Mapping[str, str] | None = None,
    rooms: RoomLimits | None = None,
    at_rest_key: str | None = None,
) -> House:
    """Return the vault's services; what they do looks whether the ledger is the newest."""
    root = folder.absolute()
    settings, sealing = settings_of(root), sealing_of(root, at_rest_key)
    rest = None if sealing is None else sealing.rest
    ledger, url = ledger_of(root, settings, rest), settings.get("ledger")
    check_catalogue(root, url)
    salt, dice, clock = read_secret(root / "keys" / "salt", rest), SystemDice(), SystemClock()
    kind = str(settings.get("engine", "duckdb"))
    engine = open_engine(kind, root, salt, None if sealing is None else sealing.shelter)
    records = records_of(root, url)
    catalogue, users = SqlCatalogue(records, _read_stored_card), SqlAccess(records)
    pool, kept = NoisePool(StretchedDice()), FileStreams(root / "streams")
    door = Door(ledger, engine, pool, code_digest())
    brought = Environments()
    brought.sweep()
    sweep()  # folders of killed processes, in the temporary directory
    runtime = read_runtime(settings.get("sandbox"))
    sandbox = Bubblewrap(partial(environment, vault=root), dice, own=brought, runtime=runtime)
    split = engine if isinstance(engine, DuckDBEngine | SparkEngine) else Unsplit(NAMES[kind])
    runs = runs_of(root) if sealing is None else sealing.drafts
    strangers = PipelineDoor(ledger, split, sandbox, pool, runs)
    return House(
        folder=root,
        ledger=ledger,
        engine=engine,
        engine_kind=kind,
        catalogue=catalogue,
        environments=brought,
        desk=Desk(
            queries=Queries(door, catalogue, dice),
            data_sets=DataSets(ledger, engine, catalogue, dice, salt, root, rest),
            streams=Streams(StreamDoor(ledger, engine, pool, kept), catalogue, clock),
            twins=Twins(catalogue, dice),
            private_twins=PrivateTwins(door, catalogue, dice),
            pipelines=pipelines_of(records, strangers, catalogue, brought.names),
            airlock=airlock_of(root, records, strangers, catalogue, rest),
            audit=Audit(ledger, catalogue, users),
            access=Access(users, ledger, Argon2Passwords(), dice, clock, Admission(users, clock)),
            policy=Policy(ledger, catalogue, users, clock),
            caps=Caps(ledger, catalogue, SqlApprovals(records), dice, clock),
            confirmations=Confirmations(ledger, SqlConfirmations(records), dice, clock),
            jobs=Jobs(SqlJobs(records), dice, clock),
            uploads=Uploads(
                root / "incoming",
                dice,
                clock,
                most_upload,
                rest=rest,
                drafts=None if sealing is None else sealing.drafts,
            ),
            connections=set_up(connections or {}, PostgresTables()),
            surveys=surveys_of(root, url, ledger, salt, rest),
            sites=site_of(root, door, catalogue, records, rooms, rest),
            health=Readiness(
                ledger,
                catalogue,
                engine.is_ready,
                {"vault": root, "anchor": Path(str(settings["anchor"])).parent},
            ),
        ),
    )


def anonymity() -> Anonymity:
    """Return what measures and recodes an owner's own files; no vault is needed for it."""
    return Anonymity(DuckDBEngine(SystemDice().draw(SALT_BYTES)))


def _read_stored_card(name: str, text: str) -> Card:
    return read_card(name, card_shape(text))
