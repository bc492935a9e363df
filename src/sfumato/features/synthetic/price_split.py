"""Choose the tables and columns that a DP twin measures, and split the price among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_categories import Coded, coded
from sfumato.features.synthetic.linked_marginals import anchor_of, can_join, linked, pairs_of
from sfumato.features.synthetic.marginal_selection import METHODS
from sfumato.features.synthetic.measurement_release import Price, PrivateDevice
from sfumato.features.synthetic.private_bins import LEVELS, is_wide, split_at_median, uncut
from sfumato.features.synthetic.schema_twin import most_rows
from sfumato.features.synthetic.table_assembly import TableMeasurements
from sfumato.vault.card.data_card import Card, Table

TIMES: Final = Fraction(1, 10)  # share of a table's price for the number of rows per person
BINS: Final = Fraction(1, 10)  # share of a table's price for private bin edges
LINK: Final = Fraction(1, 5)  # share of a table's price for the link to another table
MAX_COLUMNS: Final = 24  # the most columns of a table, if pairs are measured
MAX_TIMES: Final = 100  # the cap on the number of rows per person that is measured


@dataclass(frozen=True)
class Counted:
    """A table that a DP twin measures: the columns to count, and which of them get private bins."""

    table: Table
    columns: tuple[Coded, ...]
    binned: frozenset[str] = frozenset()
    anchor: str | None = None  # the anchor table to which this table is linked

    @property
    def times(self) -> int:
        """Return up to how many rows per person the twin counts people separately.

        People with more rows count as having this number.
        """
        return min(most_rows(self.table), MAX_TIMES) if self.table.unit is not None else 1

    @property
    def halved(self) -> list[Coded]:
        """Return the columns with private bins, whose bins are split in halves at noisy medians."""
        return [one for one in self.columns if one.column.name in self.binned]

    @property
    def unknown(self) -> list[str]:
        """Return the names of the table's columns that are not measured."""
        known = {one.column.name for one in self.columns}
        return [f"{self.table.name}.{c.name}" for c in self.table.columns if c.name not in known]

    @property
    def could_be_binned(self) -> list[str]:
        """Return the names of the columns for which private bins are possible."""
        wide = (one.column.name for one in self.columns if is_wide(one.column))
        return [f"{self.table.name}.{name}" for name in wide]


def counted_tables(card: Card, method: str, private_bins: Sequence[str]) -> list[Counted]:
    """Return each table of people with its measurable columns; or refuse."""
    tables = [_counted(table, method) for table in card.every_table if not table.is_public]
    for name in private_bins:
        place, column = _to_bin(tables, name)
        binned = tables[place].binned | {column}
        tables[place] = replace(tables[place], binned=binned)
    return tables if method == "independent" else _anchored(card, tables)


def _anchored(card: Card, tables: Sequence[Counted]) -> list[Counted]:
    """Return the tables; each that can be linked to the anchor table names it in `anchor`."""
    table = anchor_of(card)
    anchor = next((one for one in tables if one.table == table), None)
    if anchor is None:
        return list(tables)
    return [
        replace(one, anchor=anchor.table.name)
        if one is not anchor
        and pairs_of(anchor.columns, one.columns)
        and can_join(card, one.table, anchor.table)
        else one
        for one in tables
    ]


def most_events(tables: Sequence[Counted], method: str) -> int:
    """Return an upper bound on the number of a twin's releases, known before the first."""
    each = {"independent": 1, "mst": 2, "aim": 5}[method]  # aim has two rounds a column at most
    return sum(each * len(one.columns) + LEVELS * len(one.binned) + 4 for one in tables)


def links_json(tables: Sequence[Counted]) -> Json:
    """Return which tables are linked to which, and their links' share of the price, as JSON."""
    anchors = {one.table.name: one.anchor for one in tables if one.anchor is not None}
    return {"tables": anchors, "share": float(LINK * len(anchors) / len(tables))}


