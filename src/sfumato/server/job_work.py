"""Run the request that a queued job stores, as if the request arrived now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.jobs.service import ADD, ASK, RUN, Job
from sfumato.server.dispatch import Dispatcher
from sfumato.vault.users import Caller
from sfumato.wire.json_text import read_json
from sfumato.wire.query_json import Json, refusal_shape

EMBEDDED: Final = "this process"  # the runner's name in an embedded vault


def run_job(services: Dispatcher, caller: Caller, job: Job) -> Json | None:
    """Run the stored request of a job, under the operation id that the job stores.

    Return its refusal, or None.
    """
    try:
        _WORK[job.kind](services, caller, job)
    except Refused as refused:
        kept = refused
    else:
        return None
    return refusal_of_job(kept)


def run_embedded_job(services: Dispatcher, caller: Caller, reply: Json) -> Json:
    """Run a queued job in this process, and return its state as JSON.

    An embedded vault has no other process that runs jobs.
    """
    job = services.jobs.one(caller, str(reply["job"]))
    claimed = services.jobs.claim(job, EMBEDDED)
    if claimed is not None:
        refusal = run_job(services, caller, claimed)
        services.jobs.finish(claimed, EMBEDDED, refusal)
        if refusal is None:
            services.adding.clear(claimed)
    return services.jobs.shown(services.jobs.one(caller, job.id))


def refusal_of_job(refused: Refused) -> Json:
    """Return the JSON of a refusal, as a job stores it."""
    shape = refusal_shape(refused)["refused"]
    return dict(shape) if isinstance(shape, dict) else {}


def _ask(services: Dispatcher, caller: Caller, job: Job) -> None:
    services.done("ask", caller, {**read_json(job.body.encode()), "op": job.op})


def _run(services: Dispatcher, caller: Caller, job: Job) -> None:
    services.done("run-pipeline", caller, {**read_json(job.body.encode()), "op": job.op})


def _add(services: Dispatcher, caller: Caller, job: Job) -> None:
    services.adding.run(caller, job)


_WORK: Final[Mapping[str, Callable[[Dispatcher, Caller, Job], None]]] = {
    ASK: _ask,
    ADD: _add,
    RUN: _run,
}
