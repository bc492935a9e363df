"""Training on a prepared table, in a worker: what comes back are whole numbers, not yet private.

Rows are fetched in slices, whose sums are exact, so that nothing hangs on where a slice ends.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.learning.input_layers import entered, packed, read_front
from sfumato.dp.learning.integer_network import (
    SUM_BITS,
    Inputs,
    Network,
    Numbers,
    People,
    Walk,
    Weights,
    unpacked,
)
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.learning.training_task import CLASSES, MOST_CELLS
from sfumato.engines.shared.message_frames import Header
from sfumato.query.printing.from_clause import table_name
from sfumato.vault.training_port import Field, LearnOrder

if TYPE_CHECKING:
    import duckdb

AT_ONCE: Final = 1 << 16  # rows that are fetched, or fewer:
_CELLS: Final = MOST_CELLS  # so many numbers: memory hangs on the order and not on the rows
_HELD: Final = 1 << 24  # numbers by the card that are kept for the next step, or the next round
_OWN: Final = 1 << 20  # numbers of people's own models at once, and of what goes through them
_LONG: Final = 1 << 28  # rows times numbers, for which a thread is worth its while
_MOST: Final = 1 << 20  # of an update's number, which is clipped again where it is rounded
# What was fetched of a table, by what of it was asked for; one lesson's at a time.
Slice = tuple[Inputs, Numbers]
Columns = dict[str, NDArray[Any]]  # Any: whole steps of some width
Whose = NDArray[Any]  # Any: as above; which person's each row is, where not everybody is in
Fetched = tuple[Inputs, Numbers, Whose]
_NOBODYS: Final = np.empty(0, dtype=np.int64)
Kept = dict[tuple[object, ...], tuple[Fetched, ...]]
Chosen = NDArray[np.bool_] | None  # who is in this round, by number; None where everybody is


def learn_header(order: LearnOrder, table: str) -> Header:
    """Return the message that carries the order."""
    return {
        "do": "learn",
        "table": table,
        "features": [[one.column, one.lower, one.upper] for one in order.features],
        "target": [order.target.column, order.target.lower, order.target.upper],
        "loss": order.loss,
        "hidden": list(order.hidden),
        "activation": order.activation,
        "weights": base64.b64encode(order.weights).decode("ascii"),
        "max_rows": order.max_rows,
        "most_rows": order.most_rows,
        "clip": order.clip,
        "local": order.local,
        "rate": order.rate,
        "proximal": order.proximal,
        "coins": None if order.coins is None else [order.coins.key.hex(), order.coins.below],
        "front": None if order.front is None else order.front.as_json(),
    }


def read_learn(request: Header) -> LearnOrder:
    """Return the order again; the message comes from our own parent."""
    body: dict[str, Any] = {k: v for k, v in request.items() if k != "do"}
    body["features"] = tuple(Field(*one) for one in body["features"])
    body["target"] = Field(*body["target"])
    body["hidden"] = tuple(body["hidden"])
    body["weights"] = base64.b64decode(body["weights"])
    if body["coins"] is not None:
        key, below = body["coins"]
        body["coins"] = PoissonSample(bytes.fromhex(key), below)
    body["front"] = read_front(body["front"])
    return LearnOrder(**body)


def read_learnt(answer: bytes) -> NDArray[np.int64]:
    """Return the whole numbers of a worker's answer."""
    return np.frombuffer(answer, dtype="<i8").astype(np.int64)


def network_of(order: LearnOrder) -> Network:
    """Return the network that the order trains."""
    outs = order.target.upper - order.target.lower + 1 if order.loss == CLASSES else 1
    ins = len(order.features) if order.front is None else order.front.outs
    return Network((ins, *order.hidden, outs), order.activation, order.loss, order.front)


