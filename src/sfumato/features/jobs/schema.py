"""Request and reply schemas of the job verbs: list, show, follow and cancel jobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sfumato.wire.schema import Answer, Job, Name, Reply, Request


class OneJob(Request, frozen=True, kw_only=True):
    """A request about one job, named by its id."""

    job: Name


class Jobs(Reply):
    """The reply with the caller's last hundred jobs, newest first."""

    jobs: list[Job]


class JobWithAnswer(Job):
    """The reply with a job's state, and with its answer once there is one."""

    waits_for: Annotated[
        Name | None, Meta(description="The user whose confirmation it waits for.")
    ] = None
    planned: Annotated[
        int | None,
        Meta(description="The seconds that a running program takes by its terms, or null."),
    ] = None
    answer: Answer | None = None
