"""The verbs (API operations) of data sets: upload a file, add a data set, amend its data card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from sfumato.features.data_sets.schema import (
    AddDataSet,
    AddReport,
    AmendCard,
    AppendRows,
    BeginFolder,
    Connections,
    FolderUpload,
    ForgetPerson,
    OneUpload,
    PersonForgotten,
    ProposedTable,
    ProposedUpload,
    TableOfConnection,
    TableOfUpload,
    Upload,
    UploadFile,
)
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json, read_card_shape
from sfumato.wire.schema import Card, Empty, Job, OfDataSet
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.data_sets.add_service import AddJobs
    from sfumato.features.data_sets.service import DataSets
    from sfumato.features.queries.service import Queries
    from sfumato.vault.users import Caller

DATA_SET_VERBS: Final = Verbs()
_CARD: Final = (
    "bad-card", "bad-budget", "data-set-exists", "not-in-language", "same-people",
    "second-person-needed", "unknown-column", "vault-missing",
)  # fmt: skip


class Services(Protocol):
    """The services that the verbs (API operations) of data sets use."""

    @property
    def adding(self) -> AddJobs:
        """Return the service of uploads and add jobs."""
        ...

    @property
    def data_sets(self) -> DataSets:
        """Return the service of data sets."""
        ...

    @property
    def queries(self) -> Queries:
        """Return the service of queries."""
        ...


@DATA_SET_VERBS.verb(
    "upload", "PUT", "/v1/uploads", "own", UploadFile, Upload,
    refusals=("source-unreadable", "too-large", "upload-unknown"),
    carries="file",
)  # fmt: skip
def upload(_services: Services, _caller: Caller, _asked: UploadFile) -> NoReturn:
    """Upload a file of rows, or a part of a folder, as it is; kept for a day."""
    raise bad_request("a file is sent as it is, not as JSON")


@DATA_SET_VERBS.verb(
    "begin-folder", "POST", "/v1/folders", "own", BeginFolder, FolderUpload,
    refusals=("too-large", "at-rest-not-possible"),
)  # fmt: skip
def begin_folder(services: Services, caller: Caller, asked: BeginFolder) -> Json:
    """Begin to upload a folder, a zip or a tar in parts, or resume: same parts, same upload."""
    return services.adding.begin_folder(caller, asked)


@DATA_SET_VERBS.verb(
    "finish-folder", "POST", "/v1/folders/{upload}", "own", OneUpload, FolderUpload,
    refusals=("upload-unknown", "source-unreadable", "too-large"),
)  # fmt: skip
def finish_folder(services: Services, caller: Caller, asked: OneUpload) -> Json:
    """Check and unpack a folder whose parts have all been uploaded; call again until ready."""
    return services.adding.finish_folder(caller, asked.upload)


@DATA_SET_VERBS.verb(
    "proposed", "GET", "/v1/uploads/{upload}", "own", TableOfUpload, ProposedUpload,
    refusals=("upload-unknown", "no-header", "source-too-large", "source-unreadable"),
    is_long=True,
)  # fmt: skip
def proposed(services: Services, caller: Caller, asked: TableOfUpload) -> Json:
    """Return an upload's columns, their likely types and a card to complete; no value."""
    return services.adding.proposed_upload(caller, asked.upload, asked.table)


@DATA_SET_VERBS.verb(
    "add", "POST", "/v1/data-sets", "own", AddDataSet, Job,
    refusals=(
        *_CARD, "upload-unknown", "connection-unknown", "op-reused", "source-unreadable",
    ),
)  # fmt: skip
def add(services: Services, caller: Caller, asked: AddDataSet) -> Json:
    """Add an upload, or a table of a connection, as a data set or a new version; as a job."""
    return services.adding.begin(caller, asked)


@DATA_SET_VERBS.verb(
    "append", "POST", "/v1/data-sets/{data_set}/rows", "own", AppendRows, Job,
    refusals=(
        *_CARD, "unknown-data-set", "upload-unknown", "connection-unknown", "op-reused",
        "source-unreadable",
    ),
)  # fmt: skip
def append(services: Services, caller: Caller, asked: AppendRows) -> Json:
    """Append rows to your data set, as a new version with the same card and people; as a job."""
    return services.adding.begin_append(caller, asked)


@DATA_SET_VERBS.verb(
    "forget-person", "POST", "/v1/data-sets/{data_set}/forget-person", "own",
    ForgetPerson, PersonForgotten,
    refusals=(*_CARD, "unknown-data-set", "ledger-busy", "engine-unavailable"),
    is_long=True,
)  # fmt: skip
def forget_person(services: Services, caller: Caller, asked: ForgetPerson) -> Json:
    """Remove one person's rows from your data set, and its earlier versions from the disk.

    The ledger does not say who it was.
    """
    made = services.data_sets.forget_person(caller, asked.data_set, asked.person, asked.version)
    return {
        "data_set": made.name,
        "version": made.version,
        "removed": made.removed,
        "others": list(made.others),
    }


@DATA_SET_VERBS.verb(
    "add-report", "GET", "/v1/data-sets/{data_set}/add-report", "own", OfDataSet, AddReport,
    refusals=("unknown-data-set",),
)  # fmt: skip
def add_report(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Return how your data set's rows were read, in coarse bands; for you alone: it has no noise.

    The report is not part of any release.
    """
    return services.data_sets.add_report(caller, asked.data_set)


@DATA_SET_VERBS.verb("connections", "GET", "/v1/connections", "own", Empty, Connections)
def connections(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List the database connections whose tables you may add, by the operator's names."""
    return {"connections": services.adding.sources.connections.names(caller)}


@DATA_SET_VERBS.verb(
    "proposed-table", "GET", "/v1/connections/{connection}", "own",
    TableOfConnection, ProposedTable,
    refusals=(
        "connection-unknown", "source-unreadable", "engine-unavailable", "engine-unsafe",
        "not-installed", "too-large", "at-rest-not-possible",
    ),
    is_long=True,
)  # fmt: skip
def proposed_table(services: Services, caller: Caller, asked: TableOfConnection) -> Json:
    """Return the columns of a connection's table and a card to complete; no row is read."""
    return services.adding.proposed_table(caller, asked.connection, asked.table, asked.inner_table)


@DATA_SET_VERBS.verb(
    "amend", "PUT", "/v1/data-sets/{data_set}/card", "own", AmendCard, Card,
    refusals=(*_CARD, "unknown-data-set"),
)  # fmt: skip
def amend(services: Services, caller: Caller, asked: AmendCard) -> Json:
    """Change your card on the same rows: who may query, caps, size and default bounds only."""
    changes = read_card_shape(asked.card)
    card = services.data_sets.amend(caller, asked.data_set, changes, asked.instead_of)
    return services.queries.card(caller, card.name)
