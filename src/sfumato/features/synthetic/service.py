"""The service for schema twins (synthetic data): it checks access and needs no engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.ports import RandomSource
from sfumato.features.synthetic.matching_rows import matching_rows
from sfumato.features.synthetic.schema import SchemaTwinRequest
from sfumato.features.synthetic.schema_twin import (
    ExtraRows,
    columns_without_missing_share,
    default_missing_share,
    most_rows,
    schema_tables,
)
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.features.synthetic.twin_files import Stamp, twin_json
from sfumato.features.synthetic.twin_limits import MAX_VALUES, check_rows, largest, seed_of
from sfumato.query.model import Query, query_json
from sfumato.query.sql.select import read_sql
from sfumato.release.permissions import listing_to_query, question_of
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Catalogue
from sfumato.vault.users import Caller

ROWS: Final = 1_000  # default number of rows of the first table
SCHEMA_ONLY: Final = "schema-only"
SAYS: Final = (
    "made from the data card alone; no row was read. Columns are uniform and independent: run "
    "programs on it, but learn nothing from it"
)


@dataclass(frozen=True)
class Twins:
    """The service that makes the schema twins (synthetic data from the card) of one vault."""

    catalogue: Catalogue
    dice: RandomSource

    def schema(self, caller: Caller, wanted: SchemaTwinRequest) -> Json:
        """Create a schema twin (synthetic data); with a query, some rows pass its filter."""
        card = listing_to_query(self.catalogue, caller, wanted.data_set)[0].card
        rows = _default_rows(card) if wanted.rows is None else wanted.rows
        check_rows(card, rows)
        seed = seed_of(wanted.seed, self.dice)
        question = _question(card, wanted)
        beside = ExtraRows()
        if question is not None:
            made = matching_rows(card, question, Seeded(seed, "planted"))
            beside = ExtraRows(made.people, made.public)
        more: Json = {"seed": seed, "rows": rows, "epsilon": 0}
        if undeclared := columns_without_missing_share(card):
            share = f"{float(100 * default_missing_share(card)):g} %"
            more["missing_values"] = {"share": share, "not_declared": list(undeclared)}
        if question is not None:
            more["for"] = wanted.sql or query_json(question)
        stamp = Stamp("schema-twin", card.name, card.version, SCHEMA_ONLY, SAYS, more)
        return twin_json(card, stamp, schema_tables(card, rows, seed, beside))


def _default_rows(card: Card) -> int:
    """Return the default number of rows: for the card's number of people, but 1,000 at most."""
    rows = min(ROWS, card.size or ROWS)
    if card.folders is None:
        return rows
    most = most_rows(card.every_table[0])
    return min(rows, -(-card.folders.people * (1 + most) // 2), largest(card, MAX_VALUES))


def _question(card: Card, wanted: SchemaTwinRequest) -> Query | None:
    if wanted.sql is not None:
        return read_sql(wanted.sql, card.name)
    if wanted.question is None:
        return None
    return question_of(card, wanted.question)
