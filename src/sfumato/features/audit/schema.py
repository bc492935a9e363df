"""Requests and replies of the verbs with which an auditor reads the ledger."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sfumato.wire.schema import Name, Position, Reply, Request

Limit = Annotated[int, Meta(ge=1, le=1000)]


class PageOfEntries(Request, frozen=True, kw_only=True):
    """A request for a page of ledger entries, in order."""

    after: Position = 0
    limit: Limit = 200


class PresentReceipt(Request, frozen=True, kw_only=True):
    """A request to look up a receipt in the ledger."""

    receipt: Annotated[dict[str, Any], Meta(description="The receipt of an answer.")]


class PageOfReleases(Request, frozen=True, kw_only=True):
    """A request for a page of releases, newest first."""

    before: Position = 10**17
    limit: Limit = 50
    data_set: Name | None = None


class OneRelease(Request, frozen=True, kw_only=True):
    """A request about one release, by the number of its ledger entry."""

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
    """The ledger's head: the number and hash of its last entry."""

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
    """A reply that says whether the ledger's hash chain and sums are valid and match the anchor."""

    ok: bool


class ReceiptVerdict(Reply):
    """A reply that says whether the ledger contains the entry that the receipt names."""

    stands: bool


class Release(Reply):
    """A release: a charged query, or files that left after output checking."""

    entry: int
    at: Name


class Releases(Reply):
    """A page of releases, and where the next page begins."""

    releases: list[Release]
    next: int | None


class AnswerSheet(Reply):
    """The signed record (answer sheet) of one release."""

    format: Name
    entries: list[dict[str, Any]]
    proof: dict[str, Any]


class Policies(Reply):
    """All data cards, grants and caps, and the roles of the users."""

    cards: list[dict[str, Any]]
    grants: list[dict[str, Any]]
    enrolled: list[dict[str, Any]]
