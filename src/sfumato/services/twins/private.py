"""DP twins: synthetic data from marginals that were measured privately and paid for.

Whether the whole price fits is looked at before the first count; then each count and each choice is
charged by itself, under operations beneath the twin's, so a retry costs nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.core.access import Caller
from sfumato.core.account import Account
from sfumato.core.budget import read_delta, read_epsilon
from sfumato.core.card import Card, Table
from sfumato.core.expression import Json
from sfumato.core.filters import accepts
from sfumato.core.loss import Debt
from sfumato.core.ports import Catalogue, Dice, Listing
from sfumato.core.refusal import Refused
from sfumato.core.twins.assembled import Drawn, dp_tables
from sfumato.core.twins.categories import Coded, coded
from sfumato.core.twins.methods import METHODS
from sfumato.core.twins.schema import most_rows
from sfumato.core.twins.written import Stamp, twin_json
from sfumato.door import Asker, Door, accounts_paying, exceeded, not_dp_json
from sfumato.services.twins.access import check_rows, largest, listing_of, seed_of
from sfumato.services.twins.measured import AtTheDoor, Price, price_of

GUARANTEE: Final = "central-dp"
SAYS: Final = (
    "synthetic rows drawn from privately measured marginals; no row is anybody's. What was not "
    "measured together hangs together by chance alone"
)
TIMES: Final = Fraction(1, 10)  # of a table's price, for how many rows people have
MOST_COLUMNS: Final = 24  # of a table, in pairs
UNASKED: Final = 500_000  # values, where no number of rows was named: a noisy total may be huge
MOST_TIMES: Final = 100  # rows of a person that are told apart


@dataclass(frozen=True)
class Bought:
    """A DP twin as it is asked for: of which data set, at what price, by which method."""

    data_set: str
    epsilon: object
    delta: object = None
    method: str = "mst"
    rows: int | None = None
    seed: str | None = None
    op: str | None = None


@dataclass(frozen=True)
class PrivateTwins:
    """The DP twins of one vault."""

    door: Door
    catalogue: Catalogue
    dice: Dice

    def make(self, caller: Caller, wanted: Bought) -> Json:
        """Return the twin, paid; the same operation again is free and gives the same twin."""
        listing = listing_of(self.catalogue, caller, wanted.data_set)
        self._check_frozen(caller, wanted.data_set)
        card, asker = listing.card, self._asker(caller, listing)
        price = _price(card, wanted)
        tables = list(_tables(card, wanted.method))
        most = largest(card, UNASKED)
        if wanted.rows is not None:
            check_rows(card, wanted.rows)
            most = wanted.rows
        op = self._op(wanted.op)
        if self.door.ledger.answer_of(caller.user, f"{op} {tables[0][0].name} 1") is None:
            self._check_fits(card, asker, price)
        seed = seed_of(wanted.seed or (op if wanted.op else None), self.dice)
        said: dict[str, list[Json]] = {}
        drawn = {}
        for table, columns in tables:
            device = AtTheDoor(
                self.door, listing, asker, op, price, columns, table.name,
                partial(self._card_of, card.name),
                lambda: self._check_frozen(caller, wanted.data_set),
            )  # fmt: skip
            drawn[table.name] = _measured(device, table, wanted.method, Fraction(1, len(tables)))
            said[table.name] = device.said
        more: Json = {
            "method": wanted.method,
            "seed": seed,
            "op": op,
            **price.as_json(),
            "spent": f"at most epsilon {float(price.epsilon):g} at delta {float(price.delta):g}",
            "people": {name: one.people for name, one in drawn.items()},
            "measured": said,
            "from_the_card": [name for table, some in tables for name in _unknown(table, some)],
            **not_dp_json(self.door.ledger, card.people),
        }
        stamp = Stamp("dp-twin", card.name, card.version, GUARANTEE, SAYS, more)
        people = wanted.rows or min(most, drawn[tables[0][0].name].people)
        return twin_json(card, stamp, dp_tables(card, drawn, seed, (people, most)))

    def price(self, caller: Caller, wanted: Bought) -> Json:
        """Return what the twin would cost and whether it fits; nothing is spent."""
        listing = listing_of(self.catalogue, caller, wanted.data_set)
        card, price = listing.card, _price(listing.card, wanted)
        tables = list(_tables(card, wanted.method))
        accounts = accounts_paying(self.door.ledger, card, self._asker(caller, listing))
        columns = {table.name: [c.column.name for c in some] for table, some in tables}
        unknown = [name for table, some in tables for name in _unknown(table, some)]
        return {
            **price.as_json(),
            "method": wanted.method,
            "columns": columns,
            "from_the_card": unknown,
            "fits": all(_fits(account, price.debt) for account in accounts),
            "spent": False,
        }

    def _check_fits(self, card: Card, asker: Asker, price: Price) -> None:
        for account in accounts_paying(self.door.ledger, card, asker):
            if not _fits(account, price.debt):
                raise exceeded(account, Debt(price.debt.epsilon, 0, price.debt.rho, 0))

    def _asker(self, caller: Caller, listing: Listing) -> Asker:
        groups = self.catalogue.groups_of(caller.user, listing.card.name)
        return Asker(caller.user, tuple(group for group in groups if group in listing.card.who))

    def _check_frozen(self, caller: Caller, data_set: str) -> None:
        card = listing_of(self.catalogue, caller, data_set).card
        if self.catalogue.is_frozen(card.name):
            raise Refused(
                "data-set-frozen",
                f"The owner of {card.name!r} has frozen it, so nobody asks it.",
                "Wait until it is thawed, or ask its owner.",
            )

    def _card_of(self, name: str, version: str) -> Card | None:
        found = (c for c in self.catalogue.cards() if (c.name, c.version) == (name, version))
        return next(found, None)

    def _op(self, op: str | None) -> str:
        if op is None:
            return f"twin {self.dice.draw(12).hex()}"
        if not 1 <= len(op) <= 60 or not op.isprintable():
            raise Refused(
                "not-in-language",
                "A twin's operation id is 1 to 60 printable letters.",
                "Choose another id.",
            )
        return op


def _price(card: Card, wanted: Bought) -> Price:
    if wanted.method not in METHODS:
        raise Refused(
            "not-in-language",
            f"{str(wanted.method)[:40]!r} is no method of making a twin.",
            f"Use {', '.join(METHODS)}.",
        )
    delta = card.delta_per_request if wanted.delta is None else read_delta(wanted.delta)
    return price_of(read_epsilon(wanted.epsilon), delta)


def _fits(account: Account, debt: Debt) -> bool:
    return accepts(account.cap, account.spent, debt)


def _tables(card: Card, method: str) -> Iterator[tuple[Table, tuple[Coded, ...]]]:
    """Yield each table of people with the columns that can be counted; or refuse."""
    for table in card.every_table:
        if table.is_public:
            continue
        columns = tuple(c for c in (coded(column) for column in table.columns) if c is not None)
        if not columns or (method != "independent" and len(columns) > MOST_COLUMNS):
            raise Refused(
                "twin-not-possible",
                f"{table.name!r} has {len(columns)} columns with keys or bounds on its card; "
                f"a twin needs one at least, and {MOST_COLUMNS} at most if they are paired.",
                "Ask the owner to declare keys or bounds; or use the method 'independent'.",
            )
        yield table, columns


def _unknown(table: Table, columns: tuple[Coded, ...]) -> list[str]:
    known = {one.column.name for one in columns}
    return [f"{table.name}.{c.name}" for c in table.columns if c.name not in known]


def _measured(device: AtTheDoor, table: Table, method: str, share: Fraction) -> Drawn:
    most = min(most_rows(table), MOST_TIMES) if table.unit is not None else 1
    times = None
    if most > 1:
        device.share = share * TIMES
        times = device.times(most, Fraction(1))
        share -= device.share
    device.share = share
    return Drawn(device.columns, METHODS[method](device), times)
