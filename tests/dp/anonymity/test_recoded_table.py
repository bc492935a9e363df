"""Recodings: every output has what was asked for, and nothing but that was done to the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.anonymity.coded_table import Table, Value, table_of
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.global_recoding import judge, search
from sfumato.dp.anonymity.hierarchy_rules import (
    EVERYTHING,
    Intervals,
    Prefixes,
    Rule,
    Taxonomy,
    built,
)
from sfumato.dp.anonymity.local_recoding import loss_of, recode_locally
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoded_table import (
    Recoded,
    RecodingSettings,
    recode_by_class,
    recode_globally,
    recode_mondrian,
)
from sfumato.dp.anonymity.recoding_task import Node, Task, task_of
from sfumato.dp.refusal import Refused
from sfumato.lab.census_like_table import QUASI, SENSITIVE, adult_like, hierarchies
from support.k_anonymity_plain import classes, measures, rows_of, shares

TAXONOMY = Taxonomy({"a": ("ab",), "b": ("ab",), "c": ("cd",), "d": ("cd",), "": ("none",)})
RULES: dict[str, Rule] = {
    "n": Intervals((2, 4), 0),
    "zip": Prefixes((1,)),
    "kind": TAXONOMY,
    "flag": EVERYTHING,
}
QUASI_HERE = tuple(RULES)
ROW = st.tuples(
    st.integers(0, 9),
    st.sampled_from(["10", "11", "20", "21", "30"]),
    st.sampled_from(["a", "b", "c", "d", None]),
    st.booleans(),
    st.sampled_from("pqr"),
    st.integers(0, 3),
)
TABLES = st.lists(ROW, min_size=1, max_size=40).map(
    lambda rows: table_of(
        {name: [row[i] for row in rows] for i, name in enumerate((*QUASI_HERE, "s", "m"))}
    )
)
GOALS = st.sampled_from([
    Goal(2), Goal(3), Goal(2, l=2), Goal(2, entropy_l=1.5), Goal(3, t=0.3), Goal(2, t=0.5, l=2),
    Goal(2, alpha=0.7), Goal(2, beta=2.0), Goal(2, recursive=(3.0, 2)), Goal(2, delta=1.0),
    Goal(2, enhanced_beta=1.0),
])  # fmt: skip
WAYS: dict[str, Callable[[Table, RecodingSettings], Recoded]] = {
    "global": lambda table, way: recode_globally(table, way, 0.2),
    "global, nothing suppressed": recode_globally,
    "local": recode_by_class,
    "mondrian": recode_mondrian,
}


def every_node(task: Task) -> Iterator[Node]:
    """Yield all nodes of the lattice: all combinations of one level for each column."""
    return product(*map(range, task.heights))


def made(table: Table) -> dict[str, Hierarchy]:
    return {name: built(table.columns[name], rule) for name, rule in RULES.items()}


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=60, deadline=None)
@given(table=TABLES, goal=GOALS)
def test_every_output_has_what_was_asked_for(name: str, table: Table, goal: Goal) -> None:
    found = recoded_or_none(name, table, goal)
    if found is None:
        return
    assert_reached(found.table, QUASI_HERE, ["s", "m"], goal)


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=40, deadline=None)
@given(table=TABLES, goal=GOALS)
def test_nothing_but_the_allowed_was_done(name: str, table: Table, goal: Goal) -> None:
    """Rows are left out, never added; cells become their groups; all other columns stay."""
    found = recoded_or_none(name, table, goal)
    if found is None:
        return
    before, after = rows_of(table), rows_of(found.table)
    assert sorted(set(found.kept.tolist())) == found.kept.tolist()
    assert len(after) == len(found.kept)
    for row, place in zip(after, found.kept.tolist(), strict=True):
        original = before[place]
        assert (row["s"], row["m"]) == (original["s"], original["m"])
        for column, hierarchy in made(table).items():
            allowed = allowed_for(hierarchy, original[column], found.method)
            assert allowed(row[column]), (column, original[column], row[column])


@settings(max_examples=80, deadline=None)
@given(table=TABLES, goal=GOALS, suppress=st.sampled_from([0.0, 0.1, 0.3]))
def test_the_search_finds_what_trying_every_node_finds(
    table: Table, goal: Goal, suppress: float
) -> None:
    task = task_of(table, made(table), ["s", "m"], goal)
    judged = [judge(task, node, int(suppress * table.rows + 1e-9)) for node in every_node(task)]
    best = min((one.loss for one in judged if one.is_reached), default=None)
    if best is None:
        with pytest.raises(Refused, match="out-of-reach"):
            search(task, suppress)
        return
    assert search(task, suppress).best.loss == pytest.approx(best)


# the goal, what may be suppressed, and the most that local recoding may lose of the global optimum
GLOBAL = [
    (Goal(5), 0.05, 0.6),
    (Goal(10, l=2), 0.05, 0.6),
    (Goal(5), 0.0, 0.6),
    (Goal(10, t=0.2), 0.05, 0.7),
]


@pytest.mark.parametrize(("goal", "suppress", "most"), GLOBAL, ids=["k", "l", "k, none", "t"])
def test_of_6480_nodes_the_best_is_found_and_local_is_far_below_it(
    goal: Goal, suppress: float, most: float
) -> None:
    table = adult_like(1_500)
    task = task_of(table, hierarchies(table), [SENSITIVE], goal)
    found = search(task, suppress)
    judged = [judge(task, node, int(suppress * table.rows)) for node in every_node(task)]
    assert len(judged) == found.nodes == 6480
    assert found.best.loss == pytest.approx(min(one.loss for one in judged if one.is_reached))
    assert found.looked < 6480 / 2
    local = recode_by_class(table, RecodingSettings(hierarchies(table), goal, [SENSITIVE]))
    assert local.loss <= most * found.best.loss
    assert_reached(local.table, QUASI, [SENSITIVE], goal)


@settings(max_examples=40, deadline=None)
@given(table=TABLES)
def test_the_loss_is_that_of_the_cells(table: Table) -> None:
    hierarchies_of = made(table)
    try:
        found = recode_by_class(table, RecodingSettings(hierarchies_of, Goal(2)))
    except Refused:
        return
    rows, total = rows_of(found.table), 0.0
    before = rows_of(table)
    for row, original in zip(rows, before, strict=True):
        for name, hierarchy in hierarchies_of.items():
            total += plain_loss(hierarchy, original[name], row[name])
    assert found.loss == pytest.approx(total / len(rows) / len(hierarchies_of))


def test_an_impossible_request_says_how_close_one_can_get() -> None:
    table = table_of({"zip": ["10", "11", "20"], "s": ["p", "q", "p"]})
    ways = {"zip": built(table.columns["zip"], Prefixes((1,)))}
    with pytest.raises(Refused, match=r"nearest one suppresses 3 of 3 rows") as refused:
        recode_globally(table, RecodingSettings(ways, Goal(4)))
    assert refused.value.facts == {"suppressed": 3, "rows": 3}
    for way in (recode_by_class, recode_mondrian):
        with pytest.raises(Refused, match="out-of-reach"):
            way(table, RecodingSettings(ways, Goal(2, l=3), ["s"]))


def test_how_close_one_gets_counts_what_misses_any_of_the_goal() -> None:
    """Two rows are too few for k; that no class has so small an alpha is said as well."""
    table = table_of({"n": [*range(10), 50, 51], "s": [*range(12)]})
    ways = {"n": built(table.columns["n"], Intervals((10,)))}
    with pytest.raises(Refused, match=r"suppresses 12 of 12 .* Ask for less"):
        recode_globally(table, RecodingSettings(ways, Goal(5, alpha=0.01), ["s"]))
    other = Table({**table.columns, "s": table_of({"s": ["p"] * 5 + ["q"] * 7}).columns["s"]}, 12)
    way = RecodingSettings(ways, Goal(3, alpha=0.5), ["s"])
    with pytest.raises(Refused, match="Let more rows be suppressed") as refused:
        recode_globally(other, way)
    assert refused.value.facts["suppressed"] == 2
    assert len(recode_globally(other, way, 2 / 12).kept) == 10


def test_a_cell_of_many_texts_names_the_first_and_the_last() -> None:
    """A class of all of a million names would write them all into each of its cells."""
    names = [f"name {n:04d}" for n in range(1000)]
    table = table_of({"name": names})
    way = RecodingSettings({"name": built(table.columns["name"], EVERYTHING)}, Goal(500))
    cells = {str(row["name"]) for row in rows_of(recode_mondrian(table, way).table)}
    assert cells == {"{name 0000 .. name 0499}", "{name 0500 .. name 0999}"}


def test_more_may_be_suppressed_than_that_says() -> None:
    """One of three is alone at every level but the last; with a third suppressed that is enough."""
    table = table_of({"zip": ["10", "11", "20"]})
    way = RecodingSettings({"zip": built(table.columns["zip"], Prefixes((1,)))}, Goal(2))
    assert recode_globally(table, way, 0.34).kept.tolist() == [0, 1]
    assert recode_globally(table, way).levels == (2,)


@pytest.mark.parametrize("name", WAYS)
def test_a_table_without_rows_stays_without_rows(name: str) -> None:
    table = table_of({"n": [], "s": []})
    found = WAYS[name](
        table, RecodingSettings({"n": built(table.columns["n"], EVERYTHING)}, Goal(5))
    )
    assert (found.table.rows, found.loss) == (0, 0.0)


@pytest.mark.parametrize("name", WAYS)
def test_one_row_is_one_anonymous_and_never_two(name: str) -> None:
    table = table_of({"n": [7]})
    ways = {"n": built(table.columns["n"], EVERYTHING)}
    assert rows_of(WAYS[name](table, RecodingSettings(ways, Goal(1))).table) == [{"n": 7}]
    with pytest.raises(Refused, match="out-of-reach"):
        WAYS[name](table, RecodingSettings(ways, Goal(2)))


@pytest.mark.parametrize("name", WAYS)
def test_rows_that_are_all_alike_lose_nothing(name: str) -> None:
    table = table_of({"n": [7] * 5, "zip": ["a"] * 5})
    ways = {c: built(table.columns[c], EVERYTHING) for c in ("n", "zip")}
    found = WAYS[name](table, RecodingSettings(ways, Goal(5)))
    assert (found.loss, rows_of(found.table)) == (0.0, [{"n": 7, "zip": "a"}] * 5)


def test_rows_that_are_all_different_become_alike() -> None:
    table = table_of({"n": list(range(40)), "zip": [f"{n:02d}" for n in range(40)]})
    ways = {"n": built(table.columns["n"], Intervals((4, 8, 16), 0))}
    ways["zip"] = built(table.columns["zip"], Prefixes((1,)))
    for way in WAYS.values():
        found = way(table, RecodingSettings(ways, Goal(4)))
        assert_reached(found.table, ("n", "zip"), [], Goal(4))
        assert found.loss < 1


def test_a_goal_about_secrets_needs_secrets() -> None:
    table = table_of({"n": [1, 2]})
    with pytest.raises(Refused, match="none is named"):
        recode_globally(
            table, RecodingSettings({"n": built(table.columns["n"], EVERYTHING)}, Goal(2, l=2))
        )


def test_local_keeps_weights_apart() -> None:
    table = adult_like(500)
    counts = np.full(500, 3, np.int64)
    weighted = Table(table.columns, 500, counts)
    task = task_of(weighted, hierarchies(weighted), [], Goal(9))
    cells = recode_locally(task)
    sizes = np.bincount(cells.ids, task.tuples.weights)
    assert sizes.min() >= 9
    assert 0 < loss_of(task, cells) < 1


def recoded_or_none(name: str, table: Table, goal: Goal) -> Recoded | None:
    """Return the recoding; what is refused has to be out of reach."""
    try:
        return WAYS[name](table, RecodingSettings(made(table), goal, ["s", "m"]))
    except Refused as refused:
        code = refused.code
    assert code == "out-of-reach"
    return None


def assert_reached(table: Table, quasi: tuple[str, ...], hidden: list[str], goal: Goal) -> None:
    """Check the goal by brute force: rows, dictionaries and fractions."""
    rows = rows_of(table)
    if not rows:
        return
    assert min(len(one) for one in classes(rows, quasi)) >= goal.k
    for column in hidden if goal.needs_sensitive else []:
        found = measures(rows, quasi, column)
        assert found["l"] >= (goal.l or 1)
        assert found["entropy_l"] >= (goal.entropy_l or 0) - 1e-9
        for name in ("alpha", "t", "beta", "enhanced_beta", "delta"):
            limit = getattr(goal, name)
            assert limit is None or found[name] <= limit + 1e-9
        if goal.recursive is not None:
            c, least = goal.recursive
            for one in classes(rows, quasi):
                counts = sorted((float(x) for x in shares(one, column).values()), reverse=True)
                assert counts[0] < c * sum(counts[least - 1 :])


def allowed_for(hierarchy: Hierarchy, value: Value, method: str) -> Callable[[Value], bool]:
    """Return what a value may have become: one of its groups, or a range that holds it."""
    place = next(
        i for i, one in enumerate(hierarchy.domain) if (type(one), one) == (type(value), value)
    )
    if method != "mondrian":
        groups = [step.labels[step.of_value[place]] for step in hierarchy.levels[1:]]
        return lambda cell: cell in groups or (type(cell), cell) == (type(value), value)
    return lambda cell: cell == value or in_range(str(cell), hierarchy.domain, place)


def spell(value: Value) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_range(cell: str, domain: tuple[Value, ...], place: int) -> bool:
    spelled = [
        "" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in domain
    ]
    if cell.startswith("["):
        low, high = (int(part) for part in cell.strip("[]").split(", "))
        return low <= int(str(domain[place])) <= high
    if cell.startswith("{"):
        return spelled[place] in cell.strip("{}").split(" | ")
    return cell == spelled[place]


def plain_loss(hierarchy: Hierarchy, value: Value, cell: Value) -> float:
    """Return the penalty of one cell: the width of its group, or its share of the domain."""
    if (type(cell), cell) == (type(value), value):
        return 0.0
    for step in hierarchy.levels[1:]:
        place = hierarchy.domain.index(value)
        if step.labels[step.of_value[place]] != cell:
            continue
        group = [
            v
            for v, code in zip(hierarchy.domain, step.of_value, strict=True)
            if code == step.of_value[place]
        ]
        if len(group) == 1:
            return 0.0
        if hierarchy.name == "n" and len(hierarchy.domain) > 1:
            numbers = [float(str(v)) for v in hierarchy.domain]
            width = max(float(str(v)) for v in group) - min(float(str(v)) for v in group)
            return width / (max(numbers) - min(numbers))
        return len(group) / len(hierarchy.domain)
    return math.nan


def test_levels_that_tell_nothing_do_not_stop_a_local_recoding() -> None:
    """All zips begin alike: the steps from `*` to `0031*` gain nothing, and the last gains all."""
    zips = [f"0031{n}" for n in range(10) for _ in range(4)]
    table = table_of({"zip": zips})
    rule = Prefixes((4, 3, 2, 1))
    found = recode_by_class(
        table, RecodingSettings({"zip": built(table.columns["zip"], rule)}, Goal(4))
    )
    assert found.loss == 0


@settings(max_examples=40, deadline=None)
@given(table=TABLES, goal=st.sampled_from([Goal(2), Goal(3, l=2)]), data=st.data())
def test_a_node_is_judged_as_rows_and_dictionaries_do(
    table: Table, goal: Goal, data: st.DataObject
) -> None:
    ways = made(table)
    node = tuple(data.draw(st.integers(0, h.height - 1)) for h in ways.values())
    before = rows_of(table)
    cells = [generalised(row, ways, node) for row in before]
    classes_of: dict[tuple[int, ...], list[dict[str, Value]]] = {}
    for row, cell in zip(before, cells, strict=True):
        classes_of.setdefault(cell, []).append(row)
    bad = [
        c for c, rows in classes_of.items()
        if len(rows) < goal.k or len({row["s"] for row in rows}) < (goal.l or 1)
    ]  # fmt: skip
    suppressed = sum(len(classes_of[c]) for c in bad)
    for limit in (suppressed, suppressed - 1):  # as many as may be left out, and one too many
        found = judge(task_of(table, ways, ["s"], goal), node, limit)
        assert found.suppressed == suppressed
        assert found.is_reached == (suppressed <= limit and suppressed < table.rows)
        if not found.is_reached:
            continue
        pairs = zip(before, cells, strict=True)
        losses = [1.0 if cell in bad else row_loss(row, ways, node) for row, cell in pairs]
        assert found.loss == pytest.approx(sum(losses) / len(losses))


def generalised(
    row: dict[str, Value], ways: dict[str, Hierarchy], node: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the group of each of the row's cells at the node's levels."""
    steps = [h.levels[level] for h, level in zip(ways.values(), node, strict=True)]
    places = [h.domain.index(row[name]) for name, h in ways.items()]
    return tuple(int(s.of_value[place]) for s, place in zip(steps, places, strict=True))


def row_loss(row: dict[str, Value], ways: dict[str, Hierarchy], node: tuple[int, ...]) -> float:
    """Return the mean penalty of the row's cells at the node's levels."""
    found = []
    for (name, hierarchy), level in zip(ways.items(), node, strict=True):
        step, place = hierarchy.levels[level], hierarchy.domain.index(row[name])
        cell = row[name] if level == 0 else step.labels[step.of_value[place]]
        found.append(plain_loss(hierarchy, row[name], cell))
    return sum(found) / len(found)
