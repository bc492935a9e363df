"""Requests and replies of the ledger's auditor."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sfumato.wire.schema import Name, Position, Reply, Request

Limit = Annotated[int, Meta(ge=1, le=1000)]


class PageOfEntries(Request, frozen=True, kw_only=True):
    """A page of ledger entries."""

    after: Position = 0
    limit: Limit = 200


class PresentReceipt(Request, frozen=True, kw_only=True):
    """A receipt to look up in the ledger."""

    receipt: Annotated[dict[str, Any], Meta(description="The receipt of an answer.")]


class PageOfReleases(Request, frozen=True, kw_only=True):
    """A page of releases, newest first."""

    before: Position = 10**17
    limit: Limit = 50
    data_set: Name | None = None


class OneRelease(Request, frozen=True, kw_only=True):
    """A release, by the number of its ledger entry."""

    entry: Name


class LedgerEntry(Reply):
    """An entry of the ledger, chained by its hash to the previous one."""

    seq: int
    epoch: int
    at: Name
    kind: Name
    body: str
    prev: Name
    hash: Name


class LedgerHead(Reply):
    """The last entry of the ledger."""

    ledger: Name
    epoch: int
    seq: int
    hash: Name


class LedgerEntries(Reply):
    """A page of ledger entries, and where the next page begins."""

    entries: list[LedgerEntry]
    head: LedgerHead
    next: int | None


class LedgerVerdict(Reply):
    """Whether the ledger's hash chain, its sums and its anchor hold."""

    ok: bool


class ReceiptVerdict(Reply):
    """Whether the ledger has the receipt's entry."""

    stands: bool


class Release(Reply):
    """A release: what was charged, or let out."""

    entry: int
    at: Name


class Releases(Reply):
    """A page of releases, and where the next page begins."""

    releases: list[Release]
    next: int | None


class AnswerSheet(Reply):
    """The signed answer sheet of one release."""

    format: Name
    entries: list[dict[str, Any]]
    proof: dict[str, Any]


class Policies(Reply):
    """Data cards, grants and caps, and who has which role."""

    cards: list[dict[str, Any]]
    grants: list[dict[str, Any]]
    enrolled: list[dict[str, Any]]
