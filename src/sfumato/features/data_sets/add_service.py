"""The service for add jobs: check a data card and its sources, queue the job, and run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.row_source import Source
from sfumato.features.data_sets.schema import AddDataSet, AppendRows, BeginFolder
from sfumato.features.data_sets.source_service import Sources, name_of
from sfumato.features.jobs.service import ADD, CANCELLED, FAILED, WAITING, Job, Jobs
from sfumato.features.policy.confirmation_service import Confirmations
from sfumato.system.folder_stream import archive_kind
from sfumato.system.zip_listing import is_folder_archive
from sfumato.vault.service_ports import AccessStore
from sfumato.vault.users import Caller, User
from sfumato.wire.json_text import bad_request, json_text, read_json
from sfumato.wire.query_json import read_card_shape
from sfumato.wire.verb import read_request, stored_body

EXPIRY: Final = timedelta(hours=24)  # uploads are deleted after that time on every machine


@dataclass(frozen=True)
class AddJobs:
    """Queues and runs the jobs that add data sets to one vault."""

    sources: Sources
    jobs: Jobs
    confirmations: Confirmations
    users: AccessStore

    def proposed_upload(self, caller: Caller, upload: str, table: str | None = None) -> Json:
        """Return an upload's columns, and a proposed data card for the owner to complete."""
        found = self.sources.upload(caller, upload)
        stem = found.name if archive_kind(found.name) else found.name.rpartition(".")[0]
        is_packed = found.path.is_dir() or archive_kind(found.name) is not None
        name = name_of((stem.partition(".")[0] if is_packed else stem) or found.name)
        made = self.sources.proposed(caller, name, str(found.path), table)
        return {"upload": found.id, "name": found.name, **made}

    def begin_folder(self, caller: Caller, asked: BeginFolder) -> Json:
        """Start or resume the upload of a folder or an archive; say which parts are missing."""
        folders = self.sources.folders
        return folders.begin(caller, asked.name, asked.kind, asked.parts, asked.bytes)

    def finish_folder(self, caller: Caller, upload: str) -> Json:
        """Unpack an uploaded folder in the background; return how far that is."""
        return self.sources.folders.finish(caller, upload)

    def proposed_table(
        self, caller: Caller, connection: str, table: str, inner_table: str | None = None
    ) -> Json:
        """Return the columns of a connection's table, and a proposed data card to complete."""
        made = self.sources.proposed_of(caller, connection, table, inner_table)
        return {"connection": connection, "table": table, "name": table, **made}

    def begin(self, caller: Caller, asked: AddDataSet) -> Json:
        """Queue a job that adds a data set; refuse an invalid data card at once."""
        if not caller.reaches(asked.name):
            raise Refused(
                "unknown-data-set",
                f"Your access token is only for other data sets than {asked.name}.",
                "Sign in with your password, or use a token for this data set.",
            )
        self._check_sources(caller, asked)
        card = read_card_shape(asked.card)
        people = self.sources.data_sets.check_card(asked.name, card, caller.user)
        return self._queued(caller, asked, (asked.name, people))

    def begin_append(self, caller: Caller, asked: AppendRows) -> Json:
        """Queue a job that appends rows; refuse at once what cannot be appended."""
        card = self.sources.data_sets.check_append(caller, asked.data_set, asked.version)
        if not _uploads(asked) and asked.connection is None:
            raise bad_request("an upload, or a connection and its table, says where the rows are")
        self._check_sources(caller, asked)
        return self._queued(caller, asked, (card.name, card.people))

    def _check_sources(self, caller: Caller, asked: AddDataSet | AppendRows) -> None:
        """Refuse uploads and tables that are not there, or not the caller's."""
        for upload in _uploads(asked):
            self.sources.upload(caller, upload)
        for table in _tables_there(asked):
            self.sources.check_there(caller, _connection(asked), table)
            if asked.tables:
                self.sources.check_alone(caller, _connection(asked), table)
        self._check_inner_table(caller, asked)

    def _queued(
        self, caller: Caller, asked: AddDataSet | AppendRows, named: tuple[str, str]
    ) -> Json:
        """Queue a job for a data set and its people; ask a second person, if one is named."""
        second = self._second_person(caller, asked)
        body = json_text(asked.as_body())
        job = self.jobs.add_once(
            caller, ADD, named[0], body, asked.op, as_stored=partial(stored_body, type(asked))
        )
        if second is not None and job.state in (WAITING, FAILED, CANCELLED):
            # check the queued job first, before it is queued again
            self.confirmations.ask(caller, second, job.id, named)
        return self.jobs.shown(self.jobs.requeue(job))

    def run(self, caller: Caller, job: Job) -> None:
        """Add the data set of a job, unless an earlier try has made its data card current."""
        asked = _asked(job)
        second = asked.different_people
        if not caller.may("own"):
            raise Refused(
                "not-allowed",
                "Only users with the role owner may add data sets.",
                "Ask an operator for the role owner.",
            )
        if second is not None:
            self.confirmations.check(job.id, second)
        if isinstance(asked, AppendRows):
            self._append(caller, job, asked)
            return
        data_sets, card = self.sources.data_sets, read_card_shape(asked.card)
        if job.tries <= 1 or not data_sets.recover_add(asked.name, card, caller.user, second):
            with self._source(caller, asked, asked.card) as source:
                data_sets.add(asked.name, source, card, caller.user)

    def _append(self, caller: Caller, job: Job, asked: AppendRows) -> None:
        """Append the rows of a job, unless an earlier try has made its version current."""
        data_sets, name = self.sources.data_sets, asked.data_set
        if job.tries > 1 and data_sets.recover_append(caller, name, job.id, asked.different_people):
            return
        with self._source(caller, asked, data_sets.own_shape(caller, name)) as source:
            data_sets.append(caller, name, replace(source, stem=job.id), asked.version)

    @contextmanager
    def _source(
        self, caller: Caller, asked: AddDataSet | AppendRows, card: Mapping[str, object]
    ) -> Iterator[Source]:
        """Yield the rows of a job; what is fetched for it exists until the block ends."""
        with ExitStack() as stack:
            own, tables = self._files(caller, asked, card, stack)
            yield Source(
                own,
                asked.inner_table if _is_of_a_connection(asked) else asked.table,
                different_people=asked.different_people,
                tables=tables,
                accept_unreadable=tuple(asked.accept_unreadable),
                is_plain=self._is_plain(caller, asked),
            )

    def clear(self, job: Job) -> None:
        """Delete the uploads of a finished add job. After a crash, a sweep deletes them later."""
        if job.kind == ADD:
            self.sources.remove(_uploads(_asked(job)))

    def is_workable(self, job: Job) -> bool:
        """Return True if this machine can run a job now: an add job needs its rows to be here.

        An add job whose rows have expired runs too, and fails. One that needs a second person first
        waits for their confirmation.
        """
        if job.kind != ADD:
            return True
        try:
            asked = _asked(job)
        except Refused:
            return True  # running the job ends with the same refusal, and then other jobs can run
        is_old = datetime.now(UTC) - datetime.fromisoformat(job.created) > EXPIRY
        if asked.different_people is not None and self.confirmations.waits(job.id, job.created):
            return False
        is_remote = _is_of_a_connection(asked)
        is_here = not is_remote or self.sources.connections.holds(_connection(asked))
        return is_old or (is_here and self.sources.holds(_uploads(asked)))

    def _files(
        self,
        caller: Caller,
        asked: AddDataSet | AppendRows,
        card: Mapping[str, object],
        stack: ExitStack,
    ) -> tuple[str, Mapping[str, str]]:
        """Return the main table's file, and each other table's file by table name.

        Files fetched from a connection exist until `stack` closes.
        """
        if _is_of_a_connection(asked):
            connection = _connection(asked)

            def file_of(table: str) -> str:
                fetched = self.sources.fetched_table(caller, connection, table, card)
                return stack.enter_context(fetched)

            own = _table(asked)
        else:

            def file_of(table: str) -> str:
                path = self.sources.upload(caller, table).path
                if not is_folder_archive(str(path)):
                    return str(path)
                return stack.enter_context(self.sources.folders.unpacked(path))

            own = asked.upload or ""
        # appended rows may be of other tables alone
        return file_of(own) if own else "", {
            name: file_of(there) for name, there in asked.tables.items()
        }

    def _check_inner_table(self, caller: Caller, asked: AddDataSet | AppendRows) -> None:
        """Refuse a table of a file, if the rows are not from a file of a connection."""
        if asked.inner_table is None:
            return
        if not _is_of_a_connection(asked):
            raise bad_request("table names the table of an upload, and inner_table none")
        self.sources.check_file(caller, _connection(asked), _table(asked))

    def _is_plain(self, caller: Caller, asked: AddDataSet | AppendRows) -> bool:
        """Return True if the rows come from a database, whose values have types."""
        if not _is_of_a_connection(asked):
            return False
        return self.sources.is_database(caller, _connection(asked), _table(asked))

    def _second_person(self, caller: Caller, asked: AddDataSet | AppendRows) -> User | None:
        """Return the named second person, who must confirm that the people have no budget yet.

        Return None if the request names nobody.
        """
        if asked.different_people is None:
            return None
        return self.confirmations.second_person(caller, self.users.user(asked.different_people))


