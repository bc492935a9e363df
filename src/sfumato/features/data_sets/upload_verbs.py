"""Dispatch the verbs that upload and add rows, and do the work of an add job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.connection_verbs import fetched, name_of, proposal
from sfumato.features.data_sets.row_source import Source
from sfumato.features.jobs.service import ADD, CANCELLED, FAILED, WAITING, Job
from sfumato.vault.users import Caller, User
from sfumato.wire.json_text import bad_request, json_text, read_json
from sfumato.wire.query_json import Json, read_card_shape
from sfumato.wire.request_fields import Body, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

Verb = Callable[["Dispatcher", Caller, Body], Json]
PATIENCE: Final = timedelta(hours=24)  # uploads are deleted after that time on every machine


def _upload(_desk: Dispatcher, _caller: Caller, _body: Body) -> Json:
    raise bad_request("a file is sent as it is, not as JSON")


def _proposed(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    upload = desk.uploads.one(caller, text_of(body, "upload"))
    found = desk.data_sets.describe(str(upload.path))
    made = proposal(name_of(upload.name.rpartition(".")[0]), found)
    return {"upload": upload.id, "name": upload.name, **made}


def _add(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    """Queue an add job; refuse an invalid card at once."""
    name = text_of(body, "name")
    if not caller.reaches(name):
        raise Refused(
            "unknown-data-set",
            "Your token is for other data sets.",
            "Sign in, or use a token that is for this one.",
        )
    for upload in _uploads(body):
        desk.uploads.one(caller, upload)
    for table in _there(body):
        desk.connections.there(caller, text_of(body, "connection"), table)
    people = desk.data_sets.check_card(name, read_card_shape(body.get("card")), caller.user)
    second = _second_person(desk, caller, body)
    _accepted(body)
    text = json_text({key: body[key] for key in sorted(body)})
    op = None if body.get("op") is None else text_of(body, "op")
    job = desk.jobs.add_once(caller, ADD, name, text, op)
    if second is not None and job.state in (WAITING, FAILED, CANCELLED):
        # Asked before the job is queued again.
        desk.confirmations.ask(caller, second, job.id, (name, people))
    return desk.jobs.shown(desk.jobs.requeue(job))


def added(desk: Dispatcher, caller: Caller, job: Job) -> None:
    """Add the data set of a job, unless an earlier try had made its card current."""
    body = read_json(job.body.encode())
    name, shape = text_of(body, "name"), read_card_shape(body.get("card"))
    if not caller.may("own"):
        raise Refused("not-allowed", "This needs the right to own.", "Ask for the role.")
    if body.get("different_people") is not None:
        desk.confirmations.check(job.id, text_of(body, "different_people"))
    second = body.get("different_people")
    who = None if second is None else str(second)
    if job.tries <= 1 or not desk.data_sets.recover_add(name, shape, caller.user, who):
        with ExitStack() as held:
            own, tables = _files(desk, caller, body, held)
            source = Source(
                own,
                different_people=who,
                tables=tables,
                accept_unreadable=_accepted(body),
                is_plain=_is_of_a_connection(body),
            )
            desk.data_sets.add(name, source, shape, caller.user)


def _files(
    desk: Dispatcher, caller: Caller, body: Body, held: ExitStack
) -> tuple[str, Mapping[str, str]]:
    """Return the file of each table; files fetched from a connection last as long as `held`."""
    if _is_of_a_connection(body):
        connection = text_of(body, "connection")

        def found(table: str) -> str:
            return held.enter_context(fetched(desk, caller, connection, table))

        own = text_of(body, "table")
    else:

        def found(table: str) -> str:
            return str(desk.uploads.one(caller, table).path)

        own = text_of(body, "upload")
    return found(own), {table: found(there) for table, there in _tables(body).items()}


def cleared(desk: Dispatcher, job: Job) -> None:
    """Delete the uploads of a finished add job; after a crash, a sweep deletes them later."""
    if job.kind == ADD:
        desk.uploads.remove(_uploads(read_json(job.body.encode())))


def is_workable(desk: Dispatcher, job: Job) -> bool:
    """Say whether this machine can work on a job now: it has the rows, or they have expired.

    An add that needs a second person waits for them, as long as an upload is kept.
    """
    if job.kind != ADD:
        return True
    body = read_json(job.body.encode())
    is_old = datetime.now(UTC) - datetime.fromisoformat(job.created) > PATIENCE
    is_asked = body.get("different_people") is not None
    if is_asked and desk.confirmations.waits(job.id, job.created):
        return False
    is_here = not _is_of_a_connection(body) or desk.connections.holds(text_of(body, "connection"))
    return is_old or (is_here and desk.uploads.holds(_uploads(body)))


def _second_person(desk: Dispatcher, caller: Caller, body: Body) -> User | None:
    """Return the named second person who must confirm that the people are new, or None."""
    if body.get("different_people") is None:
        return None
    name = text_of(body, "different_people")
    return desk.confirmations.second_person(caller, desk.access.store.user(name))


def _tables(body: Body) -> dict[str, str]:
    tables = body.get("tables", {})
    if not isinstance(tables, dict) or not all(isinstance(u, str) for u in tables.values()):
        raise bad_request("tables names an upload, or a table of the connection, for each table")
    return dict(tables)


def _accepted(body: Body) -> tuple[str, ...]:
    """Return the columns whose unreadable cells the owner accepts as empty."""
    columns = body.get("accept_unreadable", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise bad_request("accept_unreadable names columns of the card")
    return tuple(columns)


def _is_of_a_connection(body: Body) -> bool:
    """Say whether the rows come from a connection; refuse both sources, or neither."""
    if (body.get("upload") is None) == (body.get("connection") is None):
        raise bad_request("an upload, or a connection and its table, says where the rows are")
    return body.get("connection") is not None


def _uploads(body: Body) -> list[str]:
    if _is_of_a_connection(body):
        return []
    return [text_of(body, "upload"), *_tables(body).values()]


def _there(body: Body) -> list[str]:
    if not _is_of_a_connection(body):
        return []
    return [text_of(body, "table"), *_tables(body).values()]


def _amend(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    changes = read_card_shape(body.get("card"))
    instead_of = None if body.get("instead_of") is None else text_of(body, "instead_of")
    card = desk.data_sets.amend(caller, text_of(body, "data_set"), changes, instead_of)
    return desk.queries.card(caller, card.name)


def _add_report(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.data_sets.add_report(caller, text_of(body, "data_set"))


UPLOAD_VERBS: Final[Mapping[str, Verb]] = {
    "upload": _upload,
    "proposed": _proposed,
    "add": _add,
    "amend": _amend,
    "add-report": _add_report,
}
