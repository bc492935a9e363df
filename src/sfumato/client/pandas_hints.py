"""Hints for pandas and polars names: the name to use here, or why there is none.

An unknown attribute still raises AttributeError, so `hasattr` and protocol checks of libraries
work as usual; only the message is longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

_NO_ROW: Final = (
    "No row leaves the vault. To try things with rows, use synthetic data: data_set.twin()."
)
_TOGETHER: Final = 'Ask for several aggregates one after the other: .count().mean("cost").'
_NARROW: Final = 'Write where(age=(18, 65)) or where(col("age") >= 18).'
_TRANSFORM: Final = (
    'Write the expression where the column is used: .sum(col("cost") * 2). With numbers of the '
    "answer, write .formula(...)."
)
_PROGRAM: Final = (
    "To run your own function, write data_set.run(function, outputs=..., epsilon=...)."
)
_JOIN: Final = (
    'Join tables of the card with join("visits"), and look up public ones with look_up(...).'
)
_NULLS: Final = 'Narrow with where(~col("cost").is_null()), or count values with .count("cost").'
_NO_ANSWER: Final = "No private answer exists for this."
_ASK_FIRST: Final = "Ask first: the answer of .ask(epsilon=1) has .to_pandas(), .plot() and .rows."

# hints for data sets and questions: unknown name -> the sentence that helps
QUESTION_HINTS: Final[Mapping[str, str]] = {
    "agg": _TOGETHER,
    "aggregate": _TOGETHER,
    "apply": _PROGRAM,
    "assign": _TRANSFORM,
    "average": 'Write mean("cost").',
    "avg": 'Write mean("cost").',
    "collect": _ASK_FIRST,
    "columns": "The columns are those of the data set: data_set.columns.",
    "corr": 'Write correlation("y", "x").',
    "cov": 'Write covariance("y", "x").',
    "cumcount": "Write running_count(), after a group_by of a period.",
    "cumsum": "There is no running sum. For rows, use running_count(), by a period.",
    "cut": 'Write group_by(col("age").bins(10)).',
    "describe": (
        "Each number is asked for and paid: "
        '.count("age").mean("age").deviation("age").quantile("age", 0.25, 0.5, 0.75). '
        "Types and bounds of columns are free: data_set.card."
    ),
    "df": _NO_ROW,
    "drop_duplicates": 'Count different values with distinct("zip").',
    "dropna": _NULLS,
    "dtypes": "Types and bounds of columns are on the card: data_set.card.",
    "duplicated": _NO_ANSWER,
    "fetchall": _ASK_FIRST,
    "fetchdf": _ASK_FIRST,
    "fillna": 'Write col("cost").or_else(0) in place of the column.',
    "filter": _NARROW,
    "first": _NO_ROW,
    "fit": 'Write linear("y", ["x"], epsilon=1) or logistic("y", ["x"], epsilon=1).',
    "groupby": 'Write group_by("zip").',
    "head": _NO_ROW,
    "hist": 'Write histogram("age", bins=10, epsilon=1), or group_by(col("age").bins(10)).',
    "idxmax": _NO_ROW,
    "idxmin": _NO_ROW,
    "iloc": _NO_ROW,
    "index": _NO_ROW,
    "info": "The data card says what is known of the columns: data_set.card.",
    "isna": _NULLS,
    "isnull": _NULLS,
    "items": _NO_ROW,
    "iterrows": _NO_ROW,
    "itertuples": _NO_ROW,
    "kurt": _NO_ANSWER,
    "last": _NO_ROW,
    "loc": f"{_NO_ROW} To narrow: {_NARROW}",
    "map": _TRANSFORM,
    "max": 'Write maximum("age"). It gives a point of a public grid, never the value of a row.',
    "melt": _NO_ANSWER,
    "merge": _JOIN,
    "min": 'Write minimum("age"). It gives a point of a public grid, never the value of a row.',
    "mode": 'Write top("zip").',
    "n_unique": 'Write distinct("zip").',
    "nlargest": 'Write order_by("-n").limit(5). Rows of people are never listed.',
    "nsmallest": 'Write order_by("n").limit(5). Rows of people are never listed.',
    "nunique": 'Write distinct("zip").',
    "pivot": 'Write group_by("zip", "sex").',
    "pivot_table": 'Write group_by("zip", "sex").',
    "plot": _ASK_FIRST,
    "prod": _NO_ANSWER,
    "product": _NO_ANSWER,
    "qcut": 'Write histogram("age", bins=10, epsilon=1).',
    "query": _NARROW,
    "rank": _NO_ROW,
    "rename": 'Name a number where you ask for it: .count(name="n").',
    "resample": 'Write group_by(month=col("day").trunc("month")).',
    "rolling": "There are no moving windows. Group by a period, or ask for running_count().",
    "rows": _NO_ROW,
    "sample": _NO_ROW,
    "select": (
        'Ask for numbers (.count(), .mean("cost")), and choose some of their columns with '
        'show("n").'
    ),
    "sem": (
        "The std of the noise is in each answer (.std). For sampling error, write "
        "answer.with_sampling()."
    ),
    "shape": (
        "The number of rows is private: ask .count(). The columns are data_set.columns, and the "
        'owner\'s statement of the size is data_set.card["size"].'
    ),
    "size": 'The number of rows is private: ask .count(), or see data_set.card["size"].',
    "skew": _NO_ANSWER,
    "sort": 'Write order_by("n"), with columns of the answer.',
    "sort_values": (
        'Write order_by("n"), with columns of the answer; "-n" sorts from the largest down.'
    ),
    "std": 'Write deviation("cost").',
    "stddev": 'Write deviation("cost").',
    "tail": _NO_ROW,
    "take": _NO_ROW,
    "to_arrow": _ASK_FIRST,
    "to_csv": _NO_ROW,
    "to_dict": _NO_ROW,
    "to_list": _NO_ROW,
    "to_numpy": _NO_ROW,
    "to_pandas": f"{_ASK_FIRST} {_NO_ROW}",
    "to_parquet": _NO_ROW,
    "to_polars": f"{_ASK_FIRST} {_NO_ROW}",
    "tolist": _NO_ROW,
    "transform": _TRANSFORM,
    "unique": (
        "The data card has the declared values: data_set.card. Ask for the most frequent ones "
        'with top("zip", 5).'
    ),
    "value": _ASK_FIRST,
    "value_counts": 'Write group_by("zip").count().',
    "values": _NO_ROW,
    "var": 'Write variance("cost").',
    "with_columns": _TRANSFORM,
}

_RELEASED: Final = (
    "The numbers are released, so this costs nothing, but it has no error bars: "
    "answer.to_pandas().{name}{call}"
)
_REASK: Final = "An answer is one table. Ask again with group_by(...), or use answer.total(...)."
_INTERVAL: Final = "answer.interval has the ends at 95 %, and answer.std the std of the noise."
_RECEIPT: Final = "answer.receipt says what was paid and what is left."
# frame methods for which the hint is answer.to_pandas()
_OF_A_FRAME: Final = (
    "apply", "assign", "describe", "drop", "head", "iterrows", "itertuples", "max", "mean",
    "median", "merge", "min", "nlargest", "nsmallest", "pivot", "pivot_table", "query", "rename",
    "sort_values", "tail", "to_csv", "to_dict", "to_excel", "to_json", "to_markdown", "to_numpy",
    "to_parquet",
)  # fmt: skip
ANSWER_HINTS: Final[Mapping[str, str]] = {
    **{name: _RELEASED.format(name=name, call="(...).") for name in _OF_A_FRAME},
    **{name: _RELEASED.format(name=name, call=".") for name in ("dtypes", "iloc", "index", "loc")},
    "ci": _INTERVAL,
    "cost": _RECEIPT,
    "data": "The released rows are in answer.rows, and by column in answer.frame().",
    "delta": _RECEIPT,
    "df": "Write answer.to_pandas() or answer.to_polars().",
    "epsilon": _RECEIPT,
    "error": _INTERVAL,
    "groupby": _REASK,
    "group_by": _REASK,
    "high": _INTERVAL,
    "intervals": "Write answer.interval.",
    "low": _INTERVAL,
    "margin": _INTERVAL,
    "price": _RECEIPT,
    "result": "The single number of an answer is answer.value. Rows are in answer.rows.",
    "scalar": "Write answer.value.",
    "shape": "Write len(answer) for the rows, and len(answer.columns) for the columns.",
    "size": "Write len(answer) for the rows, and len(answer.columns) for the columns.",
    "stddev": "The std of the noise is answer.std.",
    "sum": "Write answer.total(), which has correct error bars.",
    "values": "Write answer.rows.",
    "var": "The std of the noise is answer.std.",
}
COLUMN_HINTS: Final[Mapping[str, str]] = {
    "alias": 'Name it where it is used: .sum(col("cost"), name="paid").',
    "astype": "A column has the type that the data card declares: data_set.card.",
    "cast": "A column has the type that the data card declares: data_set.card.",
    "clip": "Write clamp(lower, upper).",
    "dt": 'Write part("year") or trunc("month").',
    "fillna": "Write or_else(0).",
    "isin": 'Write is_in(["north", "south"]).',
    "isna": "Write is_null().",
    "isnull": "Write is_null().",
    "mean": 'It is a step of a question: data_set.mean("cost").',
    "notna": 'Write ~ before it: ~col("cost").is_null().',
    "notnull": 'Write ~ before it: ~col("cost").is_null().',
    "str": 'For texts there is starts_with("ab"), == and is_in([...]).',
    "sum": 'It is a step of a question: data_set.sum("cost"). Within an answer: total().',
}


class Hinted:
    """Base class that adds a hint to the AttributeError of an unknown attribute."""

    _called: ClassVar[str] = "It"
    _hints: ClassVar[Mapping[str, str]] = {}

    # hidden from type checkers, which would otherwise accept any attribute name
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            hint = None if name.startswith("_") else self._hints.get(name)
            if hint is None:
                text = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(text, name=name, obj=self)
            raise AttributeError(f"{self._called} has no {name!r}. {hint}")
