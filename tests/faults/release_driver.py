"""A small door: charge, read, settle, say the answer; killed at every point by test_kills.py.

Says `charged <op>` once a charge is durable and `answer <op> <text>` when an answer goes out.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sfumato.dp.refusal import Bug, Refused
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import Charged, OperationState
from support import ledger_stores
from support.ledger_stores import Place


def ask(ledger: SqlLedger, anchor: FileAnchor, op: str, say: Callable[[str], None]) -> None:
    """Answer one question, in the order that never gives an answer away."""
    outcome = ledger.charge(ledger_stores.asked(op, f"q{op}"), anchor.read())
    if not isinstance(outcome, Charged | OperationState):
        raise Bug("the driver asks for what it can pay")
    anchor.advance(outcome.head)
    say(f"charged {op}")
    if isinstance(outcome, OperationState):
        return say(f"answer {op} {outcome.answer}")
    noisy = secrets.token_hex(8)  # stands for rows read and noise drawn: another one each time
    settled = ledger.settle("ann", op, noisy, (), anchor.read())
    anchor.advance(settled.head)
    return say(f"answer {op} {settled.answer}")


def say_aloud(line: str) -> None:
    """Print a line, past every buffer."""
    os.write(1, f"{line}\n".encode())


def opened(place: Place) -> SqlLedger:
    """Return the ledger, made if it is not there."""
    try:
        return place.open()
    except Refused as refusal:
        if refusal.code != "vault-missing":
            raise
    return place.create()


def main(kind: str, where: str, anchor: str, *ops: str) -> int:
    """Ask every operation; say so if the store cannot."""
    try:
        ledger = opened(Place(kind, where))
        for op in ops:
            ask(ledger, FileAnchor(Path(anchor)), op, say_aloud)
        ledger.close()
    except (Bug, Refused, OSError):
        return 3
    return 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
