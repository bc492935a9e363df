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
        """Close processes and files."""
        self.engine.close()
        self.desk.pipelines.door.sandbox.close()
        self.ledger.store.close()
        self.catalogue.close()
        self.desk.surveys.store.shut()


class OpenVault(Vault):
    """A vault in a folder, open in this process, for one user; with the methods of an owner."""

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
        """Add a data set, or a new version of one; for the owner.

        Args:
            name: The name of the data set.
            source: The rows: a file's path, a frame of pandas, polars or pyarrow, or a table of a
                connection, `connection:NAME/SCHEMA.TABLE`.
            card: The data card: a mapping, or the path of its TOML file.
            inner_table: Which table of a file with several, such as a DuckDB file.
            different_people: Who confirms that these are other people than those of a data set
                that looks alike.
            tables: The sources of the card's other tables, by name.
            accept_unreadable: Columns of which more than 5 % of the cells may be unreadable; these
                cells count as empty.

        Returns:
            The name, the version, and how the rows were read.

        Raises:
            Refused: `bad-card`, `source-unreadable`, `cells-unreadable`, `data-set-exists` for the
                same version again, or `same-people`.
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
        """Return how the rows of your data set were read when they were added; for you alone.

        Args:
            name: The name of the data set.

        Returns:
            For each column, what share of its cells was not as the card says.

        Raises:
            Refused: `unknown-data-set` if you have added no such data set.
        """
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
        """Open a stream: a running count over periods to come; all of it is paid now.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            question: A count by a period, as SQL or built by steps.
            start: The first day of the first period: "2026-01-01".
            periods: How many periods there will be; the price is for all of them.
            rows: The contribution bound: how many rows of a person count, over all periods
                together.
            epsilon: The price of the whole stream.

        Returns:
            The terms of the stream.

        Raises:
            Refused: `stream-not-possible`, `stream-exists` or `budget-exceeded`.
        """
        sql, shape = (question, None) if isinstance(question, str) else (None, question)
        asked = None if shape is None else question_json(shape.question())
        opening = Opening(data_set, name, start, periods, rows, epsilon, sql, asked)
        return self.owner.desk.streams.open(self._caller, opening)

    def close_days(self, data_set: str, name: str, *, until: str) -> dict[str, object]:
        """Close the periods of a stream up to a day, in order; a closed period never changes.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            until: The last day that is closed: "2026-01-31".

        Returns:
            The state of the stream.

        Raises:
            Refused: `stream-unknown` or `stream-out-of-order`.
        """
        return self.owner.desk.streams.close(self._caller, data_set, name, until)

    def describe(
        self, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> list[tuple[str, str]]:
        """Return the names and likely types of a source's columns.

        Args:
            source: A file's path, or a table of a connection.
            inner_table: Which table of a file with several.

        Returns:
            A pair for each column.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        found = described(self.owner.desk, self._caller, os.fspath(source), inner_table)
        return list(found.columns)

    def proposed(
        self, name: str, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> dict[str, object]:
        """Return a source's columns, and a data card to complete.

        Args:
            name: The name that the data set is to have.
            source: A file's path, or a table of a connection.
            inner_table: Which table of a file with several.

        Returns:
            `columns` and `card`.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        found = described(self.owner.desk, self._caller, os.fspath(source), inner_table)
        return proposal(name, found)

    def hand_out(self, data_set: str, how: Recoding) -> dict[str, object]:
        """Record in the ledger that a k-anonymous table of these people, not DP, is given away.

        Args:
            data_set: The name of the data set that has these people.
            how: How the table was recoded.

        Returns:
            The entry.

        Raises:
            Refused: `unknown-data-set` if you have added no such data set.
        """
        record = HandingOut(self.owner.ledger, self.owner.catalogue)
        return record.record(self._caller, data_set, how)

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group that cards let ask; for the owner.

        Args:
            user: The name of the user.
            group: The name of the group, as cards have it in `ask.who`.

        Raises:
            Refused: `not-allowed` if you are not the owner.
        """
        self.owner.data_sets.enrol(user, group)

    @property
    def environments(self) -> Environments:
        """Return the packages that programs may use, to add and remove; for the owner."""
        return self.owner.environments

    @property
    def owner(self) -> House:
        """Return the services that only the owner may use; or refuse."""
        if self._user != OWNER:
            raise Refused(
                "not-allowed", f"{self._user!r} is not the owner.", "Ask the owner to do it."
            )
        return self.house

    def close(self) -> None:
        """Close processes and files."""
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
    """Create a new vault in an empty or absent folder.

    Args:
        folder: The folder of the vault.
        anchor: The file outside the folder that proves that the ledger is the newest; by default
            one in your state directory.
        ledger: The URL of a PostgreSQL database that holds the ledger, instead of a file.
        engine: The address of a PostgreSQL or a Spark that reads rows, instead of DuckDB:
            `postgresql://...`, `spark://:SECRET@HOST:PORT` or `local[2]`.
        engine_reader: The address by which questions are asked of a PostgreSQL, if its role is
            there already; otherwise one is made.
        sandbox: "podman", to run programs in it.
        at_rest_key: Encrypt rows and keys at rest: a file elsewhere that holds 64 hexadecimal
            digits (made, if there is none), or `command:` and a command that prints them. Without
            the key the rows are lost.

    Raises:
        Refused: `vault-exists` if the folder is not empty; `engine-unavailable`, or
            `at-rest-not-possible`.
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
    """Open the vault in a folder, in this process.

    Args:
        folder: The folder of the vault.
        user: For whom; by default the owner.
        connections: Files with addresses of databases to add tables from, by name.
        at_rest_key: Where the key of an encrypted vault is, if SFUMATO_AT_REST_KEY does not say so.

    Returns:
        The vault; close it, or use it as `with sfumato.open(folder) as vault`.

    Raises:
        Refused: `vault-missing` if there is none; `ledger-frozen` if its ledger is not the newest;
            `at-rest-key` without the right key.
    """
    house = open_house(Path(folder), connections=connections, at_rest_key=at_rest_key)
    return OpenVault(house, user)


def connect(url: str, *, token: str) -> remote.RemoteVault:
    """Connect to a vault that a service holds.

    Args:
        url: The address of the service: https, or http on this machine.
        token: Your token, or the text of the file that it is in.

    Returns:
        The vault, with the same methods as one in a folder.

    Raises:
        Refused: `service-down`, `serve-unsafe` for an address that is not encrypted, or
            `not-signed-in`.
    """
    return remote.connect(url, token=token, draw=SystemDice().draw)


def connect_async(url: str, *, token: str) -> AsyncVault:
    """Return a vault that a service holds, for `async with`; its methods are awaited.

    Args:
        url: The address of the service: https, or http on this machine.
        token: Your token, or the text of the file that it is in.

    Returns:
        The vault; it connects at `async with`.

    Raises:
        Refused: `serve-unsafe` for an address that is not encrypted.
    """
    return AsyncVault(remote.AsyncTransport(url, token, SystemDice().draw))


def local_survey(design: Mapping[str, object]) -> LocalSurvey:
    """Return a survey with local differential privacy, to simulate and to publish.

    Args:
        design: The survey as a mapping: its questions, epsilon, and how many people are expected.

    Returns:
        The survey, checked and priced; no vault is needed for it.

    Raises:
        Refused: `bad-survey` if the design is wrong.
    """
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
    catalogue, users = SqlCatalogue(records, _read_stored_card, root), SqlAccess(records)
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
    """Return the tools that measure and recode an owner's own tables; no vault is needed."""
    return Anonymity(DuckDBEngine(SystemDice().draw(SALT_BYTES)))


def _read_stored_card(name: str, text: str) -> Card:
    return read_card(name, card_shape(text))
