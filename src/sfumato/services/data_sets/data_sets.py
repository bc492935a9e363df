"""The owner's side: data sets, their cards, their people, and who may ask."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from sfumato.core.account import Head
from sfumato.core.budget import Budget, read_delta, read_epsilon
from sfumato.core.card import Card, Table, read_card
from sfumato.core.card_shown import card_json
from sfumato.core.expression import Json
from sfumato.core.filters import Cap, cap_of
from sfumato.core.ports import (
    Catalogue,
    Dice,
    Engine,
    EngineStopped,
    PrepareOrder,
    SourceFile,
)
from sfumato.core.refusal import Refused
from sfumato.door import (
    Ledger,
    data_set_account,
    group_account,
    people_account,
    user_account,
)


@dataclass(frozen=True)
class Source:
    """Where the rows come from, and how sure the owner is whose they are."""

    path: str
    inner_table: str | None = None
    different_people: str | None = None  # the second person who confirms that they are others
    tables: Mapping[str, str] = field(default_factory=dict)  # the files of the card's other tables

    def files(self, card: Card) -> tuple[SourceFile, ...]:
        """Return the file of each of the card's tables, its own first, or refuse."""
        given = {name.casefold(): path for name, path in self.tables.items()}
        own = SourceFile(self.path, self.inner_table)
        files = (own, *(self._file(table, given) for table in card.tables))
        if given:
            raise Refused(
                "source-unreadable",
                f"The card has no table {sorted(given)[0]!r}.",
                "Declare it under [tables] on the card, or leave its file out.",
            )
        return files

    def _file(self, table: Table, given: dict[str, str]) -> SourceFile:
        path = given.pop(table.name.casefold(), None)
        if path is not None:
            return SourceFile(path)
        if self.path.casefold().endswith((".duckdb", ".ddb", ".db")):
            return SourceFile(self.path, table.name)
        raise Refused(
            "source-unreadable",
            f"No file was given for the table {table.name!r}.",
            f"Add --with {table.name}=FILE.",
        )


