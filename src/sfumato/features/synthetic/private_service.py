"""DP twins: synthetic data from marginals that are measured privately and paid for.

The whole price is checked before the first count. Then each count and each choice is charged
separately, under operations derived from the twin's. So a retry never pays twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.budget import read_delta, read_epsilon
from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.distance_to_rows import TwinSide, error_of
from sfumato.features.synthetic.marginal_selection import METHODS
from sfumato.features.synthetic.measurement_port import Integers
from sfumato.features.synthetic.measurement_release import Price, PrivateDevice, look_op, price_of
from sfumato.features.synthetic.price_split import (
    Counted,
    bins_json,
    counted_tables,
    links_json,
    measured_all,
    most_events,
)
from sfumato.features.synthetic.schema import DpTwinOrder, DpTwinTerms
from sfumato.features.synthetic.table_assembly import TableMeasurements, dealt, dp_tables
from sfumato.features.synthetic.twin_files import Stamp, twin_json
from sfumato.features.synthetic.twin_limits import check_rows, largest, seed_of
from sfumato.release.accounts import exceeded
from sfumato.release.guarded_release import accounts_paying
from sfumato.release.permissions import card_of_version, check_not_frozen, listing_to_query
from sfumato.release.receipts import answer_version, not_dp_json
from sfumato.release.release_order import Asker, ReleaseContext
from sfumato.vault.card.data_card import Card
from sfumato.vault.ledger_entries import Account
from sfumato.vault.ports import Catalogue, Listing
from sfumato.vault.users import Caller

GUARANTEE: Final = "central-dp"
SAYS: Final = (
    "synthetic rows drawn from privately measured marginals; no row belongs to a person. "
    "Dependence between columns is kept only as far as they were measured together"
)
# the most cells if the request gives no number of rows, because a noisy total may be huge
UNASKED: Final = 500_000


@dataclass(frozen=True)
class PrivateTwins:
    """The service that makes and prices the DP twins (synthetic data) of one vault."""

    door: ReleaseContext
    catalogue: Catalogue
    dice: RandomSource

    def make(self, caller: Caller, wanted: DpTwinOrder) -> Json:
        """Create and pay for a DP twin (synthetic data); the same operation again is free.

        The same operation returns the same twin. It is of the data version at its first release,
        even if the owner has added rows since.
        """
        now, groups = listing_to_query(self.catalogue, caller, wanted.data_set)
        check_not_frozen(self.catalogue, now, caller.user)
        op, asker = self._op(wanted.op), Asker(caller.user, groups)
        begun = self.door.ledger.answer_of(caller.user, look_op(op, now.card.name, 1))
        listing = self._as_begun(now, begun)
        card, (price, tables) = listing.card, _priced(listing.card, wanted)
        most, is_of_now = _most(card, wanted), card.version == now.card.version
        seed = seed_of(wanted.seed or (op if wanted.op else None), self.dice)
        devices = {
            one.table.name: PrivateDevice(
                self.door, listing, asker, op, price, one.columns, one.table.name,
                partial(card_of_version, self.catalogue, card.name),
                partial(self._check_still, caller, wanted.data_set),
                _may if is_of_now else partial(self._check_answered, caller.user),
            )
            for one in tables
        }  # fmt: skip
        if begun is None:
            self._check_fits(card, asker, price.with_error(_error_epsilon(wanted)))
            for one in tables:
                devices[one.table.name].check_looks(one.times, one.halved)
        drawn = measured_all(devices, tables, wanted.method)
        people = wanted.rows or min(most, drawn[tables[0].table.name].people)
        rows = dealt(drawn, seed, (people, most))
        more: Json = {
            "method": wanted.method,
            "seed": seed,
            "op": op,
            **price.as_json(),
            "spent": f"at most epsilon {float(price.epsilon):g} at delta {float(price.delta):g}",
            "people": {name: one.people for name, one in drawn.items()},
            "measured": {name: device.said for name, device in devices.items()},
            "linked": links_json(tables)["tables"],
            "from_the_card": [name for counted in tables for name in counted.unknown],
            **_error(wanted, devices, {n: (rows[n].codes, drawn[n]) for n in drawn}, seed),
            **not_dp_json(self.door.ledger, card.people),
        }
        stamp = Stamp("dp-twin", card.name, card.version, GUARANTEE, SAYS, more)
        return twin_json(card, stamp, dp_tables(card, drawn, rows, seed))

    def price(self, caller: Caller, wanted: DpTwinTerms) -> Json:
        """Return a DP twin's price and whether the budget left covers it; this spends nothing."""
        listing, groups = listing_to_query(self.catalogue, caller, wanted.data_set)
        card, (price, tables) = listing.card, _priced(listing.card, wanted)
        accounts = accounts_paying(self.door.ledger, card, Asker(caller.user, groups))
        error = _error_epsilon(wanted)
        return {
            **price.as_json(),
            "method": wanted.method,
            "columns": {one.table.name: [c.column.name for c in one.columns] for one in tables},
            "from_the_card": [name for counted in tables for name in counted.unknown],
            "private_bins": bins_json(price, tables),
            "linked": links_json(tables),
            **({} if error is None else {"error_epsilon": float(error)}),
            "fits": all(_fits(account, price.with_error(error)) for account in accounts),
            "spent": False,
        }

    def _check_fits(self, card: Card, asker: Asker, debt: PrivacyCost) -> None:
        for account in accounts_paying(self.door.ledger, card, asker):
            if not _fits(account, debt):
                raise exceeded(account, PrivacyCost(debt.epsilon, 0, debt.rho, 0))

    def _check_still(self, caller: Caller, data_set: str) -> None:
        """Refuse a caller who has lost access, and every caller while the data set is frozen."""
        listing, _ = listing_to_query(self.catalogue, caller, data_set)
        check_not_frozen(self.catalogue, listing, caller.user)

    def _as_begun(self, listing: Listing, begun: str | None) -> Listing:
        """Return the listing with the data card under which the twin's first release was made.

        `begun` is the stored answer of that release, or None for a new twin.
        """
        if begun is None:
            return listing
        card = card_of_version(self.catalogue, listing.card.name, answer_version(begun))
        return listing if card is None else replace(listing, card=card)

    def _check_answered(self, user: str, op: str) -> None:
        """Refuse a release that is not stored yet, if its twin is of an earlier data version."""
        if self.door.ledger.answer_of(user, op) is None:
            raise Refused(
                "op-reused",
                "This operation id made a synthetic twin of an earlier version of the data, "
                "without what you ask for now.",
                "Choose a new operation id. You then pay for a twin of the current version.",
            )

    def _op(self, op: str | None) -> str:
        if op is None:
            return f"twin {self.dice.draw(12).hex()}"
        if not 1 <= len(op) <= 60 or not op.isprintable():
            raise Refused(
                "not-in-language",
                "The operation id of a synthetic twin must be 1 to 60 printable characters.",
                "Choose another operation id.",
            )
        return op