def train(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, kept: Kept, threads: int = 1
) -> NDArray[np.int64]:
    """Return the clipped sum of gradients, or the update of a site's own steps.

    `kept` is of this very table: what a lesson's earlier rounds have fetched, if it is little.
    """
    network = network_of(order)
    begin = unpacked(order.weights, network.size)
    if order.is_of_people:
        return _of_people(connection, network, begin, order)

    chosen = _chosen(connection, order)

    def slices() -> Iterable[Slice]:
        return (_rows_of(chosen, *some) for some in _fetched_once(connection, order, kept))

    if order.local:
        return _update(network, begin, order, slices, threads)
    weights = network.weights(begin)

    def summed(inputs: Inputs, target: Numbers) -> NDArray[np.int64]:
        return network.clipped_sum_of(weights, inputs, target, order.clip)

    parts = (_added(summed, rows, network.size, threads) for rows in slices())
    return np.asarray(sum(parts, np.zeros(network.size, dtype=np.int64)))


def _chosen(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> Chosen:
    """Return who is in this round, by a coin for each person of the table, or row without one."""
    if order.coins is None:
        return None
    return order.coins.tossed(_last(connection, _unit(order)) + 1)


def _rows_of(chosen: Chosen, inputs: Inputs, target: Numbers, whose: Whose) -> Slice:
    """Return the rows of those who are in: all of a person's, or none."""
    if chosen is None:
        return inputs, target
    places = np.flatnonzero(chosen[whose])
    return inputs[places], target[places]


def _added(
    summed: Callable[[Inputs, Numbers], NDArray[Any]],  # Any: whole numbers, as doubles or not
    rows: Slice,
    size: int,
    threads: int,
) -> NDArray[Any]:
    """Return the sum over all rows, parts of it on threads where it is long.

    Whole numbers have one sum, however they are parted.
    """
    inputs, target = rows
    at_once = max(1, -(-len(inputs) // threads), _LONG // size)
    parts = [slice(start, start + at_once) for start in range(0, len(inputs), at_once)]
    if len(parts) <= 1:
        return summed(inputs, target)
    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(lambda part: summed(inputs[part], target[part]), parts))
    return np.asarray(sum(found, np.zeros(size, dtype=np.int64)))


def _of_people(
    connection: duckdb.DuckDBPyConnection, network: Network, begin: Numbers, order: LearnOrder
) -> NDArray[np.int64]:
    """Return the sum of how far everybody's own steps go down, each clipped."""
    walk = Walk(order.local, order.rate, order.proximal, order.clip)
    total = np.zeros(network.size, dtype=np.int64)
    for people in _people(connection, order):
        for alike in _alike(people, network):
            total += network.people_sum(begin, alike, walk)
    return total


def _alike(people: People, network: Network) -> Iterator[People]:
    """Yield people with as many rows as each other, as many as there is room for at once.

    One person of many rows then makes nobody else's steps longer, or larger.
    """
    for count in map(int, np.unique(people.counts)):
        whose = np.flatnonzero(people.counts == count)
        at_once = max(1, _OWN // max(network.size, count * network.through))
        for start in range(0, len(whose), at_once):
            some = whose[start : start + at_once]
            rows, target = people.rows[some, :count], people.target[some, :count]
            yield People(rows, target, people.counts[some])


def _update(
    network: Network,
    begin: Numbers,
    order: LearnOrder,
    slices: Callable[[], Iterable[Slice]],
    threads: int,
) -> NDArray[np.int64]:
    """Return how far so many steps on all rows go; FedProx draws each of them back."""
    now = begin
    for _ in range(order.local):
        slope = _mean(network, network.weights(now), slices(), threads)
        now = now - order.rate * (slope + order.proximal * (now - begin))
    moved = np.nan_to_num(now - begin, nan=0.0, posinf=_MOST, neginf=-_MOST)
    return np.rint(np.clip(moved, -_MOST, _MOST) * 2.0**SUM_BITS).astype(np.int64)


def _fetched_once(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, kept: Kept
) -> Iterable[Fetched]:
    """Return what `_slices` gives; from memory, where a step or a round has fetched it before.

    It is kept where the card says that there cannot be much of it: no row decides.
    """
    if order.most_rows * (len(order.features) + 1) > _HELD:
        return _slices(connection, order)
    tables = () if order.front is None else order.front.tables
    wanted: tuple[object, ...] = (
        *(order.features, order.target, order.loss, order.max_rows, tables),
        order.coins is not None,
    )
    if wanted not in kept:
        kept.clear()
        kept[wanted] = tuple(_slices(connection, order))
    return kept[wanted]


def _mean(network: Network, weights: Weights, slices: Iterable[Slice], threads: int) -> Numbers:
    total, count = np.zeros(network.size), 0
    for rows in slices:
        total += _added(partial(network.whole_sum, weights), rows, network.size, threads)
        count += len(rows[0])
    return np.asarray(total / (max(1, count) * 2.0**SUM_BITS))


def _slices(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> Iterator[Fetched]:
    """Yield features on the grid of inputs, and targets; rows that lack a value are left out."""
    at_once = min(AT_ONCE, _CELLS // len(order.features))
    for columns in _fetched(connection, order, "rowid", at_once):
        whose = _NOBODYS if order.coins is None else columns[_unit(order)]
        yield packed(_features(columns, order), order.front), _target(columns, order), whose


def _people(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> Iterator[People]:
    """Yield rows by person: nobody is in two of them, and rows in excess fill up with nothing."""
    key, chosen = _unit(order), _chosen(connection, order)
    at_once = max(1, _CELLS // (len(order.features) * (order.max_rows or 1)))
    for found in _fetched(connection, order, key, min(AT_ONCE, at_once)):
        columns = found if chosen is None else _of_those(chosen[found[key]], found)
        whose = columns[key]
        if not len(whose):
            continue
        in_order = np.argsort(whose, kind="stable")
        _, starts, counts = np.unique(whose[in_order], return_index=True, return_counts=True)
        person = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(whose)) - np.repeat(starts, counts)
        rows = np.zeros((len(counts), int(counts.max()), len(order.features)))
        target = np.zeros(rows.shape[:2])
        rows[person, place] = entered(_features(columns, order)[in_order], order.front)
        target[person, place] = _target(columns, order)[in_order]
        yield People(rows, target, counts.astype(np.float64))


def _of_those(is_in: NDArray[np.bool_], columns: Columns) -> Columns:
    return {name: column[is_in] for name, column in columns.items()}


def _fetched(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, key: str, at_once: int
) -> Iterator[Columns]:
    """Yield the columns of so many keys at a time: rows that count, with a value everywhere."""
    fields = (*order.features, order.target)
    names = sorted({field.column for field in fields})
    told = ", ".join((*({key} if order.coins is None else {key, _unit(order)}), *names))
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    counted, bound = ("true", []) if order.max_rows is None else ("rr <= ?", [order.max_rows])
    table = table_name("duckdb", 0)
    for start in range(0, _last(connection, key) + 1, at_once):
        yield connection.execute(
            f"SELECT {told} FROM {table} WHERE {key} >= ? AND {key} < ? AND {counted} AND {known}",
            [start, start + at_once, *bound],
        ).fetchnumpy()


def _unit(order: LearnOrder) -> str:
    """Return the column that says whose a row is: its own, where a card knows no other person."""
    return "rowid" if order.max_rows is None else "person"


def _last(connection: duckdb.DuckDBPyConnection, key: str) -> int:
    """Return the largest number of that column, or -1."""
    found = connection.execute(f"SELECT max({key}) FROM {table_name('duckdb', 0)}").fetchone()
    return -1 if found is None or found[0] is None else int(found[0])


def _features(columns: Columns, order: LearnOrder) -> Numbers:
    return np.stack([_scaled(columns[one.column], one) for one in order.features], axis=1)


def _target(columns: Columns, order: LearnOrder) -> Numbers:
    target = columns[order.target.column]
    if order.loss == CLASSES:
        return np.asarray(target.astype(np.float64) - order.target.lower)
    return _scaled(target, order.target)


def _scaled(column: NDArray[Any], field: Field) -> Numbers:  # Any: as above
    span = field.upper - field.lower
    return np.asarray((column.astype(np.float64) - field.lower) / span)
