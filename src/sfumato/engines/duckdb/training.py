"""DP-SGD and DP-FedAvg rounds on a prepared table, in a worker; results are integers before noise.

Rows are fetched in slices. Integer sums are exact, so the result does not depend on the slices.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.learning.input_layers import entered, packed, read_input_layers
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
from sfumato.dp.learning.training_task import CLASSES, MAX_CELLS
from sfumato.engines.shared.message_frames import Header
from sfumato.query.printing.from_clause import table_name
from sfumato.vault.training_port import Field, LearnOrder

if TYPE_CHECKING:
    import duckdb

AT_ONCE: Final = 1 << 16  # most rows per slice
_CELLS: Final = MAX_CELLS  # most numbers per slice: memory depends on the order, not on the rows
# most numbers that are cached for later steps and rounds, by the card's limits
_HELD: Final = 1 << 24
_OWN: Final = 1 << 20  # most numbers of per-person models (and their activations) at once
_LONG: Final = 1 << 28  # a further thread pays off from this product of rows and parameters
_MOST: Final = 1 << 20  # bound of an update's numbers before they are rounded
Slice = tuple[Inputs, Numbers]  # features and targets of some rows
Columns = dict[str, NDArray[Any]]  # Any: integers of some width
Whose = NDArray[Any]  # Any: as above; the person of each row, empty without subsampling
Fetched = tuple[Inputs, Numbers, Whose]
_NOBODYS: Final = np.empty(0, dtype=np.int64)
# cache of fetched slices, keyed by the columns and settings of the order; one training at a time
Kept = dict[tuple[object, ...], tuple[Fetched, ...]]
Chosen = NDArray[np.bool_] | None  # flag per person: sampled in this round; None for everybody


def learn_header(order: LearnOrder, table: str) -> Header:
    """Return the message that asks the worker for one training round."""
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
    """Parse the training order in a message of the parent process."""
    body: dict[str, Any] = {k: v for k, v in request.items() if k != "do"}
    body["features"] = tuple(Field(*one) for one in body["features"])
    body["target"] = Field(*body["target"])
    body["hidden"] = tuple(body["hidden"])
    body["weights"] = base64.b64decode(body["weights"])
    if body["coins"] is not None:
        key, below = body["coins"]
        body["coins"] = PoissonSample(bytes.fromhex(key), below)
    body["front"] = read_input_layers(body["front"])
    return LearnOrder(**body)


def read_learnt(answer: bytes) -> NDArray[np.int64]:
    """Parse the integers of a worker's answer: a gradient sum or an update."""
    return np.frombuffer(answer, dtype="<i8").astype(np.int64)


def network_of(order: LearnOrder) -> Network:
    """Return the neural network that a training order describes."""
    outs = order.target.upper - order.target.lower + 1 if order.loss == CLASSES else 1
    ins = len(order.features) if order.front is None else order.front.outs
    return Network((ins, *order.hidden, outs), order.activation, order.loss, order.front)


def train(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, kept: Kept, threads: int = 1
) -> NDArray[np.int64]:
    """Run one round of DP-SGD or DP-FedAvg, without noise, and return integers.

    They are the clipped gradient sum or the update. `kept` is the cache of slices of this table
    from earlier rounds.
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
    """Draw the Poisson subsample of a training round; return a flag per person.

    If each row is its own privacy unit, return a flag per row. None means that everybody is
    sampled.
    """
    if order.coins is None:
        return None
    return order.coins.tossed(_last(connection, _unit(order)) + 1)


def _rows_of(chosen: Chosen, inputs: Inputs, target: Numbers, whose: Whose) -> Slice:
    """Return the rows of a slice that belong to sampled persons: all rows of a person, or none."""
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
    """Sum over the rows of a slice, in parallel threads if there are many rows.

    Integer sums do not depend on how the rows are divided.
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
    """Return the sum of the clipped updates of all sampled persons (DP-FedAvg per person).

    Each person's update is the result of local gradient steps on the person's own rows.
    """
    walk = Walk(order.local, order.rate, order.proximal, order.clip)
    total = np.zeros(network.size, dtype=np.int64)
    for people in _people(connection, order):
        for alike in _alike(people, network):
            total += network.people_sum(begin, alike, walk)
    return total


def _alike(people: People, network: Network) -> Iterator[People]:
    """Yield batches of persons who have the same number of rows; a batch has a limited size.

    So a person with many rows does not lengthen other persons' arrays.
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
    """Run a site's local gradient steps, with a FedProx term; return the model update, rounded."""
    now = begin
    for _ in range(order.local):
        slope = _mean(network, network.weights(now), slices(), threads)
        now = now - order.rate * (slope + order.proximal * (now - begin))
    moved = np.nan_to_num(now - begin, nan=0.0, posinf=_MOST, neginf=-_MOST)
    return np.rint(np.clip(moved, -_MOST, _MOST) * 2.0**SUM_BITS).astype(np.int64)


def _fetched_once(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, kept: Kept
) -> Iterable[Fetched]:
    """Return the training rows in slices, cached across steps and rounds if the table is small.

    The card's maximal number of rows decides whether to cache, never the rows themselves.
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
    """Yield training rows in slices: scaled features, targets and persons; skip rows with nulls."""
    at_once = min(AT_ONCE, _CELLS // len(order.features))
    for columns in _fetched(connection, order, "rowid", at_once):
        whose = _NOBODYS if order.coins is None else columns[_unit(order)]
        yield packed(_features(columns, order), order.front), _target(columns, order), whose


def _people(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> Iterator[People]:
    """Yield batches of whole persons for training; pad persons with fewer rows with zero rows."""
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
    """Yield columns of training rows without nulls, in slices of `at_once` values of `key`.

    `key` is a column that numbers persons or rows. Each person has at most `max_rows` rows, if the
    order sets that bound.
    """
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
    """Return the SQL column of the privacy unit: `person`, or `rowid` if the unit is a row."""
    return "rowid" if order.max_rows is None else "person"


def _last(connection: duckdb.DuckDBPyConnection, key: str) -> int:
    """Return the largest number of a person or row (the column `key`), or -1 for an empty table."""
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