def _may(_op: str) -> None:
    """Allow any release, in place of `_check_answered`: the twin is of the current data version."""


def _priced(card: Card, wanted: DpTwinTerms) -> tuple[Price, list[Counted]]:
    """Return a synthetic DP twin's price, and the tables that share it; or refuse."""
    if wanted.method not in METHODS:
        raise Refused(
            "not-in-language",
            f"{str(wanted.method)[:40]!r} is not a method for synthetic twins.",
            f"Use {', '.join(METHODS)}.",
        )
    delta = card.delta_per_request if wanted.delta is None else read_delta(wanted.delta)
    epsilon = read_epsilon(wanted.epsilon)
    tables = counted_tables(card, wanted.method, wanted.private_bins)
    return price_of(epsilon, delta, most_events(tables, wanted.method)), tables


def _most(card: Card, wanted: DpTwinTerms) -> int:
    """Return the most rows of the twin's first table, which is also the most people of a table."""
    if wanted.rows is None:
        return largest(card, UNASKED)
    check_rows(card, wanted.rows)
    return wanted.rows


def _error_epsilon(wanted: DpTwinTerms) -> Fraction | None:
    if wanted.error_epsilon is None:
        return None
    return read_epsilon(wanted.error_epsilon, "error_epsilon")


def _error(
    wanted: DpTwinTerms,
    devices: Mapping[str, PrivateDevice],
    twin: Mapping[str, tuple[Integers, TableMeasurements]],
    seed: str,
) -> Json:
    """Return the twin's distance from the rows if the request pays for it, or why it was refused.

    The twin itself is paid for already, so a refusal of the distance does not discard the twin.
    """
    epsilon = _error_epsilon(wanted)
    if epsilon is None:
        return {}
    sides = {
        name: TwinSide(devices[name], codes, drawn.people, drawn.made.total_std)
        for name, (codes, drawn) in twin.items()
    }
    try:
        return {"error": error_of(sides, seed, epsilon)}
    except Refused as refused:
        return {"error": {"refused": refused.code, "says": refused.cause, "of": {}}}


def _fits(account: Account, debt: PrivacyCost) -> bool:
    return fits_under_cap(account.cap, account.spent, debt)
