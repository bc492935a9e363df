"""The ledger's hash chain: a hash over every field of every entry, and a replay of all sums.

The fields of each kind's `body` (canonical JSON) are below. The names never change meaning: a
ledger written today must always replay to the same sums, so a new meaning gets a new name.

    ledger-created    ledger, origin
    account-opened    account, cap
    cap-set           account, cap
    charged           user, op, request, answer_key, shape, debits {account: debt}, body
    repeated          user, op, request, answer_key, shape, debits {account: debt}, answer, body
    released          user, op, charge, answer_key, answer (SHA-256), first, payers [account]
    failed            user, op, charge, code, shape or null
    shape-frozen      shape; an operation hit a limit after another worker had answered it
    shape-thawed      shape
    frozen            reason
    acknowledged      why, origin, debits {account: debt}; the first entry of a new epoch;
                      measured {mark, common}, if the anchor shows how much was lost
    moved             origin; the ledger was found, complete, in another database

A cap and a debt are [epsilon, delta, rho, rho_delta] in whole units; `origin` is the id of the
ledger's database. Every other kind is an owner's note and changes no sum. All state follows from
these entries alone, so a store can be compared with its chain row by row.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.refusal import Bug, Refused
from sfumato.vault.ledger_entries import Account, AnchorMark, Cap, Entry, LedgerHead

GENESIS: Final = "0" * 64  # the `prev` hash of the first entry
MAX_SUM: Final = (
    2**62 - 1
)  # sums saturate here; every cap is smaller. The sum of two fits into 64 bits.
_DOMAIN: Final = b"sfumato-ledger-entry/1\n"
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_FIELDS: Final = json.JSONEncoder(separators=(",", ":"))

Body = dict[str, Any]  # Any: parsed JSON, checked where it is used


def canonical(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII, no NaN."""
    with contextlib.suppress(TypeError, ValueError):  # the error would quote the value
        return _CANONICAL.encode(value)
    raise Bug("a ledger entry must be plain JSON")


# There is one argument per field, so that no field can be forgotten.
def entry_hash(prev: str, seq: int, epoch: int, at: str, kind: str, body: str) -> str:  # noqa: PLR0913, PLR0917
    """Return the hash of a ledger entry: SHA-256 of all its fields, encoded as a JSON list."""
    fields = _FIELDS.encode([prev, seq, epoch, at, kind, body])
    return hashlib.sha256(_DOMAIN + fields.encode("ascii")).hexdigest()


def next_entry(head: LedgerHead, *, epoch: int, at: str, kind: str, body: str) -> Entry:
    """Build the ledger entry that follows the head, with its hash."""
    seq = head.seq + 1
    made = entry_hash(head.hash, seq, epoch, at, kind, body)
    return Entry(seq, epoch, at, kind, body, head.hash, made)


def debt_list(debt: PrivacyCost) -> list[int]:
    """Return a debit as a ledger entry's list of numbers, each at most 2**62 - 1 (MAX_SUM).

    A larger number is cut to this maximum.
    """
    return [min(part, MAX_SUM) for part in (debt.epsilon, debt.delta, debt.rho, debt.rho_delta)]


def cap_list(cap: Cap) -> list[int]:
    """Return a cap as a ledger entry's list of numbers; raise `Bug` for a number that is too large.

    Each number must be below 2**62 - 1 (MAX_SUM), where sums stop growing. Otherwise no sum could
    exceed the cap.
    """
    parts = [cap.epsilon, cap.delta, cap.rho, cap.rho_delta]
    if not all(0 <= part < MAX_SUM for part in parts):
        raise Bug("a cap is outside what the ledger can count")
    return parts


def add(spent: PrivacyCost, debt: PrivacyCost) -> PrivacyCost:
    """Add a debit to what an account has spent; the sum stops growing at 2**62 - 1 (MAX_SUM).

    The result is exact in the range of caps, and independent of the order of additions.
    """
    return PrivacyCost(*debt_list(spent + debt))


