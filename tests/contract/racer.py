"""One of many processes that race for the last debits; prints how many it got."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sfumato.vault.ledger_entries import Charged
from support.ledger_stores import Place, asked


def main(kind: str, where: str, racer: str) -> None:
    """Ask for twenty debits as soon as the starter says go."""
    ledger = Place(kind, where).open(wait_s=60)
    print("ready", flush=True)
    sys.stdin.readline()
    charges = (asked(f"{racer}.{n}", f"q{racer}.{n}", user=f"u{racer}") for n in range(20))
    print(sum(isinstance(ledger.charge(charge), Charged) for charge in charges), flush=True)
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
