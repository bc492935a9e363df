"""The verbs of jobs: begin, list, show, follow and cancel."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.model import ASK, DONE, RUN, RUNNING, Job
from sfumato.features.jobs.schema import Jobs, JobWithAnswer, OneJob
from sfumato.features.pipelines.schema import RunPipeline
from sfumato.features.queries.schema import QUERY_REFUSALS, Ask
from sfumato.wire import schema
from sfumato.wire.json_text import json_text, read_json
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty
from sfumato.wire.verb import Verbs, read_request, stored_body

if TYPE_CHECKING:
    from sfumato.features.jobs import service
    from sfumato.features.pipelines.service import Pipelines
    from sfumato.features.policy.confirmation_service import Confirmations
    from sfumato.features.queries.service import Queries
    from sfumato.vault.users import Caller

JOB_VERBS: Final = Verbs()
_ONE: Final = "/v1/jobs/{job}"


class Services(Protocol):
    """The services that the job verbs need."""

    @property
    def jobs(self) -> service.Jobs:
        """Return the job service."""
        ...

    @property
    def queries(self) -> Queries:
        """Return the query service."""
        ...

    @property
    def pipelines(self) -> Pipelines:
        """Return the service that runs programs."""
        ...

    @property
    def confirmations(self) -> Confirmations:
        """Return the service for actions that a second person must confirm."""
        ...


@JOB_VERBS.verb(
    "begin", "POST", "/v1/jobs", "ask", Ask, schema.Job, refusals=(*QUERY_REFUSALS, "op-reused")
)
def begin(services: Services, caller: Caller, asked: Ask) -> Json:
    """Queue a query as a job: it needs no waiting client, restarts after a crash, and pays once.

    A query that can't be priced is refused at once.
    """
    services.queries.price(caller, asked)
    body = json_text(asked.as_body())
    job = services.jobs.begin(
        caller, ASK, asked.data_set, body, asked.op, as_stored=partial(stored_body, Ask)
    )
    return services.jobs.shown(job)


@JOB_VERBS.verb("jobs", "GET", "/v1/jobs", "read", Empty, Jobs)
def jobs(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List your last hundred jobs."""
    return {"jobs": services.jobs.all(caller)}


@JOB_VERBS.verb("job", "GET", _ONE, "read", OneJob, JobWithAnswer, refusals=("job-unknown",))
def job(services: Services, caller: Caller, asked: OneJob) -> Json:
    """Return the state of a job, and its answer once it has one."""
    found = services.jobs.one(caller, asked.job)
    waits_for = services.confirmations.asked_of(found.id) if found.state == "waiting" else None
    answer = _answer(services, caller, found)
    planned = _planned_s(services, caller, found)
    shown = services.jobs.shown(found)
    return {**shown, "waits_for": waits_for, "planned": planned, "answer": answer}


@JOB_VERBS.verb(
    "cancel-job", "DELETE", _ONE, "read", OneJob, schema.Job,
    refusals=("job-unknown", "job-begun"),
)  # fmt: skip
def cancel_job(services: Services, caller: Caller, asked: OneJob) -> Json:
    """Cancel a job that waits; a job that reads rows is paid and continues."""
    return services.jobs.shown(services.jobs.cancel(caller, asked.job))


@JOB_VERBS.verb(
    "events", "GET", f"{_ONE}/events", "read", OneJob, schema.Job, refusals=("job-unknown",),
    carries="events",
)  # fmt: skip
def events(services: Services, caller: Caller, asked: OneJob) -> Json:
    """Stream a job's state every half second until it ends, as server-sent events `state`."""
    return services.jobs.shown(services.jobs.one(caller, asked.job))


def _planned_s(services: Services, caller: Caller, found: Job) -> int | None:
    """Return how many seconds a running program takes by its terms; None of any other job."""
    if found.kind != RUN or found.state != RUNNING:
        return None
    with contextlib.suppress(Refused):
        asked = read_request(RunPipeline, read_json(found.body.encode()))
        return services.pipelines.planned_s(caller, asked)
    return None


def _answer(services: Services, caller: Caller, found: Job) -> Json | None:
    """Return a finished job's answer; None if the user may no longer query the data set."""
    if found.kind != ASK or found.state != DONE:
        return None
    answer = None
    with contextlib.suppress(Refused):
        asked = read_request(Ask, {**read_json(found.body.encode()), "op": found.op})
        release = services.queries.answered(caller, asked)
        answer = None if release is None else release.as_json()
    return answer
