"""Requests and replies of the airlock (output checking)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct

from sfumato.wire.schema import (
    Count,
    Name,
    Number,
    OfDataSet,
    Reply,
    Request,
    items,
    letters,
    needed,
    shaped,
)

Reason = Annotated[str, letters(2000)]


class DeclaredFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """A file that a program writes; for a table, also its group, count and sum columns."""

    path: Name
    by: Annotated[list[Name], items(16)] | None = None
    count: Name | None = None
    of: Name | None = None


class SubmitAirlock(OfDataSet, frozen=True, kw_only=True):
    """A request to run a program on the real rows, and to release the files that it writes."""

    source: Annotated[Any, needed(Annotated[str, letters(200_000)])] = UNSET
    environment: Annotated[Any, shaped(Name | None)] = UNSET
    files: Annotated[Any, needed(Annotated[list[DeclaredFile], items(16)])] = UNSET
    columns: Annotated[Any, shaped(list[Name] | None)] = UNSET
    why: Annotated[Any, shaped(Reason | None)] = UNSET
    cpu_s: Number = UNSET
    memory_mb: Annotated[Any, shaped(Count | None)] = UNSET
    disk_mb: Annotated[Any, shaped(Count | None)] = UNSET


class OneRequest(Request, frozen=True, kw_only=True):
    """The id of the airlock request that a call is about."""

    request: Name


class Vote(OneRequest, frozen=True, kw_only=True):
    """A reviewer's vote on exactly the files that they saw."""

    says: Annotated[str, letters(10, "`release` or `reject`.")]
    seal: Annotated[Name, Meta(description="The seal that came with the files that you saw.")]
    draft: Annotated[int, Meta(ge=1, le=10**6)]
    why: Reason | None = None


class TrimFile(OneRequest, frozen=True, kw_only=True):
    """A file to remove from the files under review."""

    path: Name


class ReplaceFile(OneRequest, frozen=True, kw_only=True):
    """A file that replaces one of the files under review."""

    path: Name
    base64: Annotated[str, letters(2_800_000)]


class AirlockRequest(Reply):
    """An airlock request and its state."""

    request: Name
    state: Name
    guarantee: Name


class AirlockRequests(Reply):
    """The airlock requests of a data set that the caller may see."""

    requests: list[AirlockRequest]


class ReleasedFiles(AirlockRequest):
    """The files of a released request, with the signed receipt."""

    files: list[Any]
