"""Global recoding: find the optimal level of generalisation for each column, with pruning.

A node of the lattice is one level for each column. The loss of a node is the mean normalised
certainty penalty of all rows, where a suppressed row counts as 1. Two rules prune the search:

- The loss without suppression is a lower bound, and is known for every node in advance. The search
  skips a node whose bound is at least the best loss found so far.
- If too many rows fail k or l at a node, they also fail at every node below (predictive tagging).
  The reason is that merging classes never makes them smaller or less diverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents
from sfumato.dp.anonymity.coded_table import Bits, Codes, Column, Floats
from sfumato.dp.anonymity.equivalence_classes import counted, key_of
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.privacy_criteria import kept_by
from sfumato.dp.anonymity.recoding_task import Node, Task, Tuples
from sfumato.dp.refusal import Refused

# --- Packed rows: the data structure on which the search evaluates nodes
#
# Several columns with few values are packed into one integer. At a node, a small lookup table maps
# each packed integer to its group. So evaluating a node takes one pass over the rows for each pack,
# not for each column.


_WIDE: Final = 4096  # most distinct integers in a pack of several columns
_ROOM: Final = 16  # keys are sorted if their range exceeds this many times the rows
_LARGEST: Final = 2**62


@dataclass(frozen=True)
class Pack:
    """Neighbouring columns whose values are packed into one integer, to make the search faster."""

    axes: tuple[int, ...]
    hierarchies: tuple[Hierarchy, ...]

    def groups(self, node: Node) -> tuple[Codes, int]:
        """Return the group of each packed integer at a node, and the number of groups.

        A node is a generalisation level for each column.
        """
        groups, count = np.zeros(1, np.int64), 1
        for axis, hierarchy in zip(self.axes, self.hierarchies, strict=True):
            level = hierarchy.levels[node[axis]]
            groups = np.add.outer(groups * len(level.labels), level.of_value).ravel()
            count *= len(level.labels)
        return groups, count

    def losses(self, node: Node) -> Floats:
        """Return the information loss of each packed integer at a node, summed over the columns.

        A node is a generalisation level for each column.
        """
        losses = np.zeros(1)
        for axis, hierarchy in zip(self.axes, self.hierarchies, strict=True):
            losses = np.add.outer(losses, hierarchy.losses[node[axis]]).ravel()
        return losses


@dataclass(frozen=True)
class PackedRows:
    """The distinct rows of a table as the search reads them: columns packed into few integers.

    Each row has a weight. All PackedRows of a task have the same packs of columns.
    """

    packs: tuple[Pack, ...]
    numbers: tuple[Codes, ...]  # per pack
    secrets: tuple[Codes, ...]  # per sensitive column that the goal is about
    columns: tuple[Column, ...]  # those columns
    weights: Codes

    @property
    def rows(self) -> int:
        """Return the number of distinct rows."""
        return len(self.weights)

    def loss_of(self, rows: Codes, node: Node) -> float:
        """Return the information loss that suppressing these rows adds at a node, weights included.

        A node is a generalisation level for each column.
        """
        columns = sum(len(pack.axes) for pack in self.packs)
        spared = np.zeros(len(rows))
        for pack, numbers in zip(self.packs, self.numbers, strict=True):
            spared += pack.losses(node)[numbers[rows]]
        return float((columns - spared) @ self.weights[rows]) / (columns or 1)

    def at(self, rows: Codes, weights: Codes) -> PackedRows:
        """Return the selected rows in packed form; `weights` are their new weights."""
        numbers = tuple(one[rows] for one in self.numbers)
        secrets = tuple(one[rows] for one in self.secrets)
        return PackedRows(self.packs, numbers, secrets, self.columns, weights)


@dataclass(frozen=True)
class Kinds:
    """Rows grouped by an integer key: equal rows have equal keys, and each group has its size.

    The size is the sum of the rows' weights.
    """

    key: Codes  # the key of every row
    span: int  # every key is below this
    keys: Codes  # the key of every group, in order
    sizes: Codes
    names: Codes  # the original key of every group, before keys were renumbered


@dataclass(frozen=True)
class NodeEvaluation:
    """The equivalence classes at one node (levels for all columns), with sensitive values.

    `alike` groups rows that are equal in class and sensitive values.
    """

    rows: PackedRows
    classes: Kinds
    contents: tuple[Contents, ...]  # of the sensitive columns
    alike: Kinds

    def outside(self, kept: Bits) -> Codes:
        """Return the rows of the suppressed classes: those that the mask `kept` leaves out."""
        is_kept = np.zeros(self.classes.span, bool)
        is_kept[self.classes.keys] = kept
        return np.flatnonzero(~is_kept[self.classes.key])

    @property
    def merged(self) -> PackedRows:
        """Return the rows rolled up: one for all that are equal in class and sensitive values."""
        anyone = np.zeros(self.alike.span, np.int64)
        anyone[self.alike.key] = np.arange(self.rows.rows)
        return self.rows.at(anyone[self.alike.keys], self.alike.sizes)


def packed_rows(task: Task) -> PackedRows:
    """Return the distinct rows of a recoding task, with the columns packed into few integers."""
    tuples = task.tuples
    packs, numbers = [], []
    for axes in _packs([len(h.domain) for h in task.hierarchies], min(_WIDE, tuples.rows)):
        pack = Pack(axes, tuple(task.hierarchies[axis] for axis in axes))
        columns = [(tuples.places[axis], len(task.hierarchies[axis].domain)) for axis in axes]
        packs.append(pack)
        numbers.append(key_of(columns, tuples.rows))
    secret = tuples.sensitive if task.goal.needs_sensitive else ()
    codes = tuple(column.codes for column in secret)
    return PackedRows(tuple(packs), tuple(numbers), codes, secret, tuples.weights)


def evaluate(rows: PackedRows, node: Node) -> NodeEvaluation:
    """Compute the equivalence classes of the rows at a node, and their sensitive values.

    A node is a generalisation level for each column.
    """
    classes = alike = _kinds(*_key(rows, node), rows.weights)
    contents = []
    for column, codes in zip(rows.columns, rows.secrets, strict=True):
        pairs = _refined(classes, column, codes, rows.weights)
        contents.append(_contents(classes, pairs, column))
        more = len(contents) > 1
        alike = _refined(alike, column, codes, rows.weights) if more else pairs
    return NodeEvaluation(rows, classes, tuple(contents), alike)


def _packs(domains: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Decide which neighbouring columns are packed into one integer; return each pack's columns.

    A pack has one column, or at most `most` distinct integers. `domains` has the number of values
    of each column.
    """
    packs: list[tuple[int, ...]] = []
    size = 0
    for axis, values in enumerate(domains):
        if packs and size * values <= most:
            packs[-1], size = (*packs[-1], axis), size * values
        else:
            packs, size = [*packs, (axis,)], values
    return packs


