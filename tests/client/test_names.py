"""What somebody types who knows pandas: names, keywords, listings, and frames of an answer."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

from sfumato import Refused, col
from sfumato.app.vault import OpenVault
from sfumato.client import Answer, Builder, Column, DataSet, Vault
from sfumato.client.async_vault import AsyncDataSet
from sfumato.client.pandas_hints import ANSWER_HINTS, COLUMN_HINTS, QUESTION_HINTS
from sfumato.server.embedded_transport import LocalTransport
from sfumato.vault.users import Caller
from support.small_vaults import card, open_with, write_csv

CARD = """
unit = "who"
people = "visitors"
budget = { epsilon = 1000, delta = 0 }
max_groups = 1
max_rows = 1
[ask]
who = ["researchers"]
[columns.place]
type = "text"
keys = ["north", "south"]
[columns.cost]
type = "number"
lower = 0
upper = 10
step = 1
[columns.sick]
type = "boolean"
"""
ROWS = [(f"p{n}", ("north", "south")[n % 2], n % 10, n % 3 == 0) for n in range(200)]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("names")
    source = write_csv(folder / "rows.csv", ("who", "place", "cost", "sick"), ROWS)
    with open_with(folder, "visits", source, CARD) as opened:
        yield opened


@pytest.fixture(scope="module")
def answer(vault: OpenVault) -> Answer:
    return vault["visits"].group_by("place").count(name="n").ask(epsilon=10)


def test_the_columns_are_those_of_the_card(vault: OpenVault) -> None:
    assert vault["visits"].columns == ("place", "cost", "sick")


def test_a_new_data_set_is_found_and_one_that_is_not_there_is_refused(
    vault: OpenVault, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=r"unknown-data-set: .* 'later' .* You may ask: visits"):
        vault["later"]
    others = [(f"q{n}", *row) for n, (_, *row) in enumerate(ROWS)]
    source = write_csv(tmp_path / "rows.csv", ("who", "place", "cost", "sick"), others)
    vault.add("later", source, card(CARD.replace("visitors", "others")))
    assert vault["later"].columns == ("place", "cost", "sick")
    assert "later" in vault
    assert len(vault) == 2


def test_who_may_ask_and_not_list_still_asks(vault: OpenVault) -> None:
    asker = Caller("owner", frozenset({"ask"}))
    bare = Vault(LocalTransport(vault.house.desk, asker))
    with pytest.raises(Refused, match="not-allowed"):
        len(bare)
    assert bare["visits"].ask("SELECT COUNT(*) FROM visits", epsilon=1).columns


XS = ["cost"]
WRONG: dict[str, Callable[[Any], object]] = {  # Any: what a type checker would not let pass
    "A question takes no argument 'eps'. Known arguments: delta, epsilon, error, fresh": (
        lambda visits: visits.ask("SELECT COUNT(*) FROM visits", eps=1)
    ),
    "A question takes no argument 'epsilom'": lambda visits: visits.count().ask(epsilom=1),
    "A question takes no argument 'rows'": lambda visits: visits.count().price(epsilon=1, rows=2),
    "a clamping check does not take the argument 'eps'": lambda visits: visits.logistic(
        "sick", XS, eps=1
    ),
    "not take the arguments rounds and resume": lambda visits: visits.linear(
        "cost", XS, epsilon=1, rounds=2
    ),
    "A histogram takes no argument 'fresh'": lambda v: v.histogram("cost", epsilon=1, fresh=True),
    "A DP twin takes no argument 'bins'": lambda visits: visits.dp_twin(epsilon=1, bins=["cost"]),
}


@pytest.mark.parametrize("says", WRONG)
def test_a_keyword_that_there_is_not_is_refused_with_those_that_there_are(
    vault: OpenVault, says: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        WRONG[says](vault["visits"])
    assert refused.value.code == "not-in-language"


def by_duckdb(answer: Answer) -> list[Any]:  # Any: whatever cells there are
    found = duckdb.sql("FROM answer")  # it finds the variable by its name
    assert found is not None
    assert len(answer) == 2
    return found.fetchall()


def by_pandas(answer: Answer) -> list[tuple[object, ...]]:
    """Read it by pandas, of which versions before the third ask pyarrow."""
    read = getattr(pandas.DataFrame, "from_arrow", lambda a: pyarrow.table(a).to_pandas())
    return list(read(answer).itertuples(index=False, name=None))


READERS: dict[str, Callable[[Answer], list[tuple[object, ...]]]] = {
    "pyarrow": lambda a: list(zip(*pyarrow.table(a).to_pydict().values(), strict=True)),
    "polars": lambda a: polars.DataFrame(a).rows(),
    "pandas": by_pandas,
    "duckdb": by_duckdb,
}


@pytest.mark.parametrize("reader", READERS)
def test_other_libraries_read_an_answer_as_it_is(answer: Answer, reader: str) -> None:
    rows = READERS[reader](answer)
    assert [tuple(map(str, row)) for row in rows] == [
        tuple(map(str, row)) for row in zip(*answer.frame().values(), strict=True)
    ]


def test_polars_reads_an_answer_where_pyarrow_is_not_installed(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it could not be imported
    assert polars.DataFrame(answer).columns == list(answer.frame())


KINDS: dict[str, tuple[type, dict[str, str]]] = {
    "data set": (DataSet, dict(QUESTION_HINTS)),
    "asynchronous data set": (AsyncDataSet, dict(QUESTION_HINTS)),
    "question": (Builder, dict(QUESTION_HINTS)),
    "answer": (Answer, dict(ANSWER_HINTS)),
    "column": (Column, dict(COLUMN_HINTS)),
}


def named(hint: str) -> set[str]:
    """Return the names of ours that a hint tells to call; a frame's methods are not ours."""
    return set(re.findall(r"(?<!to_pandas\(\)\.)\b([a-z_]+)\(", hint))


@pytest.mark.parametrize("kind", KINDS)
def test_a_hint_names_what_there_is(kind: str) -> None:
    there = {"col", "len", *dir(DataSet), *dir(Builder), *dir(Answer), *dir(Column)}
    assert {name for hint in KINDS[kind][1].values() for name in named(hint)} <= there


def test_a_name_of_pandas_says_what_it_is_here(vault: OpenVault, answer: Answer) -> None:
    visits: Any = vault["visits"]  # Any: what a type checker would not let pass
    for thing, name, says in (
        (visits, "groupby", "A data set has no 'groupby'. Write group_by"),
        (visits.count(), "std", "A question has no 'std'. Write deviation"),
        (visits, "head", "No row leaves the vault"),
        (visits.count(), "columns", "data_set.columns"),
        (answer, "shape", "An answer has no 'shape'. Write len"),
        (col("cost"), "isin", "A column has no 'isin'. Write is_in"),
        (visits, "nonsense", "'DataSet' object has no attribute 'nonsense'"),
    ):
        assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match=re.escape(says)):
            getattr(thing, name)


def test_hints_leave_copies_and_protocols_alone(answer: Answer) -> None:
    assert copy.deepcopy(answer) == answer
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert not hasattr(answer, "__dataframe__")
    assert not hasattr(answer, "_ipython_display_")
