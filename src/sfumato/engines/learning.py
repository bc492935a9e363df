"""Training on a prepared table, in a worker: what comes back are whole numbers, not yet private.

Rows are fetched in slices, whose sums are exact, so that nothing hangs on where a slice ends.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.learning import Field, LearnOrder, Network, People, Walk, Weights, unpacked
from sfumato.core.learning.lesson import CLASSES, MOST_CELLS
from sfumato.core.learning.network import SUM_BITS, Numbers, inputs_of
from sfumato.engines.frames import Header
from sfumato.plan.lower_from import table_name

if TYPE_CHECKING:
    import duckdb

AT_ONCE: Final = 1 << 16  # rows that are fetched, or fewer:
_CELLS: Final = MOST_CELLS  # so many numbers: memory hangs on the order and not on the rows
_HELD: Final = 1 << 24  # numbers by the card that are kept for the next step, not fetched again
_OWN: Final = 1 << 20  # numbers of people's own models at once, and of what goes through them
_MOST: Final = 1 << 20  # of an update's number, which is clipped again where it is rounded


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
    }


def read_learn(request: Header) -> LearnOrder:
    """Return the order again; the message comes from our own parent."""
    body: dict[str, Any] = {k: v for k, v in request.items() if k != "do"}
    body["features"] = tuple(Field(*one) for one in body["features"])
    body["target"] = Field(*body["target"])
    body["hidden"] = tuple(body["hidden"])
    body["weights"] = base64.b64decode(body["weights"])
    return LearnOrder(**body)


def read_learnt(answer: bytes) -> NDArray[np.int64]:
    """Return the whole numbers of a worker's answer."""
    return np.frombuffer(answer, dtype="<i8").astype(np.int64)


def network_of(order: LearnOrder) -> Network:
    """Return the network that the order trains."""
    outs = order.target.upper - order.target.lower + 1 if order.loss == CLASSES else 1
    return Network((len(order.features), *order.hidden, outs), order.activation, order.loss)


def learnt(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> NDArray[np.int64]:
    """Return the clipped sum of gradients, or the update of a site's own steps."""
    network = network_of(order)
    begin = unpacked(order.weights, network.size)
    if order.local == 0:
        weights = network.weights(begin)
        total = np.zeros(network.size, dtype=np.int64)
        for rows, target in _slices(connection, order):
            total += network.clipped_sum(weights, rows, target, order.clip)
        return total
    if order.is_of_people:
        return _of_people(connection, network, begin, order)
    return _update(connection, network, begin, order)


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
        at_once = max(1, _OWN // max(network.size, count * sum(network.widths)))
        for start in range(0, len(whose), at_once):
            some = whose[start : start + at_once]
            rows, target = people.rows[some, :count], people.target[some, :count]
            yield People(rows, target, people.counts[some])


def _update(
    connection: duckdb.DuckDBPyConnection, network: Network, begin: Numbers, order: LearnOrder
) -> NDArray[np.int64]:
    """Return how far so many steps on all rows go; FedProx draws each of them back.

    Rows are kept between steps where the card says that there cannot be many.
    """
    is_small = order.most_rows * (len(order.features) + 1) <= _HELD
    held = list(_slices(connection, order)) if is_small else None
    now = begin
    for _ in range(order.local):
        rows = _slices(connection, order) if held is None else held
        slope = _mean(network, network.weights(now), rows) + order.proximal * (now - begin)
        now = now - order.rate * slope
    moved = np.nan_to_num(now - begin, nan=0.0, posinf=_MOST, neginf=-_MOST)
    return np.rint(np.clip(moved, -_MOST, _MOST) * 2.0**SUM_BITS).astype(np.int64)


def _mean(network: Network, weights: Weights, slices: Iterable[tuple[Numbers, Numbers]]) -> Numbers:
    total, count = np.zeros(network.size), 0
    for rows, target in slices:
        total += network.whole_sum(weights, rows, target)
        count += len(rows)
    return np.asarray(total / (max(1, count) * 2.0**SUM_BITS))


def _slices(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield features from 0 to 1, and targets; rows without a value somewhere are left out."""
    at_once = min(AT_ONCE, _CELLS // len(order.features))
    for columns in _fetched(connection, order, "rowid", at_once):
        yield _features(columns, order), _target(columns, order)


def _people(connection: duckdb.DuckDBPyConnection, order: LearnOrder) -> Iterator[People]:
    """Yield rows by person: nobody is in two of them, and rows in excess fill up with nothing."""
    key = "rowid" if order.max_rows is None else "person"
    at_once = max(1, _CELLS // (len(order.features) * (order.max_rows or 1)))
    for columns in _fetched(connection, order, key, min(AT_ONCE, at_once)):
        whose = columns[key]
        if not len(whose):
            continue
        in_order = np.argsort(whose, kind="stable")
        _, starts, counts = np.unique(whose[in_order], return_index=True, return_counts=True)
        person = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(whose)) - np.repeat(starts, counts)
        rows = np.zeros((len(counts), int(counts.max()), len(order.features)))
        target = np.zeros(rows.shape[:2])
        rows[person, place] = inputs_of(_features(columns, order)[in_order])
        target[person, place] = _target(columns, order)[in_order]
        yield People(rows, target, counts.astype(np.float64))


def _fetched(
    connection: duckdb.DuckDBPyConnection, order: LearnOrder, key: str, at_once: int
) -> Iterator[dict[str, NDArray[Any]]]:  # Any: whole steps of some width
    """Yield the columns of so many keys at a time: rows that count, with a value everywhere."""
    fields = (*order.features, order.target)
    names = sorted({field.column for field in fields})
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    counted, bound = ("true", []) if order.max_rows is None else ("rr <= ?", [order.max_rows])
    table = table_name("duckdb", 0)
    found = connection.execute(f"SELECT max({key}) FROM {table}").fetchone()
    last = -1 if found is None or found[0] is None else int(found[0])
    for start in range(0, last + 1, at_once):
        yield connection.execute(
            f"SELECT {key}, {', '.join(names)} FROM {table}"
            f" WHERE {key} >= ? AND {key} < ? AND {counted} AND {known}",
            [start, start + at_once, *bound],
        ).fetchnumpy()


def _features(columns: dict[str, NDArray[Any]], order: LearnOrder) -> Numbers:  # Any: as above
    return np.stack([_scaled(columns[one.column], one) for one in order.features], axis=1)


def _target(columns: dict[str, NDArray[Any]], order: LearnOrder) -> Numbers:  # Any: as above
    target = columns[order.target.column]
    if order.loss == CLASSES:
        return np.asarray(target.astype(np.float64) - order.target.lower)
    return _scaled(target, order.target)


def _scaled(column: NDArray[Any], field: Field) -> Numbers:  # Any: as above
    span = field.upper - field.lower
    return np.asarray((column.astype(np.float64) - field.lower) / span)
