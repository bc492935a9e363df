"""The auditor's service: the whole ledger, answer sheets and access rights; no rows, no answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.audit.answer_sheet import entry_json, reviewed_sheet, sheet
from sfumato.features.audit.reviewed_releases import (
    SHOWN,
    is_reviewed,
    reviewed_json,
    reviewed_releases,
)
from sfumato.features.surveys.release import respondent_account
from sfumato.release.accounts import cap_json, spent_json, window_json
from sfumato.release.ledger_guard import NOT_DP, Ledger
from sfumato.vault.card.card_json import card_json
from sfumato.vault.ledger_entries import Account, Entry
from sfumato.vault.ports import Catalogue
from sfumato.vault.service_ports import AccessStore

PAGE: Final = 200


@dataclass(frozen=True)
class Audit:
    """Lets an auditor read one vault's ledger, answer sheets and access rights."""

    ledger: Ledger
    catalogue: Catalogue
    access: AccessStore

    def entries(self, after: int, limit: int) -> Json:
        """Return a page of ledger entries, in order, and the ledger's head."""
        found: list[Entry] = []
        for entry in self.ledger.store.entries(after):
            if len(found) == limit:
                break
            found.append(entry)
        head = self.ledger.store.head()
        return {
            "entries": [entry_json(entry) for entry in found],
            "head": {
                "ledger": head.ledger, "epoch": head.epoch, "seq": head.seq, "hash": head.hash,
            },
            "next": found[-1].seq if len(found) == limit else None,
        }  # fmt: skip

    def verified(self) -> Json:
        """Verify the whole hash chain, every account's sum and the anchor; return the result."""
        return self.ledger.verified()

    def present(self, receipt: Json) -> Json:
        """Return whether the ledger contains the entry that a receipt names.

        If the vault signed the receipt and the entry is gone, the ledger freezes.
        """
        return {"stands": self.ledger.has_receipt(receipt)}

    def releases(self, before: int, limit: int, data_set: str | None) -> Json:
        """Return a page of charged queries and airlock (output checking) releases, newest first.

        The page contains neither answers nor files.
        """
        charges = self.ledger.store.charges(before, limit, data_set=data_set)
        reviewed = reviewed_releases(self.ledger.store, before, data_set)
        both = sorted((*charges, *reviewed), key=lambda entry: -entry.seq)
        found = both[:limit]
        return {
            "releases": [
                reviewed_json(self.ledger.store, entry)
                if entry.kind == NOT_DP
                else _release_json(entry)
                for entry in found
            ],
            "next": found[-1].seq if len(found) == limit else None,
        }

    def sheet(self, seq: int) -> Json:
        """Return the signed record (answer sheet) of one release; refuse other ledger entries."""
        entry = self.ledger.store.entry(seq)
        if entry is not None and is_reviewed(entry):
            return reviewed_sheet(self.ledger, entry)
        if entry is None or entry.kind not in ("charged", "repeated") or _is_of_a_ballot(entry):
            raise Refused(
                "answer-unknown",
                f"Ledger entry {seq} is not a release, so it has no answer sheet.",
                "Choose the number of an entry in the list of releases (page Releases, or GET "
                "/v1/releases).",
            )
        return sheet(self.ledger, entry)

    def policies(self) -> Json:
        """Return every signed data card, the grants, the caps, and the users' roles.

        `history` is None, or the reason why users may have spent more than the accounts say.
        """
        listings = [self.catalogue.find(name) for name in self.catalogue.names()]
        refusal = self.ledger.history_fault()
        return {
            "history": None if refusal is None else refusal.cause,
            "cards": [card_json(card) for card in self.catalogue.cards()],
            "owners": {x.card.name: x.owner for x in listings if x is not None},
            "grants": [
                {"data_set": g.data_set, "user": g.user, "group": g.group, "by": g.by, "at": g.at}
                for name in self.catalogue.names()
                for g in self.catalogue.grants(name)
            ],
            "enrolled": [{"user": user, "group": team} for user, team in self.catalogue.enrolled()],
            "accounts": [
                _account_json(account)
                for account in self.ledger.every_account()
                if not account.name.startswith(respondent_account(""))
            ],
            "users": [
                {"user": u.name, "roles": list(u.roles), "blocked": u.is_blocked}
                for u in self.access.users()
            ],
        }


def _is_of_a_ballot(entry: Entry) -> bool:
    """Return True if a charge is for a survey respondent's report, which has no answer sheet."""
    return str(json.loads(entry.body)["user"]).startswith("survey/")


def _release_json(entry: Entry) -> Json:
    said: dict[str, Any] = json.loads(entry.body)  # Any: JSON of the ledger
    return {
        "entry": entry.seq,
        "at": entry.at,
        "user": said["user"],
        "charged": sorted(said["debits"]),
        "repeated": entry.kind == "repeated",
        "reviewed": None,
        **{key: said["body"].get(key) for key in SHOWN},
    }


def _account_json(account: Account) -> Json:
    return {
        "account": account.name,
        "cap": cap_json(account),
        "spent": spent_json(account),
        **window_json(account),
    }
