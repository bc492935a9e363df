"""Requests and replies of jobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sfumato.wire.schema import Answer, Job, Name, Reply, Request


class OneJob(Request, frozen=True, kw_only=True):
    """A job, by its id."""

    job: Name


class Jobs(Reply):
    """The caller's jobs, newest first."""

    jobs: list[Job]


class JobWithAnswer(Job):
    """A job, with its answer once it has one."""

    waits_for: Annotated[
        Name | None, Meta(description="The user whose confirmation it waits for.")
    ] = None
    answer: Answer | None = None
