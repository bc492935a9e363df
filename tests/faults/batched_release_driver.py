"""The small door of release_driver.py with a thread for each operation, all of them at once."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from faults.release_driver import ask, opened, say_aloud
from sfumato.dp.refusal import Bug, Refused
from sfumato.storage.anchor import FileAnchor
from support.ledger_stores import Place


def main(kind: str, where: str, anchor: str, *ops: str) -> int:
    """Ask every operation at once; say so if the store cannot."""
    ledger, mark = opened(Place(kind, where)), FileAnchor(Path(anchor))
    ledger.mark_with(mark.advance)  # as a house does
    start = threading.Barrier(len(ops))

    def one(op: str) -> None:
        start.wait()
        ask(ledger, mark, op, say_aloud)

    with ThreadPoolExecutor(len(ops)) as pool:
        asked = [pool.submit(one, op) for op in ops]
    failed = [one for one in asked if isinstance(one.exception(), Bug | Refused | OSError)]
    return 3 if failed else 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
