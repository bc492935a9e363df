"""Find outputs that are only the mean of a column, and offer the same mean as a SQL query.

SQL clamps every row and adds noise to a sum over all people, so its noise is far smaller than that
of an average over blocks. Everything here uses synthetic people, the card and the price alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.ports import IntegerArray
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_plan import Run
from sfumato.query.model import Aggregate
from sfumato.query.plan import make_plan
from sfumato.query.price import price_at
from sfumato.query.sql.select import read_sql
from sfumato.sandbox.program_outputs import Output
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card

MAX_KEYS: Final = 30  # columns with more keys are not tried as a filter
_LEAST_VALUES: Final = 3  # different means among the blocks; fewer could agree by chance
_LEAST_WIDTH: Final = 10  # steps between the smallest and the largest of these means
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SyntheticRows:
    """The rows of the card's main table for all synthetic people, as a program sees them."""

    columns: tuple[str, ...]
    people: tuple[str, ...]  # the person of each row
    cells: tuple[tuple[str, ...], ...]

    def texts(self, name: str) -> list[str]:
        """Return the cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.cells]

    def numbers(self, name: str) -> Floats:
        """Return the numbers of a column; NaN for a missing one."""
        return np.array([_number(text) for text in self.texts(name)], dtype=np.float64)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


@dataclass(frozen=True)
class MeanOfColumn:
    """An output that was the mean of a column on every block of synthetic people."""

    output: str
    column: str
    where: tuple[str, str] | None  # a column and its value, if only such rows count
    people: int  # how many synthetic people have such rows

    def sql(self, card: Card) -> str:
        """Return the query for this mean."""
        chosen = ""
        if self.where is not None:
            column, value = self.where
            text = value.replace("'", "''")
            chosen = f" WHERE {_quoted(column)} = '{text}'"
        return f"SELECT AVG({_quoted(self.column)}) FROM {_quoted(card.name)}{chosen}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else '"' + name.replace('"', '""') + '"'


def means_of_columns(
    card: Card,
    outputs: Sequence[Output],
    rows: SyntheticRows,
    groups: Sequence[Collection[str]],
    numbers: IntegerArray,
) -> tuple[MeanOfColumn, ...]:
    """Return the outputs that are the mean of a column on every group of synthetic people.

    Args:
        card: The data card, whose numeric columns and text keys are tried.
        outputs: The outputs of the program. Arrays are left out.
        rows: The rows of all synthetic people.
        groups: The people of each run of the trial.
        numbers: What the program gave for each group, in steps; one row for a group.
    """
    masks = [np.isin(np.array(rows.people), np.array(sorted(group))) for group in groups]
    tried = list(_candidates(card, rows))
    found, place = [], 0
    for output in outputs:
        if not output.shape:
            given = numbers[:, place]
            fits = (one for one, values in tried if _is_mean(output, values, masks, given))
            column, where, kept = next(fits, ("", None, None))
            if kept is not None:
                people = len({name for name, is_in in zip(rows.people, kept, strict=True) if is_in})
                found.append(MeanOfColumn(output.name, column, where, people))
        place += output.count
    return tuple(found)


Candidate = tuple[str, tuple[str, str] | None, NDArray[np.bool_]]


def _candidates(card: Card, rows: SyntheticRows) -> Iterator[tuple[Candidate, Floats]]:
    """Yield each mean that is tried, with its values by row; NaN for rows that do not count."""
    seen = [column for column in card.columns if column.name in rows.columns]
    every = np.ones(len(rows.people), dtype=bool)
    numeric = [one for one in seen if one.is_numeric and one.is_bounded]
    for column in numeric:
        yield (column.name, None, every), rows.numbers(column.name)
    for filtered in seen:
        texts = np.array(rows.texts(filtered.name))
        for value in _text_keys(filtered):
            kept = texts == value
            for column in numeric:
                values = np.where(kept, rows.numbers(column.name), np.nan)
                yield (column.name, (filtered.name, value), kept), values


def _text_keys(column: Column) -> list[str]:
    keys = column.keys or ()
    texts = [key.text for key in keys if key.kind == "text"]
    return texts if column.type == "text" and len(keys) <= MAX_KEYS else []


def _is_mean(
    output: Output, values: Floats, masks: Sequence[NDArray[np.bool_]], given: IntegerArray
) -> bool:
    """Return True if an output was the mean of these values on every group that has any."""
    is_value = np.isfinite(values)
    told = []
    for mask, steps in zip(masks, given.tolist(), strict=True):
        mine = values[mask & is_value]
        if mine.size:
            expected = output.snapped(float(mine.mean()))
            if abs(expected - steps) > 1:  # a program may round
                return False
            told.append(expected)
    return len(set(told)) >= _LEAST_VALUES and max(told) - min(told) >= _LEAST_WIDTH


# --- the offer ------------------------------------------------------------------------------------


def sql_offers(card: Card, run: Run, means: Sequence[MeanOfColumn]) -> list[Json]:
    """Return SQL queries that give the same means with less error, at the same price.

    Args:
        card: The data card.
        run: The run to compare with: its price and number of blocks.
        means: The outputs of its program that are means of columns.
    """
    made = (_offer(card, run, one) for one in means)
    return [one for one in made if one is not None]


def _offer(card: Card, run: Run, mean: MeanOfColumn) -> Json | None:
    sql, output = mean.sql(card), next(o for o in run.program.outputs if o.name == mean.output)
    noise, pulled = run.margins()[mean.output], _pull_of_empty_blocks(run, output, mean.people)
    theirs = _sql_margin(card, run, output, mean)
    if theirs is None or not 0 < theirs < noise + pulled:
        return None
    column = mean.column if mean.where is None else f"{mean.column} where {' is '.join(mean.where)}"
    times = (noise + pulled) / theirs
    empty = (
        f", and up to {pulled:.3g} more because empty blocks count as the middle"
        if pulled > noise / 100
        else ""
    )
    return {
        "output": mean.output,
        "sql": sql,
        "error": theirs,
        "error_of_program": noise + pulled,
        "times": times,
        "people": mean.people,
        "says": (
            f"On all synthetic people and blocks, {mean.output} is the mean of {column}. "
            f"`{sql}` has {times:.2g} times less error at the same price: "
            f"± {theirs:.3g} for {mean.people:,} people, instead of ± {noise:.3g} "
            f"with {run.blocks} blocks{empty}."
        ),
    }


def _pull_of_empty_blocks(run: Run, output: Output, people: int) -> float:
    """Return how far blocks without such people move an average at most, as is to be expected.

    Each person is in a block at random, and a block without any counts as the middle.
    """
    return (1 - 1 / run.blocks) ** people * float(output.upper - output.lower) / 2


def _sql_margin(card: Card, run: Run, output: Output, mean: MeanOfColumn) -> float | None:
    """Return the 95 % margin of the SQL query at the price of this output, or None."""
    part = output.count * run.loss(output) / (run.rho or run.epsilon)
    try:
        query = read_sql(mean.sql(card), card.name)
        priced = price_at(make_plan(card, query), run.epsilon * part, run.delta)
        (number,) = (one.of for one in query.outputs if isinstance(one.of, Aggregate))
        return priced.margin(number, mean.people)
    except Refused:  # the card or the price does not allow this query
        return None