MOVED: Final = "the database is not the one that the ledger was made in"
SEEN: Final = "the ledger has lost entries that this process has seen"
NOT_STANDING: Final = "a receipt that it signed does not stand in it"
_ENDS_BEFORE: Final = "the ledger ends before the anchor's mark"
_ANOTHER_HISTORY: Final = "the ledger's history is not the anchor's"
# Reasons for a freeze for which the anchor can measure how much was lost.
MEASURABLE: Final = frozenset({MOVED, SEEN, NOT_STANDING, _ENDS_BEFORE, _ANOTHER_HISTORY})


def disagreement(mark: AnchorMark, head: LedgerHead, marked: Entry | None) -> str | None:
    """Return why the ledger disagrees with the anchor (its external record), or None if it agrees.

    `mark` is the newest head that the anchor has. `marked` is the ledger's entry at the sequence
    number of the mark.
    """
    if mark.ledger != head.ledger:
        return "the anchor belongs to another ledger"
    if mark.epoch > head.epoch:
        return "the ledger is from an epoch before the anchor's"
    if mark.epoch < head.epoch:
        return None  # the owner acknowledged the loss later, and debited what was lost
    if marked is None:
        return _ENDS_BEFORE
    return None if marked.hash == mark.hash else _ANOTHER_HISTORY


def ledger_frozen(reason: str) -> Refused:
    """Return the refusal of a request because the ledger is frozen, with the reason."""
    return Refused(
        "ledger-frozen",
        f"The ledger is frozen: {reason}.",
        "Restore the newest ledger, or, as owner, run `sfumato ledger acknowledge`.",
    )


@dataclass(frozen=True)
class Counts:
    """How many operations, stored answers and paying accounts the hash chain has."""

    operations: int
    answers: int
    payers: int


@dataclass(frozen=True)
class Verdict:
    """The result of `verify`: the ledger's state after a replay of the hash chain.

    `fault` is None if every entry is valid.
    """

    fault: str | None
    head: LedgerHead
    accounts: tuple[Account, ...]  # by name
    counts: Counts
    frozen_shapes: tuple[str, ...]
    frozen: str | None
    origin: str


def verify(entries: Iterable[Entry]) -> Verdict:
    """Verify the hash chain: replay all ledger entries.

    Return the resulting state and the first fault. The entries are read once; only accounts and
    frozen query shapes stay in memory.
    """
    replay = _Replay()
    for entry in entries:
        fault = replay.apply(entry)
        if fault is not None:
            return replay.verdict(f"entry {replay.seq + 1}: {fault}")
    return replay.verdict(None if replay.seq else "the chain is empty")


@dataclass
class _Replay:
    """The state of a replay of the hash chain; each entry changes it."""

    ledger: str = ""
    origin: str = ""
    epoch: int = 1
    seq: int = 0
    hash: str = GENESIS
    caps: dict[str, Cap] = field(default_factory=dict)
    spent: dict[str, PrivacyCost] = field(default_factory=dict)
    shapes: set[str] = field(default_factory=set)
    frozen: str | None = None
    operations: int = 0
    answers: int = 0
    payers: int = 0

    def apply(self, entry: Entry) -> str | None:
        """Apply one ledger entry to the state; return why the entry is invalid, or None."""
        fault = self._link_fault(entry) or self._effect_fault(entry)
        if fault is None:
            self.seq, self.epoch, self.hash = entry.seq, entry.epoch, entry.hash
        return fault

    def _link_fault(self, entry: Entry) -> str | None:
        if entry.seq != self.seq + 1:
            return "it is missing, or another is in its place"
        if entry.prev != self.hash:
            return "it does not name the entry before it"
        fields = (entry.prev, entry.seq, entry.epoch, entry.at, entry.kind, entry.body)
        if entry.hash != entry_hash(*fields):
            return "its hash is not that of its fields"
        if entry.epoch != self.epoch + (entry.kind == "acknowledged"):
            return "its epoch does not follow"
        if (entry.seq == 1) != (entry.kind == "ledger-created"):
            return "a chain begins once, with its creation"
        return None

    def _effect_fault(self, entry: Entry) -> str | None:
        effect = _EFFECTS.get(entry.kind)
        if effect is None:
            return None
        try:
            return effect(self, json.loads(entry.body))
        except (KeyError, TypeError, ValueError):
            return "its body cannot be read"

    def verdict(self, fault: str | None) -> Verdict:
        """Return the state of the replay so far, with this fault."""
        accounts = (Account(name, self.caps[name], self.spent[name]) for name in sorted(self.caps))
        return Verdict(
            fault,
            LedgerHead(self.ledger, self.epoch, self.seq, self.hash),
            tuple(accounts),
            Counts(self.operations, self.answers, self.payers),
            tuple(sorted(self.shapes)),
            self.frozen,
            self.origin,
        )

    def debit(self, debits: Body) -> str | None:
        """Debit the accounts of an entry; return a fault if the privacy filter rejects a debit."""
        for account, amounts in debits.items():
            debt = PrivacyCost(*_four(amounts))
            if not fits_under_cap(self.caps[account], self.spent[account], debt):
                return "its debit passes the cap in both tests"
            self.spent[account] = add(self.spent[account], debt)
        return None


