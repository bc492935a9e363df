"""Data types of the ledger: accounts, charges, their outcomes, entries and anchor marks.

The anchor is a record outside the vault of the newest ledger head. It detects a rollback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug

__all__ = [
    "Account",
    "AnchorMark",
    "AnchorSums",
    "AnchoredAccount",
    "AnswerToStore",
    "Cap",
    "ChainPosition",
    "Charge",
    "Charged",
    "Debtor",
    "Entry",
    "Exceeded",
    "Failed",
    "LedgerHead",
    "Loss",
    "Mark",
    "OperationState",
    "Outcome",
    "Paid",
    "PastOperation",
    "Pending",
    "Reused",
    "Settled",
    "ShapeFrozen",
]


@dataclass(frozen=True)
class Account:
    """A privacy budget account: its cap, for both tests of the privacy filter, and its spending."""

    name: str
    cap: Cap
    spent: PrivacyCost
    window: str | None = None  # label of the open window, to which cap and spent belong
    lifetime: PrivacyCost | None = None  # spent in all windows together; None without windows


@dataclass(frozen=True)
class Debtor:
    """An account that pays for a charge; if it doesn't exist, the charge opens it with `cap`.

    With budget windows, the account of the open window pays too (`vault/budget_windows.py`).
    """

    account: str
    cap: Cap
    # calendar unit of the budget window: day, week, month, quarter or year
    window: str | None = None
    window_cap: Cap | None = None


def _always() -> None:
    """Allow the charge: the default check of a charge refuses nobody."""


@dataclass(frozen=True)
class Charge:
    """A request to debit the accounts that pay for one operation."""

    user: str
    op: str  # the asker's operation id; unique per user
    request: str  # SHA-256 (hex) of the canonical request; an op always has one request
    answer_key: str  # the key under which the answer is stored; unique for `fresh` requests
    # SHA-256 (hex) of the question without its constants; frozen if a limit stops the question
    shape: str
    debtors: tuple[Debtor, ...]
    debt: PrivacyCost
    body: dict[str, object]  # content of the entry: question, price, mechanism; no rows
    # an open operation for the same answer is ignored if it is older than this
    wait_limit_s: int = 0
    by_day: bool = False  # the entry's time is only the day, which hides the exact time
    # Refuses an asker who lost the right to ask. It runs inside the ledger's transaction, so it
    # sees every earlier act of an owner.
    check_access: Callable[[], None] = field(default=_always, compare=False, repr=False)
    # Refuses a new payment; a stored answer is returned nevertheless.
    check_payable: Callable[[], None] = field(default=_always, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = (self.user, self.op, self.request, self.answer_key, self.shape)
        accounts = [debtor.account for debtor in self.debtors]
        if not all(_is_name(name) for name in (*names, *accounts)):
            raise Bug("a name in a charge must be 1 to 400 printable letters")
        if not accounts or len(set(accounts)) != len(accounts):
            raise Bug("a charge needs debtors, each of them once")
        if not _moves_both_tests(self.debt):
            raise Bug("a debt must move both tests, or one of them would be free for ever")


@dataclass(frozen=True)
class LedgerHead:
    """The head of a ledger: the sequence number and the hash of its last entry."""

    ledger: str  # random id of the ledger, made at its creation
    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger's hash chain."""

    seq: int
    epoch: int
    at: str
    kind: str
    body: str  # canonical JSON
    prev: str
    hash: str


@dataclass(frozen=True)
class Charged:
    """Outcome of a charge: the operation is paid, now or earlier, but has no answer yet.

    The caller may read rows.
    """

    head: LedgerHead
    seq: int  # sequence number of the entry with the debit, in every outcome of this operation
    accounts: tuple[Account, ...]
    paid_before: bool  # a retry of an operation that was charged earlier but never answered


@dataclass(frozen=True)
class OperationState:
    """Outcome of a charge: the operation has a stored answer.

    `debited` names the accounts that this charge debited.
    """

    head: LedgerHead
    seq: int
    answer: str
    accounts: tuple[Account, ...]
    debited: tuple[str, ...]


@dataclass(frozen=True)
class AnswerToStore:
    """An answer to store for an operation, and the accounts to return with it."""

    user: str
    op: str
    answer: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """Outcome of a charge: the operation failed earlier; it stays failed and charged."""

    seq: int
    code: str


@dataclass(frozen=True)
class Exceeded:
    """Outcome of a charge: an account lacks privacy budget, so no account was debited."""

    account: Account


@dataclass(frozen=True)
class Reused:
    """Outcome of a charge: the operation id belongs to another request, so nothing was debited."""

    op: str


@dataclass(frozen=True)
class ShapeFrozen:
    """Outcome of a charge: the owner must first unfreeze the question's shape; nothing was debited.

    A shape is a question without its constants.
    """

    shape: str


@dataclass(frozen=True)
class Pending:
    """Outcome of a charge: another operation has paid for the same answer and is computing it.

    No account was debited.
    """

    seq: int
    user: str
    op: str


Outcome = Charged | OperationState | Failed | Exceeded | Reused | ShapeFrozen | Pending
# the outcome of one charge in a batch; None: nothing was changed
Paid = Charged | OperationState | Exception | None


@dataclass(frozen=True)
class PastOperation:
    """One past operation of a user: its charge entry, its state and its end entry."""

    op: str
    state: str  # charged, answered or failed
    entry: Entry  # the entry that charged the operation, or repeated it
    ended: Entry | None


@dataclass(frozen=True)
class Settled:
    """The result of ending an operation: its stored answer, or "" if the operation failed.

    If another operation had stored an answer under the same key first, it is that answer.
    """

    head: LedgerHead
    seq: int
    answer: str
    accounts: tuple[Account, ...] = ()  # the requested accounts, as of that head


@dataclass(frozen=True)
class AnchorMark:
    """The newest ledger head that the anchor, the record outside the vault, has seen."""

    ledger: str
    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True, order=True)
class ChainPosition:
    """A position in a ledger: an entry's epoch, sequence number and hash."""

    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True)
class AnchoredAccount:
    """An account's state at some position of the ledger, as the anchor recorded it."""

    position: ChainPosition
    account: Account


@dataclass(frozen=True)
class AnchorSums:
    """The anchor's records: the state of every debited account, and earlier ledger heads.

    They let the owner measure what a restored ledger has lost.
    """

    accounts: tuple[AnchoredAccount, ...]
    marks: tuple[ChainPosition, ...]  # past marks, from old to new


@dataclass(frozen=True)
class Loss:
    """The debits that a restored ledger has lost, measured by its anchor outside the vault."""

    mark: ChainPosition  # the newest position that the anchor saw
    common: ChainPosition  # the newest position that ledger and anchor have in common
    accounts: tuple[Account, ...]  # `spent` is the missing debit, `cap` the last known cap
    lowered: frozenset[str]  # accounts whose cap may have been changed since


Mark = AnchorMark | None  # the mark that the ledger must contain; None: no check


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 400 and text.isprintable()


def _moves_both_tests(debt: PrivacyCost) -> bool:
    parts = (debt.epsilon, debt.delta, debt.rho, debt.rho_delta)
    return min(parts) >= 0 and debt.epsilon + debt.delta > 0 and debt.rho + debt.rho_delta > 0
