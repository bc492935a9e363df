"""Release streams (continual counting): charge all at opening, close periods, read for free.

To close a period: draw noise, count, add the noise, save the noisy block, write the block into the
ledger. After a kill, the next process writes the saved block, so no noise is drawn twice. Only the
ledger decides which periods are closed. The proof of the price is
dp/mechanisms/continual_counting.proof.md. tests/faults/test_stream_kills.py kills the process at
every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Never

import numpy as np

from sfumato.dp.accounting.privacy_events import PureEvent, privacy_cost
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.streams.stream_plan import (
    Stream,
    bound_in_words,
    plan_of_period,
    stream_in_words,
    stream_of,
)
from sfumato.query.expression import canonical_json
from sfumato.query.model import query_json
from sfumato.release.accounts import data_set_account, debtors, people_account
from sfumato.release.charged_reads import attempt_read
from sfumato.release.guarantees.central_dp import GUARANTEE, add_noise
from sfumato.release.ledger_guard import Ledger
from sfumato.release.noise_pool import NoisePool
from sfumato.release.payment import (
    Payment,
    on_card,
    payment_json,
    relation,
    signed_payment,
    unit_of,
)
from sfumato.release.plan_description import digest
from sfumato.release.receipts import INTERVAL, not_dp_json, odds_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import CountPeriodOrder, PeriodState, StreamEngine, StreamStates
from sfumato.vault.ledger_entries import Charge, Charged, LedgerHead, Pending
from sfumato.vault.ports import Listing

FORMAT: Final = "stream/1"
CLOSED: Final = "stream-closed"  # kind of ledger entry: a closed period


@dataclass(frozen=True)
class StreamDoor:
    """What the releases of a stream need: ledger, engine, noise pool and private state store."""

    ledger: Ledger
    engine: StreamEngine
    pool: NoisePool
    kept: StreamStates


@dataclass(frozen=True)
class Opened:
    """An open stream: its price is paid, and `seq` is the position of the charge in the ledger."""

    stream: Stream
    opener: str
    seq: int
    epoch: int
    says: str

    @property
    def id(self) -> str:
        """Return the stream's id in the ledger and in the store of private state."""
        return stream_id(self.stream.data_set, self.stream.name)


@dataclass(frozen=True)
class Closed:
    """A closed period, as its ledger entry records it: noisy block, token and data version."""

    end: int
    block: int
    token: str
    version: str
    seq: int


def stream_id(data_set: str, name: str) -> str:
    """Return the id of a stream, `data_set.name`, in lower case; neither name contains a point."""
    return f"{data_set}.{name}".casefold()


def open_stream(ledger: Ledger, card: Card, stream: Stream, opener: str) -> Opened:
    """Open a stream: charge the whole price of all its periods; or refuse.

    The same terms again return the stream and pay nothing.
    """
    charge = _charge(card, stream, opener)
    is_taken = False
    try:
        outcome = ledger.charge(charge)
    except Refused as refused:
        if refused.code != "op-reused":
            raise
        is_taken = True
    if is_taken:
        raise Refused(
            "stream-exists",
            f"A stream (running count) {stream.name!r} of {stream.data_set!r} already exists, "
            "with another question, price or horizon.",
            "An open stream cannot be changed. Choose another name.",
        )
    if isinstance(outcome, Pending):
        raise Bug("an opening waits for nobody")
    if isinstance(outcome, Charged):
        ledger.settle(opener, charge.op, _opening(ledger, card, stream, charge, outcome.seq))
    found = find_stream(ledger, opener, stream.data_set, stream.name)
    if found is None:
        raise Bug("a stream was opened and is not there")
    return found


def _opening(ledger: Ledger, card: Card, stream: Stream, charge: Charge, seq: int) -> str:
    """Return the stream's terms as text, which the ledger stores as the opening's answer."""
    entry = ledger.store.entry(seq)
    if entry is None:
        raise Bug("a charge is not in the ledger")
    said = {"format": FORMAT, "version": card.version, "seq": seq, "epoch": entry.epoch}
    return canonical_json({**said, "says": charge.body["says"], "stream": stream.as_json()})


def find_stream(ledger: Ledger, opener: str, data_set: str, name: str) -> Opened | None:
    """Return the stream that was opened under this name, or None."""
    text = ledger.answer_of(opener, stream_op(data_set, name))
    body: dict[str, Any] = {} if text is None else json.loads(text)  # Any: JSON of our own ledger
    # it is no stream if it has no answer, or is a query under this operation id
    if body.get("format") != FORMAT:
        return None
    return Opened(stream_of(body["stream"]), opener, body["seq"], body["epoch"], body["says"])


