"""Tables whose rows arrive in parts: the first part is added, and each other part is appended.

Rows are prepared in this process, because a worker for each part would take most of a test's time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sfumato.engines.ingest import append as append_module
from sfumato.engines.ingest import prepare as prepare_module
from sfumato.engines.ingest.prepare_order import append_header, order_header
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.prepared_table import (
    appended_table,
    path_of,
    prepared_table,
    segments_of,
    write_prepared_table,
    write_segments,
)
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import AppendOrder, PrepareOrder, SourceFile
from support.engine_rows import SALT, write_source
from support.query_oracle import Person
from support.random_tables import Dealt

ROOM = Room(512, 1, "", ())
Sources = Mapping[int, Path]  # by the index of the table on the card


def add(folder: Path, sources: Sources, card: Card, salt: bytes = SALT) -> Path:
    """Prepare a first part; return its table."""
    table = folder / "0.duckdb"
    order = _order(sources, card, table, salt)
    work = folder / "work-0"
    work.mkdir()
    said = prepare_module.prepare(ROOM, salt.hex(), order_header(order, work))
    assert "refused" not in said, said
    write_prepared_table(path_of(table), prepared_table(card))
    (work / "rows.duckdb").rename(table)
    return table


def append(before: Path, sources: Sources, card: Card, salt: bytes = SALT) -> Path:
    """Append the rows of sources to a table, as the engine does; return the new table."""
    number = int(before.stem) + 1
    table = before.with_name(f"{number}.duckdb")
    order = AppendOrder(_order(sources, card, table, salt), tuple(sources), str(before))
    work = before.with_name(f"work-{number}")
    work.mkdir()
    said = append_module.append(ROOM, salt.hex(), append_header(order, work))
    assert "refused" not in said, said
    kept = segments_of(before)[: int(str(said["kept"]))]
    names = (*(file.name for file in kept), table.name)
    write_segments(path_of(table), appended_table(prepared_table(card)), names)
    (work / "rows.duckdb").rename(table)
    return table


def _order(sources: Sources, card: Card, table: Path, salt: bytes) -> PrepareOrder:
    return PrepareOrder(
        sources=tuple(SourceFile(str(path)) for path in sources.values()),
        target=str(table),
        card=card,
        salt=salt,
        sketches=(),
        sketch="",
        accept_unreadable=tuple(c.name for table in card.every_table for c in table.columns),
    )


def in_parts(rng: random.Random, dealt: Dealt, parts: int) -> list[Dealt]:
    """Share out the rows of all tables of people, each row to a part at random."""
    shares: list[dict[str, list[Person]]] = [{} for _ in range(parts)]
    for table in dealt.made.every_table:
        rows = dealt.rows[table.name]
        places = [0 if table.is_public else rng.randrange(parts) for _ in rows]
        for part, share in enumerate(shares):
            share[table.name] = [r for r, p in zip(rows, places, strict=True) if p == part]
    return [replace(dealt, rows=share) for share in shares]


def prepared_in_parts(folder: Path, parts: Sequence[Dealt]) -> str:
    """Add the first part, append each other part, and return the last version's table."""
    folder.mkdir()
    made = parts[0].made
    table = add(folder, _sources(folder, parts[0]), made)
    for part in parts[1:]:
        sources = _sources(folder, part)
        new = {at: sources[at] for at, t in enumerate(made.every_table) if not t.is_public}
        table = append(table, new, made)
    return str(table)


def _sources(folder: Path, dealt: Dealt) -> dict[int, Path]:
    found = {}
    for at, table in enumerate(dealt.made.every_table):
        unit = [dealt.made.unit] if dealt.made.by_person and not table.is_public else []
        names = [column.name for column in table.columns]
        rows = [
            [*[row.who for _ in unit], *(row.texts[name] for name in names)]
            for row in dealt.rows[table.name]
        ]
        found[at] = write_source(folder / f"{table.name}.csv", [*unit, *names], rows)
    return found