def _key(rows: PackedRows, node: Node) -> tuple[Codes, int]:
    """Return a key per row, equal within an equivalence class, and a bound above all keys.

    The classes are those at the node: a generalisation level for each column.
    """
    grouped = [pack.groups(node) for pack in rows.packs]
    span = prod(count for _, count in grouped)
    if span > _LARGEST:
        columns = [(groups[n], c) for (groups, c), n in zip(grouped, rows.numbers, strict=True)]
        return key_of(columns, rows.rows), _LARGEST
    key, stride = np.zeros(rows.rows, np.int64), 1
    for (groups, count), numbers in zip(grouped, rows.numbers, strict=True):
        if count > 1:
            key += (groups * stride).take(numbers)
            stride *= count
    return key, span


def _refined(kinds: Kinds, column: Column, codes: Codes, weights: Codes) -> Kinds:
    """Split each group of equal rows further, by the values of a sensitive column."""
    values = max(1, len(column.values))
    return _kinds(kinds.key * values + codes, kinds.span * values, weights)


def _contents(classes: Kinds, pairs: Kinds, column: Column) -> Contents:
    values = max(1, len(column.values))
    of_key = pairs.names // values
    of_class = np.cumsum(np.diff(of_key, prepend=of_key[:1]) != 0)
    return Contents(
        classes.sizes, of_class, pairs.names % values, pairs.sizes, values, column.is_ordered
    )


def _kinds(key: Codes, span: int, weights: Codes) -> Kinds:
    """Group rows by their integer keys, to get equivalence classes; every key is below `span`.

    The keys are sorted only if they span a large range.
    """
    if span > _ROOM * len(key) + 1024:
        names, small = np.unique(key, return_inverse=True)
        small, places = small.ravel(), np.arange(len(names))
        return Kinds(small, len(names), places, counted(small, len(names), weights), names)
    every = np.bincount(key, weights, minlength=span)
    keys: Codes = np.flatnonzero(every > 0)
    return Kinds(key, span, keys, every[keys].astype(np.int64), keys)


MAX_NODES = 2_000_000
_SMALLER = 0.5  # a rolled-up table is stored if it has at most this share of its source's rows
_EQUAL = 1e-12  # extra cost of one level, to break ties between nodes of equal loss
_SMALL_TABLE = 400  # tables with at most this many rows are not rolled up
_RETRIED = 200  # most hopeless nodes that a refusal evaluates to report the nearest one
_ROLLED = 12  # all rolled-up tables together have at most this many times the distinct rows


@dataclass(frozen=True)
class Judged:
    """The verdict on one node of the search: its loss, and whether it meets the privacy criteria.

    A node is a level for each column.
    """

    node: Node
    suppressed: int
    loss: float
    is_reached: bool
    is_hopeless: bool  # every node below fails too, so the search skips them