def _four(amounts: list[int]) -> list[int]:
    if len(amounts) != 4 or not all(type(amount) is int and amount >= 0 for amount in amounts):
        raise ValueError
    return amounts


def _created(replay: _Replay, body: Body) -> str | None:
    replay.ledger, replay.origin = body["ledger"], body["origin"]
    return None


def _opened(replay: _Replay, body: Body) -> str | None:
    if body["account"] in replay.caps:
        return "its account was open already"
    replay.caps[body["account"]] = Cap(*_four(body["cap"]))
    replay.spent[body["account"]] = PrivacyCost()
    return None


def _cap_set(replay: _Replay, body: Body) -> str | None:
    if body["account"] not in replay.caps:
        return "its account was never opened"
    replay.caps[body["account"]] = Cap(*_four(body["cap"]))
    return None


def _charged(replay: _Replay, body: Body) -> str | None:
    replay.operations += 1
    return replay.debit(body["debits"])


def _repeated(replay: _Replay, body: Body) -> str | None:
    replay.operations += 1
    replay.payers += len(body["debits"])
    return replay.debit(body["debits"])


def _released(replay: _Replay, body: Body) -> str | None:
    replay.answers += body["first"]
    replay.payers += len(body["payers"])
    return None


def _failed(replay: _Replay, body: Body) -> str | None:
    if body["shape"] is not None:
        replay.shapes.add(body["shape"])
    return None


def _shape_frozen(replay: _Replay, body: Body) -> str | None:
    replay.shapes.add(body["shape"])
    return None


def _thawed(replay: _Replay, body: Body) -> str | None:
    replay.shapes.discard(body["shape"])
    return None


def _frozen(replay: _Replay, body: Body) -> str | None:
    replay.frozen = body["reason"]
    return None


def _acknowledged(replay: _Replay, body: Body) -> str | None:
    for account, amounts in body["debits"].items():
        replay.spent[account] = add(replay.spent[account], PrivacyCost(*_four(amounts)))
    replay.frozen, replay.origin = None, body["origin"]
    return None


def _moved(replay: _Replay, body: Body) -> str | None:
    replay.origin = body["origin"]
    return None


_EFFECTS: Final[dict[str, Callable[[_Replay, Body], str | None]]] = {
    "ledger-created": _created,
    "account-opened": _opened,
    "cap-set": _cap_set,
    "charged": _charged,
    "repeated": _repeated,
    "released": _released,
    "failed": _failed,
    "shape-frozen": _shape_frozen,
    "shape-thawed": _thawed,
    "frozen": _frozen,
    "acknowledged": _acknowledged,
    "moved": _moved,
}
# kinds that change sums; an owner's note may not have one of these names
KINDS: Final = frozenset(_EFFECTS)
