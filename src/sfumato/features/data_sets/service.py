"""The data set service for owners: add and amend data sets, sign data cards, manage budgets."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from sfumato.dp.accounting.privacy_filter import Cap, cap_from_budget, is_raised
from sfumato.dp.budget import EPSILON_UNITS, Budget, read_delta, read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.add_lock import add_lock, wait_add_lock
from sfumato.features.data_sets.add_report_files import AddReports
from sfumato.features.data_sets.card_amendment import amended, check_in_force
from sfumato.features.data_sets.card_consistency import check_against_signed, check_raise
from sfumato.features.data_sets.card_text import card_shape, card_text
from sfumato.features.data_sets.earlier_versions_service import (
    remove_earlier_versions as forget_earlier,
)
from sfumato.features.data_sets.row_source import Source
from sfumato.features.data_sets.same_people import confirmed_pairs, same_people
from sfumato.release.accounts import (
    cap_in_all,
    data_set_account,
    group_account,
    people_account,
    user_account,
)
from sfumato.release.charged_reads import losses
from sfumato.release.guarantees.k_anonymity import OWNER_ONLY, owners_draft, owners_report
from sfumato.release.ledger_guard import Ledger
from sfumato.release.permissions import own_listing
from sfumato.system.csv_writer import of_values
from sfumato.vault.add_report import TableReport
from sfumato.vault.budget_windows import windows_stay
from sfumato.vault.card.bids import DESCRIPTION
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import Card, check_unit, read_card
from sfumato.vault.encryption_at_rest import AtRest
from sfumato.vault.engine_port import (
    AppendEngine,
    AppendOrder,
    Described,
    Engine,
    EngineStopped,
    FolderDraft,
    Prepared,
    PrepareOrder,
    WithdrawOrder,
    not_appendable,
    not_withdrawable,
)
from sfumato.vault.ledger_entries import LedgerHead
from sfumato.vault.ports import Catalogue, Listing
from sfumato.vault.users import Caller, check_words

OWNER: Final = (
    "owner"  # the user name of an embedded vault's owner; see docs/explanation/sharp-edges.md
)


# prepares rows to a table and a sketch of its people; returns the owner's report
Prepare = Callable[[tuple[Path, Path]], tuple[TableReport, ...]]


@dataclass(frozen=True)
class Withdrawn:
    """The result of removing a person: the new version, and what the owner should look at."""

    card: Card
    removed: int  # how many earlier tables were deleted
    others: tuple[str, ...]  # other data sets about the same people

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return self.card.name

    @property
    def version(self) -> str:
        """Return the name of the new version."""
        return self.card.version


@dataclass(frozen=True)
class DataSets:
    """Adds and amends the data sets of one vault, and manages their privacy budgets."""

    ledger: Ledger
    engine: Engine
    catalogue: Catalogue
    dice: RandomSource
    salt: bytes
    folder: Path
    rest: AtRest | None = None  # if the rows are encrypted, this encrypts the reports next to them

    @property
    def reports(self) -> AddReports:
        """Return the store of the owner's reports on how `add` read the rows."""
        return AddReports(self.folder / "tables", self.rest)

    def add_report(self, caller: Caller, name: str) -> Json:
        """Return the owner's report on how `add` read the rows of the caller's own data set."""
        listing = own_listing(self.catalogue, caller, name)
        found = self.reports.find(Path(listing.table).stem) or {"tables": []}
        return {
            "data_set": listing.card.name,
            "version": listing.card.version,
            "label": OWNER_ONLY,
            **found,
        }

    def add(
        self, name: str, source: Source, shape: Mapping[str, object], owner: str = OWNER
    ) -> Card:
        """Add a data set: prepare its rows, make its card current, and sign the card.

        The signed card is noted in the ledger.
        """
        check_unit(shape)
        shape = self._with_description(source, shape)
        with wait_add_lock(self.folder / "add.lock"):
            return self._add(read_card(name, shape), source, shape, owner)

    def _with_description(
        self, source: Source, shape: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Add the folder's dataset_description.json to a card that has none of its own.

        Refuse if it has a participant's id or a value of few people, because it becomes public.
        """
        made = source.with_description(shape)
        if made is shape or source.folder is None:
            return made
        notes = self.draft_folder(source.folder).notes
        if any(where == DESCRIPTION or where.startswith(f"{DESCRIPTION}: ") for where, _ in notes):
            raise Refused(
                "bad-card",
                f"The folder's {DESCRIPTION} would become public, but it contains a participant's "
                "id, or a value that few people have.",
                "Run `sfumato add NAME FOLDER` without --card. It shows where, and drafts "
                "[bids.description] without it. Put that on the card.",
            )
        return made

    def _add(self, card: Card, source: Source, shape: Mapping[str, object], owner: str) -> Card:
        self._check_owner(card, owner)
        self._sign_what_stands(card.name)
        self._check_new(card, source.different_people, owner)
        self._check_others(card, source.different_people, owner)
        before = self.catalogue.find(card.name)
        prepare = partial(self._prepare, card, source, owner=owner)
        self._put(Listing(card, "", owner), shape, prepare)
        self._sign(card, None if before is None else before.card, source.different_people)
        return card

    def _put(
        self, listing: Listing, shape: Mapping[str, object], prepare: Prepare, stem: str = ""
    ) -> None:
        """Prepare rows to new files, and make their data card current; leave no file otherwise.

        The files have the name `stem`, or a random one if it is empty.
        """
        stem = stem or self.dice.draw(12).hex()
        self._sweep()
        table, sketch = self._table(stem), self.folder / "people" / f"{stem}.json"
        kept = False
        try:
            self.reports.keep(stem, prepare((table, sketch)))
            made = replace(listing, table=str(table))
            self.catalogue.put(made, card_text(shape), listing.card.people, str(sketch))
            kept = True
        finally:
            if not kept:
                self._drop(table, sketch)

    def append(self, caller: Caller, name: str, source: Source, version: str) -> Card:
        """Append rows to the caller's data set: make a new version of earlier and new rows.

        Only the new rows are prepared. The data card stays, except for its version. The version has
        the same people, and so the same privacy budget.
        """
        with wait_add_lock(self.folder / "add.lock"):
            listing = own_listing(self.catalogue, caller, name)
            self._sign_what_stands(listing.card.name)
            shape = card_shape(self.catalogue.text(listing.card.name))
            card, made = amended(listing.card, shape, {"version": version, "appended": True})
            second = source.different_people
            self._check_new(card, second, caller.user)
            self._check_others(card, second, caller.user)
            prepare = partial(self._prepare_more, replace(listing, card=card), source)
            self._put(replace(listing, card=card), made, prepare, source.stem)
            self._sign(card, listing.card, second)
            return card

    def own_shape(self, caller: Caller, name: str) -> Mapping[str, object]:
        """Return the stored shape of the caller's current data card."""
        listing = own_listing(self.catalogue, caller, name)
        return card_shape(self.catalogue.text(listing.card.name))

    def check_append(self, caller: Caller, name: str, version: str) -> Card:
        """Refuse rows that cannot be appended to the caller's data set; return the new card."""
        listing = own_listing(self.catalogue, caller, name)
        shape = card_shape(self.catalogue.text(listing.card.name))
        card, _ = amended(listing.card, shape, {"version": version})
        for signed in self.catalogue.cards():
            check_against_signed(card, signed)
        if self.rest is not None or not isinstance(self.engine, AppendEngine):
            raise not_appendable()
        return card

    def recover_append(self, caller: Caller, name: str, stem: str, who: str | None) -> bool:
        """Return True if an interrupted append had already made its version current.

        Its table is named by the job that appends, so no other version is taken for it. In that
        case, sign the card.
        """
        with wait_add_lock(self.folder / "add.lock"):
            listing = own_listing(self.catalogue, caller, name)
            if Path(listing.table).stem != stem:
                return False
            self._sign_what_stands(listing.card.name, who)
            return True

    def forget_person(self, caller: Caller, name: str, person: str, version: str) -> Withdrawn:
        """Remove one person's rows from the caller's data set, as a new version.

        Earlier versions of the data set are deleted from the disk. The ledger records that somebody
        was removed, and not who. The people's privacy budget stays.
        """
        with add_lock(self.folder / "add.lock"):
            listing = own_listing(self.catalogue, caller, name)
            self._sign_what_stands(listing.card.name)
            shape = card_shape(self.catalogue.text(listing.card.name))
            card, made = amended(listing.card, shape, {"version": version})
            self._check_new(card, None, caller.user)
            if not isinstance(self.engine, AppendEngine):
                raise not_withdrawable()
            order = WithdrawOrder(listing.table, card, self.salt, person, "", ("", ""))
            self._put(replace(listing, card=card), made, partial(self._withdraw, order))
            self._sign(card, listing.card, None)
            self.ledger.note("person-removed", {"data_set": card.name, "version": version})
            tables = self.folder / "tables"
            removed = forget_earlier(
                self.catalogue, self.engine, self.ledger, tables, self.reports, card.name
            )
            return Withdrawn(card, removed, self._others_of(card))

    def _withdraw(self, order: WithdrawOrder, places: tuple[Path, Path]) -> tuple[TableReport, ...]:
        """Copy the rows without the person; a copy has no report of its own."""
        table, sketch = places
        before = self.folder / "people" / f"{Path(order.before).stem}.json"
        made = replace(order, target=str(table), sketches=(str(before), str(sketch)))
        if isinstance(self.engine, AppendEngine):
            self.engine.withdraw(made)
        return ()

    def _others_of(self, card: Card) -> tuple[str, ...]:
        """Return the names of the other data sets about the same people."""
        listings = [self.catalogue.find(name) for name in self.catalogue.names()]
        cards = [found.card for found in listings if found is not None]
        return tuple(c.name for c in cards if c.people == card.people and c.name != card.name)

    def amend(
        self,
        caller: Caller,
        name: str,
        changes: Mapping[str, object],
        instead_of: str | None = None,
    ) -> Card:
        """Amend the caller's data card: make a new version current, on the same prepared rows.

        If `instead_of` is given, refuse unless it is the current version.
        """
        with add_lock(self.folder / "add.lock"):
            listing = own_listing(self.catalogue, caller, name)
            self._sign_what_stands(listing.card.name)
            check_in_force(listing.card, instead_of)
            shape = card_shape(self.catalogue.text(listing.card.name))
            card, made = amended(listing.card, shape, changes)
            self._check_new(card, None, caller.user)
            sketch = self.folder / "people" / f"{Path(listing.table).stem}.json"
            self.catalogue.put(
                replace(listing, card=card), card_text(made), card.people, str(sketch)
            )
            self._sign(card, listing.card, None)
            return card

    def recover_add(
        self, name: str, shape: Mapping[str, object], owner: str, who: str | None
    ) -> bool:
        """Return True if an interrupted add had already made this data card current.

        In that case, sign the card.
        """
        with wait_add_lock(self.folder / "add.lock"):
            listing = self.catalogue.find(name)
            if listing is None or listing.owner != owner or listing.card != read_card(name, shape):
                return False
            self._sign_what_stands(name, who)
            return True

    def forget_earlier(self) -> int:
        """Delete prepared tables that no current version uses; return how many were deleted."""
        with add_lock(self.folder / "add.lock"):
            self._sweep()
            tables = self.folder / "tables"
            return forget_earlier(self.catalogue, self.engine, self.ledger, tables, self.reports)

    def _sign_what_stands(self, name: str, different_people: str | None = None) -> None:
        """Sign the current data card if a crash prevented its signature.

        The card is signed as the successor of the previous version. So caps that the owner has set
        on accounts stay.
        """
        found = self.catalogue.find(name)
        if found is None or self._is_signed(found.card):
            return
        earlier = [card for card in self.catalogue.cards() if card.name == found.card.name]
        before = [card for card in earlier if card.version != found.card.version]
        self._sign(found.card, before[-1] if before else None, different_people)

    def _is_signed(self, card: Card) -> bool:
        for entry in self.ledger.store.entries():
            if entry.kind == "card-signed":
                said = json.loads(entry.body)["card"]
                if (said["name"], said["version"]) == (card.name, card.version):
                    return True
        return False

    def _check_owner(self, card: Card, owner: str) -> None:
        """Refuse a data card whose name or people domain belongs to another owner.

        A people domain is the name of the people in the data.
        """
        for name in self.catalogue.names():
            known = self.catalogue.find(name)
            if known is None or known.owner == owner:
                continue
            if card.name.casefold() == name.casefold() or card.people == known.card.people:
                raise Refused(
                    "not-allowed",
                    "Another owner has added a data set of that name, or of these people.",
                    "Choose another name, or ask that owner to add it.",
                )

    def _table(self, stem: str) -> Path:
        return self.folder / "tables" / f"{stem}.duckdb"

    def _drop(self, table: Path, sketch: Path) -> None:
        """Delete the table, sketch and report of a failed add.

        If the engine is unavailable, the next add deletes its files.
        """
        sketch.unlink(missing_ok=True)
        self.reports.drop(table.stem)
        with contextlib.suppress(EngineStopped):
            self.engine.forget(str(table))

    def _sweep(self) -> None:
        """Delete files of earlier adds that crashed, or failed while the engine was unavailable."""
        kept = {Path(sketch).stem for _, sketch in self.catalogue.people()}
        for work in (self.folder / "tables").glob(".*"):  # working folders of preparations
            shutil.rmtree(work, ignore_errors=True)
        found = {left.name.partition(".")[0] for left in (self.folder / "tables").iterdir()}
        for stem in sorted(found - kept - {""}):
            self._drop(self._table(stem), self.folder / "people" / f"{stem}.json")

    def check_card(self, name: str, shape: Mapping[str, object], owner: str) -> str:
        """Refuse a data card that contradicts a signed one; return the card's people domain.

        A people domain is the name of the people in the data.
        """
        check_unit(shape)
        card = read_card(name, shape)
        self._check_owner(card, owner)
        for signed in self.catalogue.cards():
            check_against_signed(card, signed)
        return card.people

    def describe(self, source: str, inner_table: str | None = None) -> Described:
        """Return the names and likely types of a source's columns, to propose a data card."""
        return self.engine.describe(source, inner_table)

    def draft_folder(self, folder: str) -> FolderDraft:
        """Return what a card can publish of a BIDS folder; show it to the folder's owner only."""
        return owners_draft(self.engine.draft_folder(folder))

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group for every data set, and note it in the ledger."""
        check_words(user, group)
        self.ledger.note("enrolled", {"user": user, "group": group})
        self.catalogue.enrol(user, group)

    def thaw(self, shape: str) -> None:
        """Allow a blocked question shape (a question without its constants) again."""
        self.ledger.thaw_shape(shape)

    def raise_cap(
        self, people: str, epsilon: object, delta: object, *, why: str, approver: str
    ) -> None:
        """Set the caps of a people domain and of its data sets, with an approver.

        A people domain is the name of the people in the data. What was spent stays spent.
        """
        budget = Budget(read_epsilon(epsilon), read_delta(delta))
        account = people_account(people)
        if self.ledger.store.account(account) is None:
            raise Refused(
                "unknown-data-set",
                f"There is no privacy budget for people named {people!r}.",
                "Use the name that a data card of the vault has under people.",
            )
        if any(card.people == people and card.window for card in self.catalogue.cards()):
            raise windows_stay()
        _check_approver(approver)
        self.ledger.check_history()
        if self.ledger.has_lost():
            raise Refused(
                "not-allowed",
                "The ledger has lost entries, so nobody knows how much of these people's privacy "
                "budget is spent.",
                "The cap of these people's budget cannot be raised.",
            )
        self.ledger.set_cap(account, cap_from_budget(budget))
        for card in self.catalogue.cards():
            if card.people == people:
                self.ledger.set_cap(data_set_account(card.name), cap_from_budget(budget))
        self.ledger.note("cap-raised", {"people": people, "why": why, "approver": approver})

    def acknowledge(self, why: str) -> LedgerHead:
        """Unfreeze the ledger after a loss of entries; the lost charges count as spent.

        If it is unknown which charges were lost, the whole cap of every account counts as spent.
        That includes the accounts of all known cards.
        """
        self.ledger.check_broken()
        # the ledger may have lost the entries that opened their accounts
        for card in self.catalogue.cards():
            self.ledger.store.open_account(
                people_account(card.people), cap_in_all(card, card.budget)
            )
            self.ledger.store.open_account(
                data_set_account(card.name), cap_in_all(card, card.budget)
            )
        return self.ledger.acknowledge(why)

    def acknowledged(self, head: LedgerHead) -> Json:
        """Return the epsilon that accepting a ledger loss debited from each account.

        If `measured` is true, it is exactly the epsilon of the lost charges.
        """
        entry = self.ledger.store.entry(head.seq)
        said: Json = {} if entry is None else json.loads(entry.body)
        debits = said.get("debits")
        debited = {
            name: debt[0] / EPSILON_UNITS
            for name, debt in (debits.items() if isinstance(debits, dict) else ())
        }
        measured = "measured" in said
        return {"epoch": head.epoch, "seq": head.seq, "measured": measured, "debited": debited}

    def confirm_clock(self, why: str) -> LedgerHead:
        """Confirm the clock's day as the owner, so that budget windows follow the clock again."""
        return self.ledger.confirm_clock("owner", why)

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the blocked question shapes (questions without constants)."""
        return self.ledger.store.frozen_shapes()

    def frozen_questions(self) -> list[Json]:
        """Return the blocked questions, each with its shape, user, time, and its text in words."""
        waiting = set(self.frozen_shapes())
        found: dict[str, Json] = {}
        for entry in self.ledger.store.entries():
            body = json.loads(entry.body) if entry.kind == "charged" else {}
            shape = str(body.get("shape"))
            if shape in waiting:
                found[shape] = {
                    "shape": shape,
                    "at": entry.at,
                    "user": str(body["user"]),
                    "says": str(body["body"]["says"]),
                }
        return list(found.values())

    def lost_readings(self) -> list[Json]:
        """Return how often this machine killed a process while it read rows, by cause."""
        return losses(self.ledger.store)

    def _check_new(self, card: Card, different_people: str | None, owner: str) -> None:
        """Refuse a new card that would renew a budget, such as a repeated version or another unit.

        Also refuse a raise that needs a second person, and unknown people after a ledger loss.
        """
        self.ledger.check_history()
        if different_people is not None:
            _check_approver(different_people, owner)
        for signed in self.catalogue.cards():
            check_against_signed(card, signed)
        current = self.catalogue.find(card.name)
        if current is not None:
            check_raise(card, current.card)
        self._check_catalogue()
        known = self.ledger.store.account(people_account(card.people)) is not None
        if self.ledger.has_lost() and not known and different_people is None:
            raise Refused(
                "same-people",
                "This ledger once lost entries, so it cannot prove that the people "
                f"{card.people!r} have spent no budget.",
                "If a second person confirms that they have not, add --different-people NAME.",
            )

    def _check_others(self, card: Card, different_people: str | None, owner: str) -> None:
        """Require a second person if another owner has people under another budget.

        The refusal does not depend on the rows: comparing them with another owner's rows would
        reveal who is among those. It also applies to more rows of known people, who could be
        another owner's people too.
        """
        listings = [self.catalogue.find(name) for name in self.catalogue.names()]
        has_others = any(
            x is not None and x.owner != owner and x.card.people != card.people for x in listings
        )
        if has_others and different_people is None:
            raise Refused(
                "second-person-needed",
                "Other owners have data about people in this vault, and sfumato does not compare "
                "your rows with theirs.",
                "Let a second person confirm that your rows are about other people: "
                "--different-people NAME, or different_people over HTTP.",
            )

    def _check_catalogue(self) -> None:
        """Refuse if the catalogue lacks a data card that the ledger notes as signed."""
        here = {(card.name, card.version) for card in self.catalogue.cards()}
        for entry in self.ledger.store.entries():
            if entry.kind == "card-signed":
                card = json.loads(entry.body)["card"]
                if (card["name"], card["version"]) not in here:
                    raise Refused(
                        "vault-missing",
                        f"The vault's catalogue lacks the data card of {card['name']!r}, which "
                        "the ledger records as added.",
                        "Restore the vault's catalogue.sqlite from its newest backup.",
                    )

    def _prepare(
        self, card: Card, source: Source, places: tuple[Path, Path], owner: str
    ) -> tuple[TableReport, ...]:
        """Prepare the rows; refuse if their people have a budget under another name.

        If a second person has confirmed for these very rows that they are about other people,
        nobody has to confirm it again.
        """
        different = confirmed_pairs(card, self.ledger.store, self.catalogue, owner)
        order = replace(
            self._order(card, source, places, owner),
            sources=source.files(card),
            folder=source.folder,
            different=different,
        )
        return self._checked(lambda: self.engine.prepare(order), source, owner)

    def _prepare_more(
        self, listing: Listing, source: Source, places: tuple[Path, Path]
    ) -> tuple[TableReport, ...]:
        """Prepare the rows that are appended to a listing's table; refuse people as `_prepare`."""
        card, engine = listing.card, self.engine
        if not isinstance(engine, AppendEngine):
            raise not_appendable()
        files = source.new_files(card)
        rows = self._order(card, source, places, listing.owner)
        people = self.catalogue.people(listing.owner)
        earlier = tuple(sketch for domain, sketch in people if domain == card.people)
        order = AppendOrder(
            replace(rows, sources=tuple(files.values())), tuple(files), listing.table, earlier
        )
        return self._checked(lambda: engine.append(order), source, listing.owner)

    def _order(
        self, card: Card, source: Source, places: tuple[Path, Path], owner: str
    ) -> PrepareOrder:
        """Return an order to prepare rows, without their sources.

        Only the owner's own data sets are compared, so other owners' rows affect no refusal (see
        `_check_others`).
        """
        table, sketch = places
        return PrepareOrder(
            sources=(),
            target=str(table),
            card=card,
            salt=self.salt,
            sketches=tuple((d, s) for d, s in self.catalogue.people(owner) if d != card.people),
            sketch=str(sketch),
            accept_unreadable=source.accept_unreadable,
        )

    def _checked(
        self, prepare: Callable[[], Prepared], source: Source, owner: str
    ) -> tuple[TableReport, ...]:
        """Prepare rows, check their people, and return the report for the owner."""
        prepared = _reworded(prepare, source)
        same = prepared.same_people
        if same and source.different_people is None:
            raise same_people(same, self.catalogue, owner)
        return owners_report(prepared)

    def _sign(self, card: Card, before: Card | None, different_people: str | None) -> None:
        """Sign a data card: open its accounts, set changed caps, and note the card in the ledger.

        The cap of the people domain is never changed.
        """
        self.ledger.open_account(people_account(card.people), cap_in_all(card, card.budget))
        self.ledger.open_account(data_set_account(card.name), cap_in_all(card, card.budget))
        for account, cap in self._caps(card, before):
            self.ledger.set_cap(account, cap)
        self.ledger.note(
            "card-signed",
            {
                "card": card_json(card),
                "digest": hashlib.sha256(repr(card).encode()).hexdigest(),
                "different_people": different_people,
            },
        )

    def _caps(self, card: Card, before: Card | None) -> list[tuple[str, Cap]]:
        """Return the data set's open accounts whose cap the new card changes, with the new cap.

        A cap that the owner has set on an account stays until the card's own cap changes. A card
        with a budget window changes no account, and a card whose raises need two people raises
        none.
        """
        if card.window is not None:
            # a card with windows changes no open account: the next window opens with the card's
            # caps
            return []
        accounts = self.ledger.store.accounts()
        found: list[tuple[str, Cap]] = []
        for stem, of in (
            (data_set_account(card.name), _budget_of),
            (user_account(card.name, ""), _user_cap_of),
            (group_account(card.name, ""), _group_cap_of),
        ):
            cap = cap_from_budget(of(card))
            if before is not None and cap == cap_from_budget(of(before)):
                continue
            of_stem = [a for a in accounts if a.name == stem or _is_under(a.name, stem)]
            found += [(a.name, cap) for a in of_stem if a.cap != cap]
        held = {a.name: a.cap for a in accounts}
        return [
            (name, cap)
            for name, cap in found
            if not (card.raised_by_two and is_raised(held[name], cap))
        ]


def _reworded(prepare: Callable[[], Prepared], source: Source) -> Prepared:
    """Prepare the rows. For a table or a frame, reword a refusal that speaks of files."""
    try:
        return prepare()
    except Refused as wrong:
        refused = of_values(wrong) if source.is_plain else wrong
    raise refused


def _budget_of(card: Card) -> Budget:
    return card.budget


def _user_cap_of(card: Card) -> Budget:
    return card.user_cap or card.budget


def _group_cap_of(card: Card) -> Budget:
    return card.group_cap or card.budget


def _is_under(account: str, stem: str) -> bool:
    return stem.endswith("/") and account.startswith(stem)


def _check_approver(name: str, owner: str = OWNER) -> None:
    """Refuse a second person without a valid name, or with the owner's name."""
    word = name.strip()
    if not 1 <= len(word) <= 100 or not word.isprintable() or word.casefold() == owner.casefold():
        raise Refused(
            "not-allowed",
            "The second person must have a name of 1 to 100 characters that is not the "
            "owner's name.",
            "Give the name of the person who agreed.",
        )