def closed_of(ledger: Ledger, opened: Opened) -> tuple[Closed, ...]:
    """Return the closed periods of the stream in order, as the ledger records them.

    Only the first ledger entry of each period counts.
    """
    found: list[Closed] = []
    for entry in ledger.store.entries(opened.seq):
        if entry.kind != CLOSED:
            continue
        body = json.loads(entry.body)
        if body["stream"] == opened.id and body["end"] == len(found) + 1:
            made = body["end"], body["block"], body["token"], body["version"]
            found.append(Closed(*made, entry.seq))
    return tuple(found)


def close_periods(
    doors: StreamDoor,
    listing: Listing,
    opened: Opened,
    until: int,
    *,
    may_still: Callable[[], None] = lambda: None,
) -> int:
    """Close every open period up to `until`, and return how many were closed.

    Each period is durable before the next one begins. `may_still` runs before each period, and
    refuses if the data set is frozen; periods that are closed already remain closed.
    """
    with doors.kept.lock(opened.id):
        doors.ledger.check_history()
        _check_epoch(doors.ledger, opened)
        closed = list(closed_of(doors.ledger, opened))
        before = len(closed)
        _check_order(opened.stream, before, until)
        for end in range(before + 1, until + 1):
            may_still()
            closed.append(_close(doors, listing, opened, end, closed[-1] if closed else None))
        return until - before


def _check_epoch(ledger: Ledger, opened: Opened) -> None:
    """Refuse if the ledger has lost entries: one may have been a closed period of this stream."""
    if ledger.store.head().epoch != opened.epoch:
        raise _lost("The ledger has lost entries since the stream was opened.")


def _check_order(stream: Stream, closed: int, until: int) -> None:
    if not closed < until <= stream.periods:
        unit = stream.unit
        open_ = (
            f"The next period to close is that of {stream.day(closed + 1)}."
            if closed < stream.periods
            else "No period is left to close."
        )
        raise Refused(
            "stream-out-of-order",
            f"A stream closes (releases) its {unit}s in order, each once. {closed:,} of "
            f"{stream.periods:,} are closed, and the one that you asked for is among them or "
            "after the last.",
            open_,
        )


# --- one period ---------------------------------------------------------------------------------


def _close(
    doors: StreamDoor, listing: Listing, opened: Opened, end: int, before: Closed | None
) -> Closed:
    follows = opened_token(doors.ledger, opened) if before is None else before.token
    kept = doors.kept.find(opened.id, end)
    if kept is None:
        kept = _taken(doors, listing, opened, end, before)
    words: dict[str, Any] = kept.words  # Any: JSON of a file of our own
    if (words["stream"], words["end"], words["follows"]) != (opened.id, end, follows):
        raise _lost("The stored state of the stream does not match the ledger.")
    said = {key: words[key] for key in ("stream", "end", "block", "token", "version")}
    head = doors.ledger.note(CLOSED, {**said, "data_set": listing.card.name, "says": opened.says})
    doors.kept.drop_before(opened.id, end)
    return Closed(end, words["block"], words["token"], words["version"], head.seq)


def opened_token(ledger: Ledger, opened: Opened) -> str:
    """Return the hash of the ledger entry that opened the stream; its first period names it."""
    entry = ledger.store.entry(opened.seq)
    if entry is None:
        raise Bug("a stream's opening is not in the ledger")
    return entry.hash


def _taken(
    doors: StreamDoor, listing: Listing, opened: Opened, end: int, before: Closed | None
) -> PeriodState:
    """Count the period's rows, add noise, and save the noisy block with the private state.

    The private state holds how many rows each person has used. Every error of the engine becomes
    the same refusal, `stream-failed`.
    """
    follows, used = opened_token(doors.ledger, opened), None
    if before is not None:
        follows, used = before.token, _used_before(doors.kept, opened, before)
    # this can refuse only for reasons on the card
    plan = plan_of_period(listing.card, opened.stream, end)
    where = plan.measure.where
    if where is None:
        raise Bug("a period without an end")
    words: Json = {
        "stream": opened.id,
        "end": end,
        "follows": follows,
        "token": doors.pool.dice.draw(16).hex(),
        "version": listing.card.version,
    }

    def look() -> PeriodState:
        with doors.kept.draft(opened.id) as target:
            order = CountPeriodOrder(
                listing.table,
                where,
                opened.stream.rows,
                end,
                opened.stream.first_of_block(end),
                used,
                target,
                plan.measure.max_table_rows,
            )
            block = _blurred(doors, opened.stream, order)
            return doors.kept.save(opened.id, end, target, {**words, "block": block})

    kept, _ = attempt_read(look)
    if kept is None:
        _failed()
    return kept


def _blurred(doors: StreamDoor, stream: Stream, order: CountPeriodOrder) -> int:
    """Return the noisy count of the period's block in the tree mechanism.

    The noise is drawn before any row is read.
    """
    draw = doors.pool.take(stream.running.noise, 1)
    (part,) = add_noise(doors.engine.count_period(order), (0,), (draw,), doors.pool.dice).parts
    return int(part[0])


