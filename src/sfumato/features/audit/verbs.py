"""The verbs (API operations) with which an auditor reads the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.dp.refusal import Refused
from sfumato.features.audit.schema import (
    AnswerSheet,
    LedgerEntries,
    LedgerVerdict,
    OneRelease,
    PageOfEntries,
    PageOfReleases,
    Policies,
    PresentReceipt,
    ReceiptVerdict,
    Releases,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.audit.service import Audit
    from sfumato.vault.users import Caller

AUDIT_VERBS: Final = Verbs()


class Services(Protocol):
    """The service that the verbs (API operations) of the auditor use."""

    @property
    def audit(self) -> Audit:
        """Return the service for auditors."""
        ...


@AUDIT_VERBS.verb("entries", "GET", "/v1/ledger", "audit", PageOfEntries, LedgerEntries)
def entries(services: Services, _caller: Caller, asked: PageOfEntries) -> Json:
    """Return ledger entries in order, starting after the sequence number `after`."""
    return services.audit.entries(asked.after, asked.limit)


@AUDIT_VERBS.verb(
    "verify-ledger", "GET", "/v1/ledger/verify", "audit", Empty, LedgerVerdict, is_long=True
)
def verify_ledger(services: Services, _caller: Caller, _asked: Empty) -> Json:
    """Verify the ledger's hash chain, the sum of every account, and the anchor."""
    return services.audit.verified()


@AUDIT_VERBS.verb(
    "present-receipt", "POST", "/v1/receipts", "read", PresentReceipt, ReceiptVerdict,
    refusals=("answer-unknown",),
)  # fmt: skip
def present_receipt(services: Services, _caller: Caller, asked: PresentReceipt) -> Json:
    """Look a receipt up in the ledger; a genuine receipt that is not in it freezes the ledger."""
    return services.audit.present(asked.receipt)


@AUDIT_VERBS.verb("releases", "GET", "/v1/releases", "audit", PageOfReleases, Releases)
def releases(services: Services, _caller: Caller, asked: PageOfReleases) -> Json:
    """Return a page of charged queries and of files let out after review, newest first."""
    return services.audit.releases(asked.before, asked.limit, asked.data_set)


@AUDIT_VERBS.verb(
    "sheet", "GET", "/v1/releases/{entry}", "audit", OneRelease, AnswerSheet,
    refusals=("answer-unknown",),
)  # fmt: skip
def sheet(services: Services, _caller: Caller, asked: OneRelease) -> Json:
    """Return the signed record (answer sheet) of one release."""
    entry = asked.entry
    if not (entry.isascii() and entry.isdecimal() and len(entry) <= 17):
        raise Refused(
            "answer-unknown",
            "The ledger entry must be given by its number.",
            "Take the number from the list of releases (page Releases, or GET /v1/releases).",
        )
    return services.audit.sheet(int(entry))


@AUDIT_VERBS.verb("policies", "GET", "/v1/policies", "audit", Empty, Policies)
def policies(services: Services, _caller: Caller, _asked: Empty) -> Json:
    """Return data cards, grants and caps, and who has which role."""
    return services.audit.policies()
