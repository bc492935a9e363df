"""What is shown of a stream: sums of noisy blocks that stand in the ledger; all of it public."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug
from sfumato.features.streams.release import Closed, Opened, closed_of, stream_op
from sfumato.features.streams.stream_plan import bound_in_words
from sfumato.query.model import query_json
from sfumato.release.accounts import data_set_account, debtors, people_account
from sfumato.release.ledger_guard import Ledger
from sfumato.release.locks.central_dp import GUARANTEE
from sfumato.release.payment import Payment, payment_json, relation, signed_payment, unit_of
from sfumato.release.receipts import INTERVAL, not_dp_json, odds_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import LedgerHead


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
    """Return what was asked and paid for the whole stream, and where its last entry stands."""
    stream = opened.stream
    names = people_account(card.people), data_set_account(card.name)
    paying = debtors(card, "", ())[:2]  # of the asker nothing is said
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
