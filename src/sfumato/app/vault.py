"""Create, open and connect to vaults.

This is the only module that constructs all services. It also holds the credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.app.encryption import SETTING, check_sealable, new_rest, sealing_of
from sfumato.app.engine import NAMES, choose_engine, open_engine
from sfumato.app.federation import federation, site_of
from sfumato.app.settings import FORMAT, change_settings, settings_of, write_settings
from sfumato.app.stores import (
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
from sfumato.client import Vault, case, col, remote_vault
from sfumato.client.ask_terms import Number
from sfumato.client.async_vault import AsyncVault
from sfumato.client.card_file import CardOrFile, card_of
from sfumato.client.data_frames import Rows, is_frame, writer_of
from sfumato.client.display import AddReport
from sfumato.client.owner import Added
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.engines.databases.source_tables import DatabaseTables
from sfumato.engines.duckdb.engine import SALT_BYTES, DuckDBEngine
from sfumato.engines.spark.engine import SparkEngine
from sfumato.features.access.password_store import Argon2Passwords
from sfumato.features.access.service import OWNER, Access
from sfumato.features.access.store import SqlAccess
from sfumato.features.access.token_admission import Admission
from sfumato.features.anonymization import Anonymity, HandingOut, Recoding
from sfumato.features.audit.service import Audit
from sfumato.features.data_sets.add_service import AddJobs
from sfumato.features.data_sets.card_text import card_shape
from sfumato.features.data_sets.connection_service import set_up
from sfumato.features.data_sets.fetched_folder_service import FetchedFolders
from sfumato.features.data_sets.folder_upload_service import MAX_FOLDER_BYTES, FolderUploads
from sfumato.features.data_sets.object_store_service import ObjectStores
from sfumato.features.data_sets.repository_service import Repositories
from sfumato.features.data_sets.row_source import Source
from sfumato.features.data_sets.service import DataSets, Withdrawn
from sfumato.features.data_sets.source_service import Sources
from sfumato.features.data_sets.upload_service import MAX_BYTES, Uploads
from sfumato.features.federated.tensors.tensor_processes import RoomLimits
from sfumato.features.health.service import Readiness
from sfumato.features.jobs.service import Jobs
from sfumato.features.jobs.store import SqlJobs
from sfumato.features.pipelines.release import PipelinePorts
from sfumato.features.pipelines.service import Unsplit
from sfumato.features.policy.approval_store import SqlApprovals
from sfumato.features.policy.caps_service import Caps
from sfumato.features.policy.confirmation_service import Confirmations
from sfumato.features.policy.confirmation_store import SqlConfirmations
from sfumato.features.policy.service import Policy
from sfumato.features.queries.service import Queries
from sfumato.features.streams.release import StreamDoor
from sfumato.features.streams.service import Streams
from sfumato.features.streams.store import FileStreams
from sfumato.features.surveys.client import LocalSurvey
from sfumato.features.synthetic.private_service import PrivateTwins
from sfumato.features.synthetic.service import Twins
from sfumato.query.model import query_json
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.release.permissions import own_listing
from sfumato.release.release_order import ReleaseContext
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import read_runtime
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import ISOLATED
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.server.dispatch import Dispatcher
from sfumato.server.embedded_transport import LocalTransport
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.catalogue import SqlCatalogue
from sfumato.storage.key_files import ReceiptKey, make_secret, read_secret
from sfumato.storage.sqlite_ledger import create_ledger
from sfumato.system.clock import SystemClock
from sfumato.system.randomness import BulkRandomSource, SystemRandomSource
from sfumato.system.temporary_folders import sweep
from sfumato.vault.card.data_card import Card, read_card
from sfumato.vault.users import ACTIONS, Caller
from sfumato.wire.connection_name import read_connection

if TYPE_CHECKING:
    from sfumato.vault.engine_port import Engine
    from sfumato.vault.ports import LedgerStore

__all__ = [
    "OpenVault",
    "VaultServices",
    "anonymity",
    "case",
    "col",
    "connect",
    "connect_async",
    "create",
    "federation",
    "local_survey",
    "open",
    "open_services",
]


@dataclass(frozen=True)
class VaultServices:
    """All services of one open vault, for an embedded client or a server."""

    folder: Path
    ledger: Ledger
    engine: Engine
    engine_kind: str
    catalogue: SqlCatalogue
    environments: Environments
    desk: Dispatcher

    @property
    def data_sets(self) -> DataSets:
        """Return the service with which owners add and change data sets."""
        return self.desk.data_sets

    @property
    def queries(self) -> Queries:
        """Return the query service."""
        return self.desk.queries

    def close(self) -> None:
        """Stop the processes of the engine and the sandbox, and close the vault's files."""
        self.engine.close()
        self.desk.pipelines.door.sandbox.close()
        self.ledger.store.close()
        self.catalogue.close()
        self.desk.surveys.store.shut()


