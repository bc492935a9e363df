"""The API verbs of jobs, and their execution: a job runs its request as if it arrived now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.upload_verbs import added, cleared
from sfumato.features.jobs.service import ADD, ASK, Job
from sfumato.features.queries.service import QueryRequest
from sfumato.release.release_order import Release
from sfumato.vault.users import Caller
from sfumato.wire.json_text import json_text, read_json
from sfumato.wire.query_json import Json, read_ask_shape, refusal_shape
from sfumato.wire.request_fields import Body, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

Verb = Callable[["Dispatcher", Caller, Body], Json]
EMBEDDED: Final = "this process"  # the runner of an embedded vault


def _begin(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    """Queue a query as a job; refuse at once a query that can't be priced."""
    asked = asked_of(body)
    desk.queries.price(caller, asked)
    text = json_text({key: body[key] for key in sorted(body)})
    job = desk.jobs.begin(caller, ASK, asked.data_set, text, asked.op)
    return desk.jobs.shown(job)


def _job(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    job = desk.jobs.one(caller, text_of(body, "job"))
    waits_for = desk.confirmations.asked_of(job.id) if job.state == "waiting" else None
    return {**desk.jobs.shown(job), "waits_for": waits_for, "answer": _answer(desk, caller, job)}


def _answer(desk: Dispatcher, caller: Caller, job: Job) -> Json | None:
    """Return the answer of a finished query, if its asker may still query the data set."""
    if job.kind != ASK or job.state != "done":
        return None
    asked = asked_of({**read_json(job.body.encode()), "op": job.op})
    release = None
    with contextlib.suppress(Refused):
        release = desk.queries.answered(caller, asked)
    return None if release is None else release_json(release)


def release_json(release: Release) -> Json:
    """Return an answer and its receipt as the API's JSON."""
    return {**release.answer, "receipt": release.receipt}


def asked_of(body: Body) -> QueryRequest:
    """Read the query of a request; or refuse."""
    return QueryRequest(**vars(read_ask_shape(body)))


def worked_on(desk: Dispatcher, caller: Caller, job: Job) -> Json | None:
    """Run a job, which pays under its own operation id; return its refusal, or None."""
    refusal: Json | None = None
    try:
        _WORK[job.kind](desk, caller, job)
    except Refused as refused:
        refusal = refusal_shape(refused)
    return None if refusal is None else _inner(refusal)


def _asked(desk: Dispatcher, caller: Caller, job: Job) -> None:
    desk.done("ask", caller, {**read_json(job.body.encode()), "op": job.op})


_WORK: Final[Mapping[str, Callable[[Dispatcher, Caller, Job], None]]] = {ASK: _asked, ADD: added}


def _inner(shape: Json) -> Json:
    refused = shape["refused"]
    return dict(refused) if isinstance(refused, dict) else {}


def finished_here(desk: Dispatcher, caller: Caller, answer: Json) -> Json:
    """Run the job in this process, because an embedded vault has no other runner; return it."""
    job = desk.jobs.one(caller, str(answer["job"]))
    claimed = desk.jobs.claim(job, EMBEDDED)
    if claimed is not None:
        refusal = worked_on(desk, caller, claimed)
        desk.jobs.finish(claimed, EMBEDDED, refusal)
        if refusal is None:
            cleared(desk, claimed)
    return desk.jobs.shown(desk.jobs.one(caller, job.id))


JOB_VERBS: Final[Mapping[str, Verb]] = {
    "begin": _begin,
    "jobs": lambda desk, caller, _: {"jobs": desk.jobs.all(caller)},
    "job": _job,
    "cancel-job": lambda desk, caller, body: desk.jobs.shown(
        desk.jobs.cancel(caller, text_of(body, "job"))
    ),
    "events": lambda desk, caller, body: desk.jobs.shown(
        desk.jobs.one(caller, text_of(body, "job"))
    ),
}