def _asked(job: Job) -> AddDataSet | AppendRows:
    body = read_json(job.body.encode())
    if "data_set" in body:
        return read_request(AppendRows, body)
    return read_request(AddDataSet, body)


def _is_of_a_connection(asked: AddDataSet | AppendRows) -> bool:
    """Return True if the rows come from a connection, and False if from an upload.

    Refuse a request with both sources, or with neither.
    """
    if isinstance(asked, AppendRows) and asked.connection is None:
        return False
    if (asked.upload is None) == (asked.connection is None):
        raise bad_request("an upload, or a connection and its table, says where the rows are")
    return asked.connection is not None


def _connection(asked: AddDataSet | AppendRows) -> str:
    if asked.connection is None:
        raise bad_request("connection is missing")
    return asked.connection


def _table(asked: AddDataSet | AppendRows) -> str:
    if asked.table is None:
        raise bad_request("table is missing")
    return asked.table


def _uploads(asked: AddDataSet | AppendRows) -> list[str]:
    if _is_of_a_connection(asked):
        return []
    own = [] if asked.upload is None else [asked.upload]
    return [*own, *asked.tables.values()]


def _tables_there(asked: AddDataSet | AppendRows) -> list[str]:
    if not _is_of_a_connection(asked):
        return []
    return [_table(asked), *asked.tables.values()]