def _used_before(kept: StreamStates, opened: Opened, before: Closed) -> str:
    found = kept.find(opened.id, before.end)
    if found is None or found.words["token"] != before.token:
        raise _lost(
            "The record of what each person has used of the stream is missing, or is not the "
            "newest."
        )
    return found.used


def _failed() -> Never:
    raise Refused(
        "stream-failed",
        "The period of the stream could not be counted, and nothing of it was released.",
        "Close the period again. If it fails again, give the engine more memory and time, or add "
        "the rows again.",
    )


def _lost(cause: str) -> Refused:
    return Refused(
        "stream-lost",
        cause,
        "No more periods can be closed, but the closed ones stay readable. Open another stream.",
    )


# --- the price ------------------------------------------------------------------------------------


def stream_op(data_set: str, name: str) -> str:
    """Return the operation id under which the opener pays for the stream of that name."""
    return f"stream {stream_id(data_set, name)}"


def _charge(card: Card, stream: Stream, opener: str) -> Charge:
    event, terms = PureEvent(stream.epsilon), stream.as_json()
    shape = digest({"stream": stream_id(card.name, stream.name)})
    return Charge(
        user=opener,
        op=stream_op(card.name, stream.name),
        request=digest(terms),
        answer_key=digest({"stream": terms, "people": card.people, "opener": opener}),
        shape=shape,
        debtors=debtors(card, opener, ()),
        debt=privacy_cost(event),
        body={
            "stream": terms,
            "question": query_json(stream.question),
            "says": stream_in_words(card, stream),
            "shape": shape,
            **on_card(card),
            "guarantee": GUARANTEE,
            "event": event.name,
            "epsilon": str(stream.epsilon),
            "delta": "0",
            "noise": [stream.running.as_json()],
        },
    )


# --- Show a stream: sums of noisy blocks from the ledger, all of them public


def stream_answer(ledger: Ledger, card: Card, opened: Opened) -> Json:
    """Return the running count of every closed period with its error, and a receipt; free."""
    stream, closed = opened.stream, closed_of(ledger, opened)
    running = stream.running
    blocks = np.zeros(stream.periods, dtype=np.int64)
    blocks[: len(closed)] = [one.block for one in closed]
    values = running.prefixes(blocks)[: len(closed)].tolist()
    count = len(closed)
    pairs = zip(values, running.margins()[:count], strict=True)
    bars = [[value - margin, value + margin] for value, margin in pairs]
    days = [stream.day(end) for end in range(1, count + 1)]
    nothing: list[object] = [None] * count
    columns = [
        (days, nothing, nothing) if output.of in stream.question.group_by else
        (values, running.stds()[:count], bars)
        for output in stream.question.outputs
    ]  # fmt: skip
    return {
        "columns": [output.name for output in stream.question.outputs],
        "rows": [list(row) for row in zip(*(c[0] for c in columns), strict=True)],
        "std": [list(row) for row in zip(*(c[1] for c in columns), strict=True)],
        "interval": [list(row) for row in zip(*(c[2] for c in columns), strict=True)],
        "guarantee": GUARANTEE,
        "receipt": _receipt(ledger, card, opened, closed),
    }


def _receipt(ledger: Ledger, card: Card, opened: Opened, closed: tuple[Closed, ...]) -> Json:
    """Return the signed receipt of the whole stream, with the position of its last ledger entry."""
    stream = opened.stream
    names = people_account(card.people), data_set_account(card.name)
    paying = debtors(card, "", ())[:2]  # without the asker's own account
    accounts = ledger.paying(paying)
    seq = closed[-1].seq if closed else opened.seq
    entry = ledger.store.entry(seq)
    if entry is None:
        raise Bug("an entry of a stream is not in the ledger")
    paid = Payment(stream_op(card.name, stream.name), stream.epsilon, Fraction(0), by=())
    at = LedgerHead(ledger.store.head().ledger, entry.epoch, seq, entry.hash)
    signed = signed_payment(paid, at, opened.seq)
    signed |= {"stream": opened.id, "closed": len(closed)}
    return {
        **payment_json(paid, seq, card.name, accounts),
        "stream": {**stream.as_json(), "closed": len(closed)},
        "says": opened.says,
        "question": query_json(stream.question),
        "data_set": card.name,
        "version": closed[-1].version if closed else card.version,
        "people": card.people,
        "guarantee": GUARANTEE,
        "unit": unit_of(card),
        "relation": relation(card),
        "bounding": bound_in_words(stream),
        "mechanism": stream.running.as_json()["kind"],
        "split": [],
        "odds": odds_of(accounts[names[0]], "person"),
        "interval": INTERVAL,
        **not_dp_json(ledger, card.people),
        **ledger.sign(signed),
    }
