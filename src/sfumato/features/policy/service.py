"""The policy service: grant and revoke access to data sets; block (freeze) all queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.policy.spending import spending
from sfumato.release.charged_reads import losses
from sfumato.release.ledger_guard import Ledger
from sfumato.release.permissions import own_listing
from sfumato.vault.ports import Catalogue, Clock, Grant
from sfumato.vault.service_ports import AccessStore
from sfumato.vault.users import Caller, check_words

LATE_DAYS: Final = 7  # how many days back an owner sees reads that the host killed


@dataclass(frozen=True)
class Policy:
    """Owners' decisions on their own data sets: who may query, and freezes.

    Each decision is noted in the ledger.
    """

    ledger: Ledger
    catalogue: Catalogue
    users: AccessStore
    clock: Clock

    def grants(self, caller: Caller, data_set: str) -> list[Json]:
        """Return the grants on the data set: user, group, who granted, and when."""
        name = own_listing(self.catalogue, caller, data_set).card.name
        return [
            {"user": grant.user, "group": grant.group, "by": grant.by, "at": grant.at}
            for grant in self.catalogue.grants(name)
        ]

    def enrolled(self, caller: Caller, data_set: str) -> list[Json]:
        """Return the users who may query the data set as members of a group of its data card."""
        who = own_listing(self.catalogue, caller, data_set).card.who
        return [
            {"user": user, "group": group}
            for user, group in self.catalogue.enrolled()
            if group in who
        ]

    def grant(self, caller: Caller, data_set: str, user: str, group: str | None) -> Json:
        """Make a known user a member of a group of the data card, for this data set only."""
        card = own_listing(self.catalogue, caller, data_set).card
        group = group or (card.who[0] if len(card.who) == 1 else "")
        if group not in card.who:
            raise Refused(
                "bad-request",
                "The data card does not allow this group to ask questions.",
                f"It allows: {', '.join(card.who) or 'nobody'}. To allow another group, add it "
                "to who under [ask] on the card.",
            )
        check_words(user, group)
        if self.users.user(user) is None:
            raise Refused(
                "unknown-user",
                f"There is no user {user!r}.",
                "Ask an operator to invite this user first.",
            )
        made = Grant(card.name, user, group, caller.user, self.clock.now())
        self.ledger.note(
            "granted",
            {"data_set": card.name, "user": user, "group": group, "by": caller.user},
        )
        self.catalogue.grant(made)
        return {"user": user, "group": group, "by": made.by, "at": made.at}

    def revoke_grant(self, caller: Caller, data_set: str, user: str) -> Json:
        """Revoke all of a user's grants on the data set; what they spent stays spent."""
        name = own_listing(self.catalogue, caller, data_set).card.name
        check_words(user)
        if user not in {grant.user for grant in self.catalogue.grants(name)}:
            raise Refused(
                "unknown-user",
                "This user has no grant for this data set, so there is none to revoke.",
                "Take the user's name from the list of the data set's grants.",
            )
        # first, so that the user has no access even after a crash
        self.catalogue.revoke(name, user)
        self.ledger.note("grant-revoked", {"data_set": name, "user": user, "by": caller.user})
        return {"revoked": user}

    def spending(self, caller: Caller, data_set: str) -> Json:
        """Return what each account spent and on which queries, without answers or row counts."""
        card = own_listing(self.catalogue, caller, data_set).card
        return {**spending(self.ledger, card), "frozen": self.catalogue.is_frozen(card.name)}

    def freeze(self, caller: Caller, data_set: str) -> Json:
        """Freeze the data set: nobody can query it on any node until it is thawed.

        Every call writes a ledger entry, even if the data set is frozen already. Writing it waits
        for all charges that were made before the freeze. An earlier freeze may also have crashed
        before its entry.
        """
        name = own_listing(self.catalogue, caller, data_set).card.name
        self.catalogue.freeze(name, caller.user, self.clock.now())
        self.ledger.note("data-set-frozen", {"data_set": name, "by": caller.user})
        return {"data_set": name, "frozen": True}

    def thaw(self, caller: Caller, data_set: str) -> Json:
        """Allow queries on the data set again, after a freeze."""
        name = own_listing(self.catalogue, caller, data_set).card.name
        if self.catalogue.is_frozen(name):
            self.ledger.note("data-set-thawed", {"data_set": name, "by": caller.user})
            self.catalogue.thaw(name)
        return {"data_set": name, "frozen": False}

    def frozen_questions(self, caller: Caller, data_set: str) -> list[Json]:
        """Return the blocked question shapes of the data set, each with its last query.

        A shape is a question without its constants.
        """
        name = own_listing(self.catalogue, caller, data_set).card.name
        waiting = set(self.ledger.store.frozen_shapes())
        found: dict[str, Json] = {}
        for entry in self.ledger.store.entries() if waiting else ():
            body = json.loads(entry.body) if entry.kind == "charged" else {}
            shape = str(body.get("shape"))
            if shape in waiting and body["body"]["data_set"] == name:
                said = {"user": str(body["user"]), "says": str(body["body"]["says"])}
                found[shape] = {"shape": shape, "at": entry.at, **said}
        return list(found.values())

    def lost_readings(self, caller: Caller, data_set: str) -> list[Json]:
        """Return how often the machine killed a read of the data set in the last days, by cause."""
        name = own_listing(self.catalogue, caller, data_set).card.name
        late = datetime.fromisoformat(self.clock.now()) - timedelta(days=LATE_DAYS)
        return losses(self.ledger.store, name, late.isoformat(timespec="milliseconds"))

    def thaw_question(self, caller: Caller, data_set: str, shape: str) -> Json:
        """Allow a blocked question shape (a question without its constants) again."""
        if shape not in {one["shape"] for one in self.frozen_questions(caller, data_set)}:
            raise Refused(
                "answer-unknown",
                "No frozen question of this data set has this shape (a question without "
                "its constants).",
                "Take the shape from the list of the data set's frozen questions.",
            )
        self.ledger.note("question-thawed", {"shape": shape, "by": caller.user})
        self.ledger.thaw_shape(shape)
        return {"thawed": shape}
