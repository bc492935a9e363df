"""A table without DP that an owner hands out, written down before anything of it is shown."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.core.access import Caller
from sfumato.core.asked import own_listing
from sfumato.core.ports import Catalogue
from sfumato.door.ledger import Ledger
from sfumato.door.locks.crowd import hand_out
from sfumato.dp.json_values import Json
from sfumato.services.anonymity.anonymity import Recoding


@dataclass(frozen=True)
class HandingOut:
    """The record of one vault: who handed out what of whose people."""

    ledger: Ledger
    catalogue: Catalogue

    def record(self, caller: Caller, data_set: str, how: Recoding) -> Json:
        """Write into the ledger that a table of this data set's people is handed out; say where.

        Afterwards every receipt about these people says so (soundness rule 9).
        """
        listing = own_listing(self.catalogue, caller, data_set)
        columns = ", ".join([*how.quasi, *how.sensitive, *how.keep, *how.names])
        says = f"a table of {columns} with {how.goal.in_words}, by {how.method} recoding"
        return hand_out(self.ledger, listing.card, by=caller.user, says=says)
