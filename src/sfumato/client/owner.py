"""Owner actions on a served vault: add data sets, read reports, open streams."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import Final, Protocol, cast

from sfumato.client.ask_terms import Json
from sfumato.client.card_file import check_plain
from sfumato.client.data_frames import Rows, as_files, is_frame
from sfumato.client.display import AddReport
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.folder_client import check_card, is_folder, proposed_patterns
from sfumato.query.model import query_json
from sfumato.system.csv_writer import of_values
from sfumato.wire.connection_name import is_bucket, no_bucket_here, read_connection
from sfumato.wire.query_json import read_refusal

PAUSE_S: Final = 0.5
OVER: Final = ("done", "failed", "cancelled")
Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Added:
    """The result of adding a data set, or a version of one: its name, version and report."""

    name: str
    version: str
    people: str
    # the report on how the rows were read; None from an older service
    report: AddReport | None = None

    def _repr_html_(self) -> str:
        head = f"{self.name}, version {self.version}, people {self.people}"
        report = "" if self.report is None else self.report._repr_html_()
        return f"<p>{escape(head)}</p>{report}"


class Service(Protocol):
    """The interface of a client for owner actions: it calls verbs and sends files."""

    def call(self, verb: str, body: Json) -> Json:
        """Call a verb (an API operation) of the service; return its reply or raise its refusal."""
        ...

    def send(self, path: Path) -> str:
        """Upload a file to the service, and return the id of the upload."""
        ...

    def send_folder(self, path: Path, card: Mapping[str, object]) -> str:
        """Upload a folder or an archive to the service, and return the id of the upload."""
        ...


@dataclass(frozen=True)
class Forgotten:
    """The version without a person, and what the owner should look at."""

    name: str
    version: str
    removed: int  # how many tables of earlier versions were deleted
    others: tuple[str, ...]  # other data sets about the same people


def forget_person(service: Service, name: str, person: str, version: str) -> Forgotten:
    """Remove a person's rows from a data set of the service, as a new version."""
    body: Json = {"data_set": name, "person": person, "version": version}
    made = service.call("forget-person", body)
    others = tuple(str(one) for one in cast("list[str]", made["others"]))
    return Forgotten(str(made["data_set"]), str(made["version"]), int(str(made["removed"])), others)


@dataclass(frozen=True)
class AddOptions:
    """Options of adding rows: how to read them, and who confirms that the people are new."""

    inner_table: str | None = None
    different_people: str | None = None
    accept_unreadable: Sequence[str] = ()


def add(
    service: Service,
    name: str,
    card: Mapping[str, object],
    files: Mapping[str, Rows],
    options: AddOptions | None = None,
) -> Added:
    """Upload the files, add them as a data set, and wait until the service has read them.

    In `files`, the key "" is the main table.
    """
    options = options or AddOptions()
    has_frame = any(is_frame(one) for one in files.values())
    with as_files(files) as paths:
        if has_frame:
            check_plain(card)
        if not has_frame and is_folder(paths[""]):
            check_card(name, card)
        rows = _rows(service, paths, card)
    refused = _done(service, "add", {"name": name, "card": _plain(card), **rows}, options)
    if refused is not None:
        raise of_values(refused) if has_frame else refused
    return _added(service, name)


def append(
    service: Service,
    name: str,
    version: str,
    files: Mapping[str, Path],
    options: AddOptions | None = None,
) -> Added:
    """Upload files, append their rows to a data set, and wait until the service has read them.

    In `files`, the key "" is the main table, which may get no rows.
    """
    body: Json = {"data_set": name, "version": version, **_rows(service, files, {})}
    refused = _done(service, "append", body, options or AddOptions())
    if refused is not None:
        raise refused
    return _added(service, name)


def _done(service: Service, verb: str, body: Json, options: AddOptions) -> Refused | None:
    """Begin a job that reads rows and wait for its end; return its refusal, if any."""
    if options.inner_table is not None:
        body["inner_table" if "connection" in body else "table"] = options.inner_table
    if options.different_people is not None:
        body["different_people"] = options.different_people
    if options.accept_unreadable:
        body["accept_unreadable"] = list(options.accept_unreadable)
    job = service.call(verb, body)
    while job["state"] not in OVER:
        time.sleep(PAUSE_S)
        job = service.call("job", {"job": job["job"]})
    return read_refusal({"refused": job.get("failed")})


def _added(service: Service, name: str) -> Added:
    """Return what the service has of a data set whose rows it has just read."""
    found = service.call("card", {"data_set": name})
    report = None
    with contextlib.suppress(Refused):  # an older service has none
        report = AddReport(service.call("add-report", {"data_set": name}))
    return Added(str(found["name"]), str(found["version"]), str(found["people"]), report)


def _rows(service: Service, files: Mapping[str, Path], card: Mapping[str, object]) -> Json:
    """Upload the files of a new data set, and return the request's fields for them.

    For tables of a database connection, nothing is sent, and the fields name the tables.
    """
    if any(is_bucket(os.fspath(path)) for path in files.values()):
        raise no_bucket_here()
    there = {table: read_connection(os.fspath(path)) for table, path in files.items()}
    found = {table: pair for table, pair in there.items() if pair is not None}
    if not found:
        sent = {
            table: service.send_folder(path, card)
            if table == "" and is_folder(path)
            else service.send(path)
            for table, path in files.items()
        }
        own = {"upload": sent.pop("")} if "" in sent else {}
        return {**own, "tables": sent}
    if len(found) < len(files) or len({connection for connection, _ in found.values()}) > 1:
        raise Refused(
            "source-unreadable",
            "All tables of a data set must be files, or all must be tables of one connection.",
            "Give all of them in the same way.",
        )
    named = {table: name for table, (_, name) in found.items()}
    connection = next(iter(found.values()))[0]
    own = {"table": named.pop("")} if "" in named else {}
    return {"connection": connection, **own, "tables": named}


def proposed(service: Service, source: Path, inner_table: str | None = None) -> Json:
    """Return the columns of a file or database table and a draft card, as the service reads it."""
    within = {} if inner_table is None else {"table": inner_table}
    if is_bucket(os.fspath(source)):
        raise no_bucket_here()
    there = read_connection(os.fspath(source))
    if os.path.isdir(source):  # people's files are not needed for a draft
        made = service.call("proposed", {"upload": service.send_folder(source, {})})
        card = cast("dict[str, Json]", made["card"])
        card["bids"] = {**card.get("bids", {}), "files": proposed_patterns(source)}
        return made
    if there is None:
        sent = service.send_folder(source, {}) if is_folder(source) else service.send(source)
        return service.call("proposed", {"upload": sent, **within})
    named = {} if inner_table is None else {"inner_table": inner_table}
    return service.call("proposed-table", {"connection": there[0], "table": there[1], **named})


def described(service: Service, source: Path) -> list[tuple[str, str]]:
    """Return the names and likely types of a source's columns, as the service reads them."""
    columns = cast("list[dict[str, str]]", proposed(service, source)["columns"])
    return [(column["name"], column["type"]) for column in columns]


def stream_body(question: str | Builder, terms: Json) -> Json:
    """Return a stream's question and its terms as JSON for a request."""
    asked: Json = (
        {"sql": question}
        if isinstance(question, str)
        else {"question": query_json(question.question())}
    )
    return {**asked, **terms}


def _plain(value: object) -> object:
    """Convert a card's value to JSON values; dates become text, and numbers stay exact."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value