def measured_all(
    devices: Mapping[str, PrivateDevice], tables: Sequence[Counted], method: str
) -> dict[str, TableMeasurements]:
    """Measure every table, then the links between tables."""
    share = Fraction(1, len(tables))
    drawn = {
        one.table.name: measured(devices[one.table.name], one, method, share) for one in tables
    }
    return {
        one.table.name: drawn[one.table.name]
        if one.anchor is None
        else linked(
            devices[one.table.name],
            drawn[one.table.name],
            (one.anchor, drawn[one.anchor]),
            share * LINK,
        )
        for one in tables
    }


def bins_json(price: Price, tables: Sequence[Counted]) -> Json:
    """Return the columns with private bins, and their part of the price, as JSON.

    This spends nothing.
    """
    share = Fraction(1, len(tables)) * BINS
    used = share * sum(bool(one.binned) for one in tables)
    each = [
        price.epsilon_of_pure(share / _medians(one)) * _medians(one) for one in tables if one.binned
    ]
    return {
        "columns": [f"{one.table.name}.{name}" for one in tables for name in sorted(one.binned)],
        "possible": [name for one in tables for name in one.could_be_binned],
        "share": float(used),
        "epsilon": float(sum(each, Fraction(0))),
    }


def measured(
    device: PrivateDevice, counted: Counted, method: str, share: Fraction
) -> TableMeasurements:
    """Measure one table with `share` of the whole price, all but its link to another table."""
    left, times = share, None
    if counted.times > 1:
        device.share = share * TIMES
        times = device.times(counted.times, Fraction(1))
        left -= device.share
    if counted.binned:
        device.share = share * BINS
        device.columns = tuple(_binned(device, one, counted) for one in counted.columns)
        left -= device.share
    device.share = left if counted.anchor is None else left - share * LINK
    return TableMeasurements(device.columns, METHODS[method](device), times)


def _binned(device: PrivateDevice, one: Coded, counted: Counted) -> Coded:
    """Return the column with measured private bins if they are asked for, else unchanged."""
    if one.column.name not in counted.binned:
        return one
    made, each = uncut(one.column), Fraction(1, _medians(counted))
    for _ in range(LEVELS):
        made = split_at_median(made, device.middles(made, each))
    device.said.append({"binned": one.column.name, "begins": made.begins_shown()})
    return made


def _medians(counted: Counted) -> int:
    """Return into how many parts a table's price of private bins is split: one per median query.

    It is at least 1, because the price is divided by it.
    """
    return max(1, LEVELS * len(counted.binned))


def _counted(table: Table, method: str) -> Counted:
    columns = tuple(c for c in (coded(column) for column in table.columns) if c is not None)
    if not columns or (method != "independent" and len(columns) > MAX_COLUMNS):
        raise Refused(
            "twin-not-possible",
            f"The data card declares keys or bounds for {len(columns)} columns of "
            f"{table.name!r}. A synthetic twin needs at least 1, and at most {MAX_COLUMNS} "
            "unless the method is 'independent'.",
            "Ask the owner to declare keys or bounds of a column, or use the method 'independent'.",
        )
    return Counted(table, columns)


def _to_bin(tables: Sequence[Counted], name: str) -> tuple[int, str]:
    """Find the table's index and the column's name for one entry of the request's `private_bins`.

    Without a table name, the entry is about the first table.
    """
    for place, one in enumerate(tables):
        for column in one.table.columns:
            spelled = {f"{one.table.name}.{column.name}".casefold()}
            if place == 0:
                spelled.add(column.name.casefold())
            if name.casefold() not in spelled:
                continue
            if not is_wide(column):
                raise _not_wide(name)
            return place, column.name
    possible = [wide for one in tables for wide in one.could_be_binned]
    raise Refused(
        "unknown-column",
        f"No table of people has a column {name[:80]!r}.",
        "Private bins are for: " + (", ".join(possible) or "none of its columns") + ".",
        column=name[:80],
    )


def _not_wide(name: str) -> Refused:
    return Refused(
        "twin-not-possible",
        f"private_bins cannot be used for {name!r}: it is not a column of numbers with declared "
        "bounds and more steps than bins.",
        "Leave the column out of private_bins. The data card declares the values that it can have.",
    )