class OpenVault(Vault):
    """An open vault folder in this process, for one user, with an owner's methods."""

    def __init__(self, house: VaultServices, user: str) -> None:
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
            source: The rows: the path of a file, a BIDS folder or its zip or tar file, a frame of
                pandas, polars, pyarrow or DuckDB, a list of dicts, or a table, file or folder of a
                connection, `connection:NAME/SCHEMA.TABLE` or `connection:NAME/PATH`.
            card: The data card: a mapping, or the path of its TOML file.
            inner_table: The table or sheet to read, if the file has several.
            different_people: The name of the person who confirms that these people differ from
                those of a similar data set.
            tables: The sources of the card's other tables, by name.
            accept_unreadable: Columns in which more than 5 % of the cells may be unreadable; these
                cells count as empty.

        Returns:
            The name, the version, and how the rows were read.

        Raises:
            Refused: `bad-card`, `source-unreadable`, `cells-unreadable`, `same-people`, or
                `data-set-exists` if that version exists already.
        """
        shape, given = card_of(card), {"": source, **(tables or {})}
        named = {name: writer_of(rows) if is_frame(rows) else rows for name, rows in given.items()}
        with self._sources.as_files(self._caller, named, shape) as files:
            where = Source(
                files.pop(""),
                inner_table,
                different_people,
                files,
                tuple(accept_unreadable),
                is_plain=any(self._is_plain(one) for one in named.values()),
            )
            made = self.owner.data_sets.add(name, where, shape)
        return Added(made.name, made.version, made.people, self.add_report(made.name))

    def append(  # noqa: PLR0913  # an owner's words
        self,
        name: str,
        source: Rows | None,
        *,
        version: str,
        inner_table: str | None = None,
        different_people: str | None = None,
        tables: Mapping[str, Rows] | None = None,
        accept_unreadable: Sequence[str] = (),
    ) -> Added:
        """Append rows to your data set, as a new version; only the new rows are prepared.

        The version has the rows of all versions so far, and the same people. Answers over all
        versions share the people's privacy budget, so a version adds nothing to it. Rows and groups
        that count for a person still count, and the new rows get what is left of the contribution
        bounds.

        Args:
            name: The name of the data set.
            source: The new rows, as for `add`; None if only other tables get rows.
            version: The name of the new version.
            inner_table: The table or sheet to read, if the file has several.
            different_people: The name of the person who confirms that these people differ from
                those of a similar data set.
            tables: The new rows of the card's other tables, by name.
            accept_unreadable: Columns in which more than 5 % of the cells may be unreadable; these
                cells count as empty.

        Returns:
            The name, the version, and how the new rows were read.

        Raises:
            Refused: `unknown-data-set`, `data-set-exists` if that version exists already,
                `not-allowed` if rows cannot be appended to the data set, or as `add`.
        """
        given = {} if source is None else {"": source}
        named = {
            key: writer_of(rows) if is_frame(rows) else rows
            for key, rows in {**given, **(tables or {})}.items()
        }
        listing = own_listing(self.house.catalogue, self._caller, name)
        shape = card_shape(self.house.catalogue.text(listing.card.name))
        with self._sources.as_files(self._caller, named, shape) as files:
            where = Source(
                files.pop("", ""),
                inner_table,
                different_people,
                files,
                tuple(accept_unreadable),
                is_plain=any(self._is_plain(one) for one in named.values()),
            )
            made = self.owner.data_sets.append(self._caller, name, where, version)
        return Added(made.name, made.version, made.people, self.add_report(made.name))

    def forget_person(self, name: str, person: str, *, version: str) -> Withdrawn:
        """Remove one person's rows from your data set, as a new version.

        Questions from now on do not read these rows. Earlier versions of the data set are deleted
        from the disk. The ledger records that somebody was removed, and not who. The people's
        privacy budget stays as it is. Released answers, streams, twins and backups stay, and so
        does a keyed digest of the person: see docs/explanation/sharp-edges.md.

        Args:
            name: The name of the data set.
            person: The person's identifier in your files.
            version: The name of the new version.

        Returns:
            The new version's card, the number of deleted earlier tables, and the other data sets
            about the same people.

        Raises:
            Refused: `unknown-data-set`, `data-set-exists` if that version exists already, or
                `not-allowed` if the data set has no such person, or if nobody can be removed.
        """
        return self.owner.data_sets.forget_person(self._caller, name, person, version)

    def _is_plain(self, source: Rows) -> bool:
        """Return True if the rows come from a frame or a database, whose values have types."""
        found = None if callable(source) else read_connection(os.fspath(source))
        if found is None:
            return callable(source)
        return self._sources.is_database(self._caller, *found)

    def add_report(self, name: str) -> AddReport:
        """Return how the rows of your data set were read when it was added; for you alone.

        Args:
            name: The name of the data set.

        Returns:
            For each column, the share of cells that differ from the card.

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
        """Open a stream: a running count over future periods. You pay for all of it now.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            question: A count grouped by a period, as SQL or built by steps.
            start: The first day of the first period: "2026-01-01".
            periods: The number of periods; the price covers all of them.
            rows: The contribution bound: how many rows of a person count over all periods together.
            epsilon: The price of the whole stream.

        Returns:
            The terms of the stream.

        Raises:
            Refused: `stream-not-possible`, `stream-exists` or `budget-exceeded`.
        """
        sql, shape = (question, None) if isinstance(question, str) else (None, question)
        asked = None if shape is None else query_json(shape.question())
        return self._own_call(
            "open-stream",
            {
                "data_set": data_set,
                "stream": name,
                "start": start,
                "periods": periods,
                "rows": rows,
                "epsilon": epsilon,
                "sql": sql,
                "question": asked,
            },
        )

    def close_days(self, data_set: str, name: str, *, until: str) -> dict[str, object]:
        """Close a stream's periods up to a day, in order; a closed period never changes.

        Args:
            data_set: The name of the data set.
            name: The name of the stream.
            until: The last day to close: "2026-01-31".

        Returns:
            The state of the stream.

        Raises:
            Refused: `stream-unknown` or `stream-out-of-order`.
        """
        return self._own_call(
            "close-stream", {"data_set": data_set, "stream": name, "until": until}
        )

    def describe(
        self, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> list[tuple[str, str]]:
        """Return the names and likely types of a source's columns.

        Args:
            source: A file's path, or a table of a database connection.
            inner_table: The table to read, if the file has several.

        Returns:
            A pair (name, type) for each column.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        found = self._sources.describe(self._caller, os.fspath(source), inner_table)
        return list(found.columns)

    def proposed(
        self, name: str, source: str | os.PathLike[str], inner_table: str | None = None
    ) -> dict[str, object]:
        """Return a source's columns, and a draft data card to complete.

        Args:
            name: The name of the future data set.
            source: A file's path, a BIDS folder, or a table of a database connection.
            inner_table: The table to read, if the file has several.

        Returns:
            A mapping with `columns` and `card`. For a BIDS folder, it also has `tables`, and
            `notes` about what was left out of the card; show the notes to nobody.

        Raises:
            Refused: `source-unreadable` if it cannot be read.
        """
        return self._sources.proposed(self._caller, name, os.fspath(source), inner_table)

    def hand_out(self, data_set: str, how: Recoding) -> dict[str, object]:
        """Record in the ledger that you give away a k-anonymous table of these people (not DP).

        Args:
            data_set: The name of the data set of these people.
            how: How the table was recoded.

        Returns:
            The ledger entry.

        Raises:
            Refused: `unknown-data-set` if you have added no such data set.
        """
        record = HandingOut(self.owner.ledger, self.owner.catalogue)
        return record.record(self._caller, data_set, how)

    def enrol(self, user: str, group: str) -> None:
        """Add a user to a group that cards allow to ask; for the owner.

        Args:
            user: The name of the user.
            group: The name of the group, as in `ask.who` of a card.

        Raises:
            Refused: `not-allowed` if you are not the owner.
        """
        self.owner.data_sets.enrol(user, group)

    @property
    def environments(self) -> Environments:
        """Return the package environments for programs, to add and remove; for the owner."""
        return self.owner.environments

    @property
    def timing(self) -> str:
        """Return the timing that the operator allows programs: "isolated", or also "batch"."""
        return self.owner.desk.pipelines.timing

    def allow_timing(self, timing: str) -> None:
        """Allow programs that their owner has reviewed to run in batches, or forbid it again.

        A vault that is open reads this when it restarts.

        Args:
            timing: "isolated", or "batch" to allow batches.

        Raises:
            Refused: `not-allowed` if you are not the owner.
        """
        change_settings(self.owner.folder, timing=timing)

    @property
    def owner(self) -> VaultServices:
        """Return the services for the owner; refuse other users."""
        if self._user != OWNER:
            raise Refused(
                "not-allowed",
                f"{self._user!r} is not the owner.",
                "Ask the vault's owner to do it.",
            )
        return self.house

    @property
    def _sources(self) -> Sources:
        return self.owner.desk.adding.sources

    def _own_call(self, verb: str, body: dict[str, object]) -> dict[str, object]:
        """Call a verb of the vault as its owner; refuse other users."""
        _ = self.owner
        return self.call(verb, body)

    def close(self) -> None:
        """Stop the vault's processes, and close its files."""
        self.house.close()

    def __enter__(self) -> OpenVault:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def create(  # noqa: PLR0913  # the options of `init`
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
        anchor: The file outside the folder that detects an old copy of the ledger; by default in
            your state directory.
        ledger: The URL of a PostgreSQL database for the ledger, instead of a file.
        engine: The address of PostgreSQL or Spark to read rows with, instead of DuckDB:
            `postgresql://...`, `spark://:SECRET@HOST:PORT` or `local[2]`.
        engine_reader: The address of an existing PostgreSQL role for reading; by default, one is
            created.
        sandbox: The container runtime for programs, such as "podman", instead of bubblewrap.
        at_rest_key: Encrypt rows and keys at rest with this key: a file elsewhere with 64
            hexadecimal digits (created if absent), or `command:` and a command that prints them.
            Without the key the rows are lost.

    Raises:
        Refused: `vault-exists` if the folder is not empty; `engine-unavailable`, or
            `at-rest-not-possible`.
    """
    read_runtime(sandbox)
    root = Path(folder).absolute()
    if anchor is not None and Path(anchor).exists():
        raise Refused(
            "vault-exists",
            f"The anchor file {anchor} already belongs to the ledger of another vault.",
            "Choose another place for the anchor.",
        )
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise Refused(
            "vault-exists", f"The folder {root} is not empty.", "Choose a new folder for the vault."
        )
    dice = SystemRandomSource()
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


def _make_store(root: Path, url: str | None, dice: SystemRandomSource) -> LedgerStore:
    if url is None:
        return create_ledger(root / "ledger.sqlite", SystemClock(), dice)
    made: LedgerStore = postgres_store().create_ledger(url, SystemClock(), dice)
    return made


def open(  # noqa: A001  # users call it as `sfumato.open`
    folder: str | os.PathLike[str],
    *,
    user: str = OWNER,
    connections: Mapping[str, str] | None = None,
    at_rest_key: str | None = None,
) -> OpenVault:
    """Open the vault in a folder, in this process.

    Args:
        folder: The folder of the vault.
        user: The user who opens it; by default the owner.
        connections: Files with addresses of databases to add tables from, by connection name.
        at_rest_key: Where the key of an encrypted vault is, unless SFUMATO_AT_REST_KEY says it.

    Returns:
        The vault; close it, or use it in a `with` statement.

    Raises:
        Refused: `vault-missing` if there is none; `ledger-frozen` if its ledger is an old copy;
            `at-rest-key` without the right key.
    """
    house = open_services(Path(folder), connections=connections, at_rest_key=at_rest_key)
    return OpenVault(house, user)


def connect(url: str, *, token: str) -> remote_vault.RemoteVault:
    """Connect to a vault behind a service.

    Args:
        url: The URL of the service: https, or http on this machine.
        token: Your token, or the content of its file.

    Returns:
        The vault, with the same methods as a vault folder.

    Raises:
        Refused: `service-down`, `serve-unsafe` for a URL without encryption, or
            `not-signed-in`.
    """
    return remote_vault.connect(url, token=token, draw=SystemRandomSource().draw)


def connect_async(url: str, *, token: str) -> AsyncVault:
    """Return an asynchronous client of a vault behind a service, for `async with`.

    Args:
        url: The URL of the service: https, or http on this machine.
        token: Your token, or the content of its file.

    Returns:
        The vault; it connects when `async with` begins.

    Raises:
        Refused: `serve-unsafe` for a URL without encryption.
    """
    return AsyncVault(remote_vault.AsyncTransport(url, token, SystemRandomSource().draw))


def local_survey(design: Mapping[str, object]) -> LocalSurvey:
    """Design a survey with local differential privacy, to simulate and to publish.

    Args:
        design: The survey as a mapping: its questions, epsilon, and the expected number of people.

    Returns:
        The survey, checked and priced; it needs no vault.

    Raises:
        Refused: `bad-survey` if the design is invalid.
    """
    return LocalSurvey(design, SystemRandomSource().draw)


def open_services(  # noqa: PLR0913  # an operator's settings
    folder: Path,
    *,
    most_upload: int = MAX_BYTES,
    most_folder: int = MAX_FOLDER_BYTES,
    connections: Mapping[str, str] | None = None,
    rooms: RoomLimits | None = None,
    at_rest_key: str | None = None,
) -> VaultServices:
    """Open a vault folder, construct its services, and check its ledger for a rollback."""
    root = folder.absolute()
    settings, sealing = settings_of(root), sealing_of(root, at_rest_key)
    rest = None if sealing is None else sealing.rest
    ledger, url = ledger_of(root, settings, rest), settings.get("ledger")
    check_catalogue(root, url)
    salt, dice, clock = (
        read_secret(root / "keys" / "salt", rest),
        SystemRandomSource(),
        SystemClock(),
    )
    kind = str(settings.get("engine", "duckdb"))
    engine = open_engine(kind, root, salt, None if sealing is None else sealing.engine_scratch)
    records = records_of(root, url)
    catalogue, users = SqlCatalogue(records, _read_stored_card, root), SqlAccess(records)
    pool, kept = NoisePool(BulkRandomSource()), FileStreams(root / "streams")
    door = ReleaseContext(ledger, engine, pool, code_digest())
    brought = Environments(registries=settings.get("registries"))
    brought.sweep()
    sweep()  # folders that killed processes left in the temporary directory
    runtime = read_runtime(settings.get("sandbox"))
    sandbox = SandboxPool(partial(environment, vault=root), dice, own=brought, runtime=runtime)
    split = engine if isinstance(engine, DuckDBEngine | SparkEngine) else Unsplit(NAMES[kind])
    runs = runs_of(root) if sealing is None else sealing.drafts
    programs = PipelinePorts(ledger, split, sandbox, pool, runs)
    timing = str(settings.get("timing", ISOLATED))
    pipelines = pipelines_of(records, programs, catalogue, brought, timing)

    def fetched(place: str) -> FetchedFolders:
        return FetchedFolders(root / place, clock, most_folder, is_sealed=rest is not None)

    return VaultServices(
        folder=root,
        ledger=ledger,
        engine=engine,
        engine_kind=kind,
        catalogue=catalogue,
        environments=brought,
        desk=Dispatcher(
            queries=Queries(door, catalogue, dice),
            adding=AddJobs(
                Sources(
                    DataSets(ledger, engine, catalogue, dice, salt, root, rest),
                    Uploads(
                        root / "incoming",
                        dice,
                        clock,
                        most_upload,
                        rest=rest,
                        drafts=None if sealing is None else sealing.drafts,
                    ),
                    set_up(connections or {}, DatabaseTables()),
                    FolderUploads(
                        root / "incoming-folders",
                        dice,
                        clock,
                        runs,
                        most_folder,
                        is_sealed=rest is not None,
                    ),
                    Repositories(fetched("incoming-repositories")),
                    ObjectStores(fetched("incoming-objects")),
                ),
                Jobs(SqlJobs(records), dice, clock),
                Confirmations(ledger, SqlConfirmations(records), dice, clock),
                users,
            ),
            streams=Streams(StreamDoor(ledger, engine, pool, kept), catalogue, clock),
            twins=Twins(catalogue, dice),
            private_twins=PrivateTwins(door, catalogue, dice),
            pipelines=pipelines,
            airlock=airlock_of(root, records, pipelines, catalogue, rest),
            audit=Audit(ledger, catalogue, users),
            access=Access(users, ledger, Argon2Passwords(), dice, clock, Admission(users, clock)),
            policy=Policy(ledger, catalogue, users, clock),
            caps=Caps(ledger, catalogue, SqlApprovals(records), dice, clock),
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
    """Return the tools that measure and recode an owner's tables (k-anonymity), without a vault."""
    return Anonymity(DuckDBEngine(SystemRandomSource().draw(SALT_BYTES)))


def _read_stored_card(name: str, text: str) -> Card:
    return read_card(name, card_shape(text))
