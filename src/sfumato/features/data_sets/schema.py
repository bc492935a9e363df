"""Requests and replies of data sets: uploads, connections, data cards and how rows were read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from sfumato.wire.schema import Label, Name, OfDataSet, Reply, Request, needed

CardShape = Annotated[Any, needed(dict[str, Any], "The data card, as its TOML file has it.")]


class UploadFile(Request, frozen=True, kw_only=True):
    """A file to upload; the bytes are the body of the request."""

    name: Annotated[
        Name,
        Meta(
            description="The file's name, whose ending says its format; of a part of a folder, "
            "its SHA-256."
        ),
    ]
    folder: Annotated[
        Name | None, Meta(description="The upload of a folder that the file is a part of.")
    ] = None


class BeginFolder(Request, frozen=True, kw_only=True):
    """A folder or an archive to upload in parts of 8 MiB (8,388,608 bytes), or to resume."""

    name: Annotated[Name, Meta(description="The name of the folder or of the archive file.")]
    kind: Literal["folder", "zip", "tar", "tar.gz"]
    bytes: Annotated[int, Meta(description="The size of the stream that is cut into parts.")]
    parts: Annotated[list[str], Meta(description="The SHA-256 of each part, in order.")]


class OneUpload(Request, frozen=True, kw_only=True):
    """A request about one upload, by its id."""

    upload: Name


class TableOfUpload(OneUpload, frozen=True, kw_only=True):
    """A request about one table or sheet of an uploaded file."""

    table: Annotated[
        Name | None, Meta(description="The table or sheet, if the file has several.")
    ] = None


class OneTable(Request, frozen=True, kw_only=True):
    """A request about one table, or data set, of a connection."""

    connection: Name
    table: Annotated[
        str,
        Meta(
            extra_json_schema={"maxLength": 200},
            description="SCHEMA.TABLE, or TABLE of `public`; the name of a DataLad data set; or a "
            "path in a bucket.",
        ),
    ]


class TableOfConnection(OneTable, frozen=True, kw_only=True):
    """A request about one table of a connection, or about a table in a file of a bucket."""

    inner_table: Annotated[
        Name | None, Meta(description="The table or sheet of a bucket's file that has several.")
    ] = None


class RowsToPrepare(Request, frozen=True, kw_only=True):
    """Where the rows of a data set's tables are, and what the owner confirms about them."""

    connection: Name | None = None
    table: Annotated[
        Name | None,
        Meta(description="The table of the connection, or the table or sheet of the upload."),
    ] = None
    inner_table: Annotated[
        Name | None,
        Meta(description="The table or sheet, if a connection's file in a bucket has several."),
    ] = None
    tables: Annotated[
        dict[str, Name], Meta(description="The upload, or the table, of each further table.")
    ] = field(default_factory=dict)
    different_people: Annotated[
        Label | None, Meta(description="The user who confirms that these are other people.")
    ] = None
    op: Label | None = None
    accept_unreadable: Annotated[
        list[Name], Meta(description="Columns whose unreadable cells count as empty.")
    ] = field(default_factory=list)


class AddDataSet(RowsToPrepare, frozen=True, kw_only=True):
    """A data set to add: its data card, and an upload or a table of a connection."""

    name: Name
    card: CardShape = None
    upload: Name | None = None


class AppendRows(RowsToPrepare, frozen=True, kw_only=True):
    """Rows that arrive later: uploads, or tables of a connection, for a new version."""

    data_set: Name
    version: Annotated[Name, Meta(description="The name of the new version.")]
    upload: Annotated[
        Name | None,
        Meta(description="The upload with the rows of the card's own table; none if left out."),
    ] = None


class ForgetPerson(OfDataSet, frozen=True, kw_only=True):
    """One person whose rows are removed, and the name of the version without them."""

    person: Annotated[
        str,
        Meta(
            extra_json_schema={"maxLength": 1000},
            description="The person's identifier in your files.",
        ),
    ]
    version: Annotated[Name, Meta(description="The name of the new version.")]


class AmendCard(OfDataSet, frozen=True, kw_only=True):
    """A new version of a data card on the same rows."""

    card: CardShape = None
    instead_of: Annotated[
        str | None, Meta(description="Refused unless this version is the current one.")
    ] = None


class PersonForgotten(Reply):
    """The version without a person, and what the owner should look at."""

    data_set: Name
    version: Name
    removed: Annotated[int, Meta(description="How many tables of earlier versions were deleted.")]
    others: Annotated[list[Name], Meta(description="Your other data sets about the same people.")]


class Upload(Reply):
    """An uploaded file: its id, name and size, and when it is deleted."""

    upload: Name
    name: Name
    bytes: int
    until: Name


class FolderUpload(Reply):
    """The upload of a folder: its state, and the numbers of the parts that are missing."""

    upload: Name
    name: Name
    state: Literal["uploading", "unpacking", "ready"]
    missing: list[int]
    files: int
    bytes: int
    until: Name


class SourceColumn(Reply):
    """A column of a source file or table, and its likely type."""

    name: Name
    type: Name
    markers: Annotated[
        dict[str, int] | None,
        Meta(
            description="Well-known words for missing values, and how many of the first 1000 rows "
            "have them; for the owner alone."
        ),
    ] = None


class ProposedUpload(Reply):
    """The columns of an upload, and a data card to complete."""

    upload: Name
    name: Name
    columns: list[SourceColumn]
    card: dict[str, Any]


class ProposedTable(Reply):
    """The columns of a connection's table, and a data card to complete."""

    connection: Name
    table: Name
    name: Name
    columns: list[SourceColumn]
    card: dict[str, Any]


class Connections(Reply):
    """The names of the database connections that the caller may use."""

    connections: list[Name]


class AddReport(Reply):
    """How the rows of a data set were read when it was added, in coarse bands."""

    data_set: Name
    version: Name
    label: Name
    tables: list[dict[str, Any]]
