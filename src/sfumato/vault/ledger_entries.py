"""What a ledger holds: accounts, charges, entries; as values."""

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
    "Cap",
    "ChainPlace",
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
    "Past",
    "Pending",
    "Reused",
    "Settled",
    "Settling",
    "ShapeFrozen",
]


@dataclass(frozen=True)
class Account:
    """Whose budget: a cap in both tests, and what is spent."""

    name: str
    cap: Cap
    spent: PrivacyCost
    window: str | None = None  # the account of the open window, whose cap and spent these are
    lifetime: PrivacyCost | None = None  # what was spent in all windows, where there are windows


@dataclass(frozen=True)
class Debtor:
    """An account that pays for a charge; `cap` opens it if it is not there yet.

    One with windows pays from the account of the open window as well (`vault/budget_windows.py`).
    """

    account: str
    cap: Cap
    window: str | None = None  # day, week, month, quarter or year
    window_cap: Cap | None = None


def _always() -> None:
    """Let everybody pay."""


@dataclass(frozen=True)
class Charge:
    """A request to pay for one operation."""

    user: str
    op: str  # the asker's operation id; unique per user
    request: str  # SHA-256 (hex) of the canonical request; one op, one request, for ever
    answer_key: str  # under which the answer stands; `fresh` requests make theirs unique
    shape: str  # SHA-256 (hex) of the question's shape; a stopped shape is frozen
    debtors: tuple[Debtor, ...]
    debt: PrivacyCost
    body: dict[str, object]  # what is written into the chain: question, price, mechanism; no rows
    patience_s: int = 0  # how old another's reading of the same answer may be to be waited for
    by_day: bool = False  # its entry says the day alone: when exactly it was is nobody's business
    # Refuses whoever may not pay any more. It is asked while nobody else can write: what an owner
    # put down before, in the ledger too, it sees.
    may_still: Callable[[], None] = field(default=_always, compare=False, repr=False)
    # Refuses what is not to be paid for any more; an answer that stands is given all the same.
    may_pay: Callable[[], None] = field(default=_always, compare=False, repr=False)

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
    """Where the chain stands."""

    ledger: str  # random id, made once
    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True)
class Entry:
    """One link of the chain."""

    seq: int
    epoch: int
    at: str
    kind: str
    body: str  # canonical JSON
    prev: str
    hash: str


@dataclass(frozen=True)
class Charged:
    """Paid now, or paid before and not yet answered: the rows may be read."""

    head: LedgerHead
    seq: int  # the entry that holds the debit; in every outcome of this operation
    accounts: tuple[Account, ...]
    paid_before: bool  # a retry of an operation that was charged but never answered


@dataclass(frozen=True)
class OperationState:
    """The answer stands already; `debited` names accounts that paid their share just now."""

    head: LedgerHead
    seq: int
    answer: str
    accounts: tuple[Account, ...]
    debited: tuple[str, ...]


@dataclass(frozen=True)
class Settling:
    """An answer that is to stand under an operation, and the accounts that are to be told."""

    user: str
    op: str
    answer: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """The operation failed before; it stays failed, and stays paid."""

    seq: int
    code: str


@dataclass(frozen=True)
class Exceeded:
    """An account cannot pay; nothing was debited anywhere."""

    account: Account


@dataclass(frozen=True)
class Reused:
    """The operation id belongs to another request; nothing was debited."""

    op: str


@dataclass(frozen=True)
class ShapeFrozen:
    """This shape of question was stopped and waits for the owner; nothing was debited."""

    shape: str


@dataclass(frozen=True)
class Pending:
    """Another operation has paid for this very answer and is reading it; nothing was debited."""

    seq: int
    user: str
    op: str


Outcome = Charged | OperationState | Failed | Exceeded | Reused | ShapeFrozen | Pending
Paid = Charged | OperationState | Exception | None  # of several at once; None has changed nothing


@dataclass(frozen=True)
class Past:
    """One operation of a user's: the entry that they paid by, and where it stands."""

    op: str
    state: str  # charged, answered or failed
    entry: Entry  # charged, or repeated
    ended: Entry | None


@dataclass(frozen=True)
class Settled:
    """The operation is over; `answer` is what stands, another's perhaps, or "" if it failed."""

    head: LedgerHead
    seq: int
    answer: str
    accounts: tuple[Account, ...] = ()  # those that were asked for, as they stand at that head


@dataclass(frozen=True)
class AnchorMark:
    """What the anchor file says of the ledger."""

    ledger: str
    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True, order=True)
class ChainPlace:
    """A place in a chain: the entry of that number, if it has that hash."""

    epoch: int
    seq: int
    hash: str


@dataclass(frozen=True)
class AnchoredAccount:
    """An account at some place of the chain, by the anchor."""

    place: ChainPlace
    account: Account


@dataclass(frozen=True)
class AnchorSums:
    """What the anchor knows beside its mark: every account that was debited, and earlier places."""

    accounts: tuple[AnchoredAccount, ...]
    marks: tuple[ChainPlace, ...]  # in order


@dataclass(frozen=True)
class Loss:
    """What a ledger has lost, by its anchor."""

    mark: ChainPlace  # the last that the anchor saw
    common: ChainPlace  # the last that ledger and anchor share
    accounts: tuple[Account, ...]  # with what each has to be debited, and its last known cap
    lowered: frozenset[str]  # those whose cap may have been changed since


Mark = AnchorMark | None  # to look for, or none: then nothing is looked for


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 400 and text.isprintable()


def _moves_both_tests(debt: PrivacyCost) -> bool:
    parts = (debt.epsilon, debt.delta, debt.rho, debt.rho_delta)
    return min(parts) >= 0 and debt.epsilon + debt.delta > 0 and debt.rho + debt.rho_delta > 0
