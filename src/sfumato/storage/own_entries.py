"""Which entries this process has written itself, one after the other, none of them a note."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.vault.ledger_entries import LedgerHead


@dataclass(frozen=True)
class OwnEntries:
    """A run of the chain: the head that it began after, and the head that it ends with."""

    begun: LedgerHead | None = None
    end: LedgerHead | None = None

    def grown(self, begun: LedgerHead, end: LedgerHead, *, has_notes: bool) -> OwnEntries:
        """Return the run with what one more transaction wrote between these heads.

        What another process wrote between two of ours, or another history, begins it anew; so
        does a new epoch. A note ends it: whoever looks for notes must look there.
        """
        if has_notes:
            return OwnEntries(end, end)
        goes_on = self.end == begun and begun.epoch == end.epoch
        return OwnEntries(self.begun if goes_on else begun, end)

    def covers(self, after: int, until: int) -> bool:
        """Say whether all entries above the one number and up to the other are of this run."""
        if self.begun is None or self.end is None:
            return False
        return self.begun.seq <= after and until <= self.end.seq
