"""The HTTP routes of jobs: begin, show, follow (server-sent events), and cancel."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import ASK_TERMS, OBJECT, Schema, listed, opened, shape, text
from sfumato.wire.route import Route

STATES: Final[Schema] = {
    "type": "string", "enum": ["waiting", "running", "done", "failed", "cancelled"],
}  # fmt: skip
JOB: Final[Schema] = {
    **opened(
        {
            "job": text(),
            "kind": text(),
            "data_set": text(),
            "op": text(),
            "state": STATES,
            "begun": text(),
            "seconds": {"type": ["integer", "null"]},
            "failed": {"anyOf": [OBJECT, {"type": "null"}]},
        }
    ),
    "description": "How far it is, is told by the clock alone; `failed` says why it did.",
}


def job_routes(question_refusals: tuple[str, ...]) -> tuple[Route, ...]:
    """Return the routes of jobs; `question_refusals` are the codes that a query may get."""
    return (
        Route(
            "begin", "POST", "/v1/jobs",
            "Ask as a job: it goes on when nobody waits, after a crash too, and pays once.",
            "ask", JOB, shape({"data_set": text()}, ASK_TERMS),
            refusals=(*question_refusals, "op-reused"),
        ),
        Route(
            "jobs", "GET", "/v1/jobs", "Your last hundred jobs.", "read",
            opened({"jobs": listed(JOB)}),
        ),
        Route(
            "job", "GET", "/v1/jobs/{job}", "How a job stands; with its answer, once it has one.",
            "read", JOB, refusals=("job-unknown",),
        ),
        Route(
            "cancel-job", "DELETE", "/v1/jobs/{job}",
            "Cancel a job that waits; one that reads rows is paid and goes on.", "read", JOB,
            refusals=("job-unknown", "job-begun"),
        ),
        Route(
            "events", "GET", "/v1/jobs/{job}/events",
            "A job's state every half second until it is over, as server-sent events `state`.",
            "read", JOB, refusals=("job-unknown",), carries="events",
        ),
    )  # fmt: skip