@dataclass(frozen=True)
class DataSets:
    """The owner's service of one vault."""

    ledger: Ledger
    engine: Engine
    catalogue: Catalogue
    dice: Dice
    salt: bytes
    folder: Path

    def add(self, name: str, source: Source, shape: Mapping[str, object]) -> Card:
        """Prepare the source, make the card the current version, and sign it into the ledger."""
        with _one_at_a_time(self.folder / "add.lock"):
            return self._add(read_card(name, shape), source, shape)

    def _add(self, card: Card, source: Source, shape: Mapping[str, object]) -> Card:
        self._check_new(card, source)
        stem = self.dice.draw(12).hex()
        self._sweep()
        table, sketch = self._table(stem), self.folder / "people" / f"{stem}.json"
        self._prepare(card, source, table, sketch)
        kept = False
        try:
            place = str(table), card.people, str(sketch)
            self.catalogue.put(card.name, card_text(shape), *place)
            kept = True
        finally:
            if not kept:
                self._drop(table, sketch)
        self._sign(card, source)
        return card

    def _table(self, stem: str) -> Path:
        return self.folder / "tables" / f"{stem}.duckdb"

    def _drop(self, table: Path, sketch: Path) -> None:
        """Remove what an add has made; what the engine cannot remove now, the next add sweeps."""
        sketch.unlink(missing_ok=True)
        with contextlib.suppress(EngineStopped):
            self.engine.forget(str(table))

    def _sweep(self) -> None:
        """Remove what an add has left that was killed, or whose engine was out of reach."""
        kept = {Path(sketch).stem for _, sketch in self.catalogue.people()}
        for work in (self.folder / "tables").glob(".*"):  # in which something was being prepared
            shutil.rmtree(work, ignore_errors=True)
        found = {left.name.partition(".")[0] for left in (self.folder / "tables").iterdir()}
        for stem in sorted(found - kept - {""}):
            self._drop(self._table(stem), self.folder / "people" / f"{stem}.json")

    def describe(self, source: str, inner_table: str | None = None) -> list[tuple[str, str]]:
        """Return the source's column names and likely types, for the owner to make a card of."""
        return list(self.engine.describe(source, inner_table))

    def enrol(self, user: str, group: str) -> None:
        """Put a user into a group, for the record too."""
        for word in (user, group):
            if not 1 <= len(word) <= 100 or not word.isprintable() or "/" in word:
                raise Refused(
                    "unknown-user",
                    "A user or group is 1 to 100 printable letters without '/'.",
                    "Choose another name.",
                )
        self.ledger.note("enrolled", {"user": user, "group": group})
        self.catalogue.enrol(user, group)

    def thaw(self, shape: str) -> None:
        """Let a stopped shape of question be asked again."""
        self.ledger.store.thaw_shape(shape)

    def raise_cap(
        self, people: str, epsilon: object, delta: object, *, why: str, approver: str
    ) -> None:
        """Change a people's cap by the word of two; what was spent stays spent."""
        budget = Budget(read_epsilon(epsilon), read_delta(delta))
        account = people_account(people)
        if self.ledger.store.account(account) is None:
            raise Refused(
                "unknown-data-set", f"No people {people!r} have a budget.", "See the cards."
            )
        _check_approver(approver)
        self.ledger.check_history()
        if self.ledger.store.head().epoch > 1:
            raise Refused(
                "not-allowed",
                "This ledger has lost entries, so nobody knows what these people have spent.",
                "Their budget cannot be extended.",
            )
        self.ledger.store.set_cap(account, cap_of(budget))
        for card in self.catalogue.cards():
            if card.people == people:
                self.ledger.store.set_cap(data_set_account(card.name), cap_of(budget))
        self.ledger.note("cap-raised", {"people": people, "why": why, "approver": approver})

    def acknowledge(self, why: str) -> Head:
        """Go on after a lost ledger: whatever the cards know of counts as spent, lost or not."""
        for card in self.catalogue.cards():
            self.ledger.store.open_account(people_account(card.people), cap_of(card.budget))
            self.ledger.store.open_account(data_set_account(card.name), cap_of(card.budget))
        return self.ledger.acknowledge(why)

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the shapes of question that were stopped and wait for the owner."""
        return self.ledger.store.frozen_shapes()

    def frozen_questions(self) -> list[Json]:
        """Return what waits: its shape, who was stopped asking what, and when."""
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

    def _check_new(self, card: Card, source: Source) -> None:
        """Refuse what would renew a budget: a version again, other people, another unit."""
        self.ledger.check_history()
        if source.different_people is not None:
            _check_approver(source.different_people)
        for signed in self.catalogue.cards():
            _check_beside(card, signed)
        self._check_catalogue()
        head = self.ledger.store.head()
        known = self.ledger.store.account(people_account(card.people)) is not None
        if head.epoch > 1 and not known and source.different_people is None:
            raise Refused(
                "same-people",
                "This ledger has lost entries once, so it cannot show that the people "
                f"{card.people!r} have not spent a budget already.",
                "If a second person confirms that they have not, add --different-people NAME.",
            )

    def _check_catalogue(self) -> None:
        """Refuse to go on with a catalogue that lacks what the ledger has seen signed."""
        here = {(card.name, card.version) for card in self.catalogue.cards()}
        for entry in self.ledger.store.entries():
            if entry.kind == "card-signed":
                card = json.loads(entry.body)["card"]
                if (card["name"], card["version"]) not in here:
                    raise Refused(
                        "vault-missing",
                        f"The catalogue lacks {card['name']!r}, which the ledger has seen signed.",
                        "Restore the vault's catalogue.sqlite from its newest backup.",
                    )

    def _prepare(self, card: Card, source: Source, table: Path, sketch: Path) -> None:
        others = tuple((d, s) for d, s in self.catalogue.people() if d != card.people)
        order = PrepareOrder(
            sources=source.files(card),
            target=str(table),
            card=card,
            salt=self.salt,
            sketches=others,
            sketch=str(sketch),
        )
        same = self.engine.prepare(order).same_people
        if same and source.different_people is None:
            self._drop(table, sketch)
            raise Refused(
                "same-people",
                f"These rows seem to be of the people {same[0]!r}, who have a budget already.",
                f'Put people = "{same[0]}" on the card, so that they share one budget; or, if a '
                "second person confirms that they are others, add --different-people NAME.",
                people=list(same),
            )

    def _sign(self, card: Card, source: Source) -> None:
        """Open the accounts and set their caps (never a people's), and write the card down."""
        self.ledger.store.open_account(people_account(card.people), cap_of(card.budget))
        self.ledger.store.open_account(data_set_account(card.name), cap_of(card.budget))
        for account, cap in self._caps(card):
            self.ledger.store.set_cap(account, cap)
        self.ledger.note(
            "card-signed",
            {
                "card": card_json(card),
                "digest": hashlib.sha256(repr(card).encode()).hexdigest(),
                "different_people": source.different_people,
            },
        )

    def _caps(self, card: Card) -> list[tuple[str, Cap]]:
        """Return the open accounts of the data set whose cap the card changes."""
        wanted = {data_set_account(card.name): card.budget}
        for account in self.ledger.store.accounts():
            if account.name.startswith(user_account(card.name, "")):
                wanted[account.name] = card.user_cap or card.budget
            elif account.name.startswith(group_account(card.name, "")):
                wanted[account.name] = card.group_cap or card.budget
        opened = self.ledger.accounts(tuple(wanted))
        caps = {name: cap_of(budget) for name, budget in wanted.items()}
        return [(name, cap) for name, cap in caps.items() if opened[name].cap != cap]


def _check_approver(name: str) -> None:
    """Refuse a second person who is nobody, or the owner again."""
    word = name.strip()
    if not 1 <= len(word) <= 100 or not word.isprintable() or word.casefold() == "owner":
        raise Refused(
            "not-allowed", "The second person has no name of their own.", "Name who agreed."
        )


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock between processes: what was checked before a data set is added stays true."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_beside(card: Card, signed: Card) -> None:
    """Refuse a card that contradicts one that was signed before."""
    if card.name.casefold() == signed.name.casefold():
        if card.name != signed.name:
            raise Refused(
                "data-set-exists",
                f"There is a data set {signed.name!r}, letter case aside.",
                f"Write its name as {signed.name!r}, or choose another.",
            )
        if card.version == signed.version:
            raise Refused(
                "data-set-exists",
                f"{card.name!r} had a version {card.version!r} already.",
                "Declare a new version on the card; its budget goes on, it does not renew.",
            )
        if card.people != signed.people:
            raise Refused(
                "same-people",
                f"{card.name!r} is of the people {signed.people!r}.",
                f'Keep people = "{signed.people}" on the card.',
            )
        if card.unit.casefold() != signed.unit.casefold():
            raise Refused(
                "bad-card",
                f"The unit of {card.name!r} is {signed.unit!r}.",
                "Keep the unit; another unit is another promise.",
            )
        _check_tables(card, signed)
    if card.people != signed.people and card.people.casefold() == signed.people.casefold():
        raise Refused(
            "same-people",
            f"There are people {signed.people!r}, letter case aside.",
            "Spell them as they are spelled, or choose another name.",
        )
    if card.people == signed.people and card.by_person != signed.by_person:
        raise Refused(
            "bad-card",
            f"The budget of the people {card.people!r} is counted by "
            + ("person" if signed.by_person else "row")
            + f" (see {signed.name!r}), and this card's unit is another.",
            "Use the same unit, or give these people a name of their own.",
        )


def _check_tables(card: Card, signed: Card) -> None:
    """Refuse a table whose rows were people's and are public now, or are other people's."""
    before = {table.name.casefold(): table for table in signed.tables}
    for table in card.tables:
        known = before.get(table.name.casefold())
        if known is None:
            continue
        of = [(t.unit or "").casefold() for t in (table, known)]
        if table.is_public != known.is_public or of[0] != of[1]:
            raise Refused(
                "bad-card",
                f"The rows of table {known.name!r} were "
                + ("public." if known.is_public else f"those of {known.unit!r}."),
                "Keep it so, or give the table another name; another unit is another promise.",
            )


def card_text(shape: Mapping[str, object]) -> str:
    """Return the card's shape as JSON whose numbers keep their spelling."""
    return json.dumps(_plain(shape))  # in the order of the card: columns are found by place


def card_shape(text: str) -> Json:
    """Return the shape again, numbers exact."""
    shape = json.loads(text, parse_float=Decimal)
    if not isinstance(shape, dict):
        raise Refused("bad-card", "The stored card is no table.", "Add the data set again.")
    return {str(key): _exact(value) for key, value in shape.items()}


_TAG = "exact decimal: "
_RATIO = "exact ratio: "


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return _TAG + str(value)
    if isinstance(value, Fraction):
        return _RATIO + str(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value


def _exact(value: object) -> object:
    if isinstance(value, dict):
        return {key: _exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_exact(inner) for inner in value]
    if isinstance(value, str) and value.startswith(_TAG):
        return Decimal(value[len(_TAG) :])
    if isinstance(value, str) and value.startswith(_RATIO):
        return Fraction(value[len(_RATIO) :])
    return value