@dataclass
class _Search:
    """The mutable state of one search for the best node; this module has no other state."""

    task: Task
    rows: PackedRows
    limit: int  # rows that may be suppressed
    least: Floats  # for each node, its loss without suppression: a lower bound
    closed: Bits  # nodes that need no evaluation
    best: Judged | None = None
    missed: list[Judged] = field(default_factory=list)  # nodes that fail the criteria
    looked: int = 0
    rolled: list[PackedRows] = field(default_factory=list)  # rolled-up rows of evaluated nodes
    rolled_at: Codes = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # those nodes
    rolled_rows: int = 0


@dataclass(frozen=True)
class Found:
    """The result of a search: the best node, the number of all nodes, and of evaluated nodes."""

    best: Judged
    nodes: int
    looked: int


def search(task: Task, suppress: float = 0.0) -> Found:
    """Find the generalisation levels with the least loss that meet the privacy criteria.

    `suppress` is the largest share of rows that may be suppressed, from 0 to 1.
    """
    nodes = int(np.prod([float(height) for height in task.heights]))
    if nodes > MAX_NODES:
        raise Refused(
            "bad-request",
            f"The hierarchies allow {nodes:,} ways to generalise the table, and at most "
            f"{MAX_NODES:,} can be tried.",
            "Leave out some levels or columns, or use a local recoding method (mondrian).",
        )
    state = _begun(task, int(suppress * task.people + 1e-9))
    while (node := _cheapest_open(state)) is not None:
        _climb(state, node)
    if state.best is None:
        raise unreachable(task, _nearest(state))
    best = judge(task, state.best.node, state.limit)  # its loss without the tie-breaking _EQUAL
    return Found(best, nodes, state.looked)


def judge(task: Task, node: Node, limit: int, tuples: Tuples | None = None) -> Judged:
    """Evaluate a node: suppress the classes that fail the criteria, then compute the loss.

    A node is a level for each column. At most `limit` rows may be suppressed. `tuples` are the
    distinct rows, if not those of the task.
    """
    rows = task.tuples if tuples is None else tuples
    ids, sizes = task.classes(rows, node)

    def loss(kept: Bits) -> float:
        lost = np.where(kept[ids], task.loss_of(rows, node), 1.0)
        return float(lost @ rows.weights) / max(1, task.people)

    return _judged((task, node, limit), sizes, task.contents(rows, ids, sizes), loss)


def _judged(
    at: tuple[Task, Node, int],
    sizes: Codes,
    contents: Sequence[Contents],
    loss: Callable[[Bits], float],
) -> Judged:
    """Evaluate a node (levels for all columns) from its equivalence classes, as `judge` does.

    `loss` computes the loss for a choice of classes that are not suppressed.
    """
    task, node, limit = at
    least = int(sizes[task.goal.surely_fails(sizes, contents)].sum())
    if least > limit:
        return Judged(node, least, 1.0, is_reached=False, is_hopeless=True)
    kept = kept_by(task.goal, sizes, contents)
    suppressed = int(sizes[~kept].sum())
    if suppressed > limit or (suppressed == task.people and task.people):
        return Judged(node, suppressed, 1.0, is_reached=False, is_hopeless=False)
    return Judged(node, suppressed, loss(kept), is_reached=True, is_hopeless=False)


def unreachable(task: Task, nearest: Judged | None) -> Refused:
    """Build the refusal (an exception) that no levels of the columns meet the privacy criteria.

    It reports how many rows the nearest node suppresses. A node is a generalisation level for each
    column.
    """
    rest = task.people if nearest is None else nearest.suppressed
    share = rest / max(1, task.people)
    more = "Let more rows be suppressed, a" if rest < task.people else "A"
    return Refused(
        "out-of-reach",
        f"No generalisation of these columns reaches {task.goal.in_words} with so few rows "
        f"suppressed. The nearest one suppresses {rest:,} of {task.people:,} rows ({share:.1%}; "
        "these counts are owner-only).",
        f"{more}sk for less (a smaller k or l, or a larger t), or give the hierarchies coarser "
        "levels.",
        suppressed=rest,
        rows=task.people,
    )


def _begun(task: Task, limit: int) -> _Search:
    least = np.zeros(task.heights)
    people = max(1, task.people)
    for axis, (hierarchy, codes) in enumerate(
        zip(task.hierarchies, task.tuples.places, strict=True)
    ):
        weights = np.bincount(codes, task.tuples.weights, minlength=len(hierarchy.domain))
        means = np.array([float(losses @ weights) / people for losses in hierarchy.losses])
        shape = [1] * len(task.heights)
        shape[axis] = -1
        least = least + means.reshape(shape) / len(task.heights)
    for axis, height in enumerate(task.heights):  # among nodes of equal loss, prefer the lowest
        shape = [1] * len(task.heights)
        shape[axis] = -1
        least = least + np.arange(height).reshape(shape) * _EQUAL
    none = np.zeros((0, len(task.heights)), np.int64)
    return _Search(
        task, packed_rows(task), limit, least, np.zeros(task.heights, bool), rolled_at=none
    )


