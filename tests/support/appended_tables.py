"""Tables whose rows arrive in parts: the first part is added, and each other part is appended."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import AppendOrder, Prepared, PrepareOrder, SourceFile
from support.engine_rows import SALT, prepare, write_source
from support.random_tables import Dealt

Parts = Sequence[Dealt]


def append(
    engine: DuckDBEngine,
    before: str,
    sources: Mapping[int, Path],
    card: Card,
    *,
    target: Path,
    sketches: tuple[tuple[str, str], ...] = (),
) -> tuple[str, Prepared]:
    """Append the rows of sources, by the index of their table; return the new prepared table."""
    rows = PrepareOrder(
        sources=tuple(SourceFile(str(path)) for path in sources.values()),
        target=str(target),
        card=card,
        salt=SALT,
        sketches=sketches,
        sketch=str(target.with_suffix(".people.json")),
        accept_unreadable=tuple(c.name for table in card.every_table for c in table.columns),
    )
    return str(target), engine.append(AppendOrder(rows, tuple(sources), before))


def in_parts(rng: random.Random, dealt: Dealt, parts: int) -> Parts:
    """Share out the rows of all tables of people, each row to a part at random."""
    shares: list[dict[str, list[object]]] = [{} for _ in range(parts)]
    for table in dealt.made.every_table:
        rows = dealt.rows[table.name]
        places = [0 if table.is_public else rng.randrange(parts) for _ in rows]
        for part, share in enumerate(shares):
            share[table.name] = [r for r, p in zip(rows, places, strict=True) if p == part]
    return [replace(dealt, rows=share) for share in shares]


def prepared_in_parts(engine: DuckDBEngine, folder: Path, parts: Parts) -> str:
    """Add the first part, append each other part, and return the last version's table."""
    folder.mkdir()
    table = ""
    for number, part in enumerate(parts):
        place = folder / f"{number}"
        place.mkdir()
        sources = _sources(place, part)
        if number == 0:
            others = [path for at, path in sources.items() if at]
            table = prepare(engine, sources[0], part.made, others=others)[0]
            moved = folder / "0.duckdb"
            for ending in ("", ".json"):
                Path(f"{table}{ending}").rename(f"{moved}{ending}")
            table = str(moved)
            continue
        every = part.made.every_table
        new = {at: path for at, path in sources.items() if not every[at].is_public}
        table, _ = append(engine, table, new, part.made, target=folder / f"{number}.duckdb")
    return table


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
