"""Write a ledger entry before an owner hands out a table without differential privacy."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.dp.json_values import Json
from sfumato.features.anonymization.service import Recoding
from sfumato.release.guarantees.k_anonymity import hand_out
from sfumato.release.ledger_guard import Ledger
from sfumato.release.permissions import own_listing
from sfumato.vault.ports import Catalogue
from sfumato.vault.users import Caller


@dataclass(frozen=True)
class HandingOut:
    """Records in a vault's ledger that a table without differential privacy is handed out."""

    ledger: Ledger
    catalogue: Catalogue

    def record(self, caller: Caller, data_set: str, how: Recoding) -> Json:
        """Record in the ledger that a table of this data set's people is handed out, without DP.

        Returns the entry. Every later receipt about these people states the hand-out (soundness
        rule 9).
        """
        listing = own_listing(self.catalogue, caller, data_set)
        columns = ", ".join([*how.quasi, *how.sensitive, *how.keep, *how.names])
        says = f"a table of {columns} with {how.goal.in_words}, by {how.method} recoding"
        return hand_out(self.ledger, listing.card, by=caller.user, says=says)