def _cheapest_open(state: _Search) -> Node | None:
    costs = np.where(state.closed, np.inf, state.least)
    place = int(np.argmin(costs))
    bound = np.inf if state.best is None else state.best.loss
    if not costs.flat[place] < bound:  # no better than the best, or closed
        return None
    return tuple(int(level) for level in np.unravel_index(place, costs.shape))


def _climb(state: _Search, node: Node) -> None:
    """Find the lowest node from `node` upwards that may meet the privacy criteria, by bisection.

    A node is a level for each column. The code bisects a chain of nodes from this one to the top,
    and evaluates nodes on the way.
    """
    chain = list(_chain(state, node))
    low, high = 0, len(chain) - 1
    while low <= high:
        middle = (low + high) // 2
        judged = _look(state, chain[middle])
        if judged.is_hopeless:
            low = middle + 1
        else:
            high = middle - 1


def _chain(state: _Search, node: Node) -> Iterator[Node]:
    """Yield nodes to evaluate from `node` upwards, each time by the cheapest step.

    A node is a level for each column, and a step raises one level. The chain ends at a node whose
    lower bound of the loss is at least the best loss found.
    """
    bound = np.inf if state.best is None else state.best.loss
    while state.least[node] < bound:
        if not state.closed[node]:
            yield node
        above = [
            _raised(node, axis) for axis, h in enumerate(state.task.heights) if node[axis] < h - 1
        ]
        if not above:
            return
        node = min(above, key=lambda one: float(state.least[one]))


def _raised(node: Node, axis: int) -> Node:
    return (*node[:axis], node[axis] + 1, *node[axis + 1 :])


def _look(state: _Search, node: Node) -> Judged:
    look = evaluate(_smallest_source(state, node), node)

    def loss(kept: Bits) -> float:
        more = look.rows.loss_of(look.outside(kept), node) / max(1, state.task.people)
        return float(state.least[node]) + more

    judged = _judged((state.task, node, state.limit), look.classes.sizes, look.contents, loss)
    _keep_rolled_up(state, node, look)
    state.looked += 1
    state.closed[node] = True
    if judged.is_hopeless:
        state.closed[tuple(slice(0, level + 1) for level in node)] = True
    if judged.is_reached and (state.best is None or judged.loss < state.best.loss):
        state.best = judged
    if not judged.is_reached:
        state.missed.append(judged)
    return judged


def _nearest(state: _Search) -> Judged | None:
    """Return the evaluated node that suppresses the fewest rows, to report it in a refusal.

    A node is a level for each column. For a hopeless node, the search knows only the rows that fail
    k-anonymity or l-diversity. More rows may fail the other criteria, so this function evaluates
    such nodes again.
    """
    task = state.task
    if task.goal.is_about_k_and_l:
        return min(state.missed, key=lambda one: one.suppressed, default=None)
    known = [one for one in state.missed if not one.is_hopeless]
    known.append(judge(task, task.top, task.people))
    nearest = min(known, key=lambda one: one.suppressed)
    hopeless = sorted(
        (one for one in state.missed if one.is_hopeless), key=lambda one: one.suppressed
    )
    for one in hopeless[:_RETRIED]:
        if one.suppressed >= nearest.suppressed:
            break
        again = judge(task, one.node, task.people)
        nearest = min(nearest, again, key=lambda one: one.suppressed)
    return nearest


def _smallest_source(state: _Search, node: Node) -> PackedRows:
    """Return the fewest rows from which a node can be evaluated, to save work.

    A node is a level for each column. Evaluated nodes left their rows rolled up (equal rows
    merged). These rows serve if none of their levels is above the node's; otherwise all rows do.
    """
    fitting = (state.rolled_at <= np.array(node, np.int64)).all(axis=1)
    rows = [state.rolled[place] for place in np.flatnonzero(fitting)]
    return min(rows, key=lambda one: one.rows, default=state.rows)


def _keep_rolled_up(state: _Search, node: Node, look: NodeEvaluation) -> None:
    """Store the rolled-up rows of a node, to evaluate higher nodes faster.

    They are stored only if they are much fewer and the memory limit allows it.
    """
    rows, made = look.rows.rows, len(look.alike.sizes)
    room = _ROLLED * state.rows.rows - state.rolled_rows
    if rows <= _SMALL_TABLE or made > min(room, _SMALLER * rows):
        return
    state.rolled.append(look.merged)
    state.rolled_rows += made
    state.rolled_at = np.vstack([state.rolled_at, np.array([node], np.int64)])
