"""Hints for SQL that is not supported: one table of what analysts can write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

EXPRESSIONS: Final = (
    "Use columns, constants, + - * /, FLOOR, ROUND, ABS, LEAST, GREATEST, COALESCE, CASE, "
    "date_trunc, extract."
)
CONDITIONS: Final = "Use =, <>, <, <=, >, >=, IN, BETWEEN, LIKE 'x%', IS NULL, AND, OR, NOT."
_TEXT: Final = "Texts are compared as they are written: write x IN ('a', 'A'), or x LIKE 'a%'."
_LIKE: Final = "Write LIKE 'x%', or list the texts: x IN ('a', 'b')."
_ONE_ROW: Final = "It would show a single row's value. MODE(x) is the most frequent value."
_DAY: Final = "Write the date itself, as '2026-01-31': a question must mean the same on every day."
_FIELD: Final = "Write isodow(day), where 1 is Monday, or extract(month FROM day)."
_CAST: Final = "Leave the cast out: every column has the type that its card declares."
_GROUPINGS: Final = "Ask each grouping as its own question, with its own price."

HINTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Null: "NULL is not equal to, or less than, anything: write x IS NULL, or x IS NOT NULL.",
    exp.IntDiv: "Write FLOOR(a / b).",
    exp.Trunc: "Write FLOOR(x), or CASE WHEN x < 0 THEN CEIL(x) ELSE FLOOR(x) END.",
    exp.Mod: "Write a - FLOOR(a / b) * b.",
    exp.Sign: "Write CASE WHEN x < 0 THEN -1 WHEN x > 0 THEN 1 ELSE 0 END.",
    exp.Cast: _CAST,
    exp.TryCast: _CAST,
    exp.WidthBucket: "Write FLOOR(x / 10) * 10.",
    exp.DayOfWeek: _FIELD,
    exp.Dayname: _FIELD,
    exp.Monthname: _FIELD,
    exp.TimeToStr: "Write date_trunc('month', day), or another unit.",
    exp.DateDiff: "Compare dates with dates; to count time, take extract(year FROM day).",
    exp.DateAdd: _DAY,
    exp.DateSub: _DAY,
    exp.Interval: _DAY,
    exp.CurrentDate: _DAY,
    exp.CurrentTimestamp: _DAY,
    exp.Lower: _TEXT,
    exp.Upper: _TEXT,
    exp.ILike: _TEXT,
    exp.DPipe: "Group by both columns instead of by one text of them.",
    exp.Concat: "Group by both columns instead of by one text of them.",
    exp.Substring: _LIKE,
    exp.Left: _LIKE,
    exp.RegexpLike: _LIKE,
    exp.RegexpFullMatch: _LIKE,
    exp.Contains: _LIKE,
    exp.EndsWith: _LIKE,
    exp.GroupConcat: _ONE_ROW,
    exp.ArrayAgg: _ONE_ROW,
    exp.AnyValue: _ONE_ROW,
    exp.IgnoreNulls: _ONE_ROW,
    exp.First: _ONE_ROW,
    exp.Last: _ONE_ROW,
    exp.ArgMax: _ONE_ROW,
    exp.ArgMin: _ONE_ROW,
    exp.LogicalOr: "Write COUNT_IF(x), and compare it with 0.",
    exp.LogicalAnd: "Write COUNT_IF(NOT x), and compare it with 0.",
    exp.Kurtosis: "Ask AVG, VAR_SAMP and AVG(POWER(x, 4)), and compute it from them.",
    exp.Skewness: "Ask AVG, VAR_SAMP and AVG(POWER(x, 3)), and compute it from them.",
    exp.Distinct: "Only COUNT(DISTINCT x) of one column is supported.",
    exp.Rollup: _GROUPINGS,
    exp.Cube: _GROUPINGS,
    exp.GroupingSets: _GROUPINGS,
}
_CALLS: Final = {
    "std": "Write STDDEV_SAMP(x) for a sample, or STDDEV_POP(x) for these rows alone.",
    "stdevp": "Write STDDEV_POP(x).",
    "varp": "Write VAR_POP(x).",
    "weekday": _FIELD,
    "histogram": "Write FLOOR(x / 10) * 10 AS bin, COUNT(*) … GROUP BY bin.",
    "mad": "Write MEDIAN(x), and QUANTILE_CONT(x, [0.25, 0.75]) for the spread.",
}
ARGUMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "distinct": ("DISTINCT rows never leave", "Write SELECT x, COUNT(*) … GROUP BY x."),
    "offset": ("OFFSET is not supported", "Write ORDER BY and LIMIT, and leave rows out yourself."),
    "qualify": ("QUALIFY is not supported", "Write ORDER BY and LIMIT, or HAVING."),
    "limit": ("LIMIT in an inner SELECT would choose rows", "Leave it out."),
    "order": ("the rows of an inner SELECT have no order", "Leave it out."),
    "sample": ("TABLESAMPLE is not supported", "Leave it out: the noise is the same without it."),
    "db": ("a schema cannot be named here", "Write the table's own name alone."),
    "method": ("NATURAL, ASOF and POSITIONAL JOIN are not supported", "Write JOIN … ON a.x = b.x."),
    "all": ("GROUP BY ALL is not supported", "Name the columns."),
    "desc": ("a running count starts at the first period", "Leave DESC out."),
    "nulls_first": ("rows without a value come last", "Leave NULLS FIRST out."),
    "direction": ("FETCH is not supported", "Write LIMIT 5."),
}
UNION: Final = "Ask each SELECT by itself, or one with COUNT(*) FILTER (WHERE …) for each."
_SUB_SELECTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.In: (
        "If the table is public, JOIN it and put the condition into WHERE. If it holds people's "
        "rows, aggregate per person in an inner SELECT, as in MAX(CASE WHEN sick THEN 1 ELSE 0 "
        "END) AS ever. Then keep ever = 1."
    ),
    exp.Exists: (
        "Aggregate per person in an inner SELECT, grouped by the person, and put the condition "
        "into the outer WHERE."
    ),
}


def hint_of(node: exp.Expr, otherwise: str) -> str:
    """Return the hint about what to write instead of a syntax node that is not supported."""
    if type(node) is exp.Anonymous:
        return _CALLS.get(node.name.casefold(), otherwise)
    return HINTS.get(type(node), otherwise)


def hint_of_sub_select(above: exp.Expr | None) -> str:
    """Return the hint about what to write instead of a SELECT inside an expression."""
    return _SUB_SELECTS.get(
        type(above) if above is not None else exp.Expr,
        "For a share of all, write COUNT(*) / SUM(COUNT(*)) OVER (). Ask for other numbers "
        "first, and write them as constants.",
    )


def hint_for_call(node: exp.Expr) -> str:
    """Return the cause of the refusal of an unsupported call, such as "FOO is not supported"."""
    if type(node) is exp.Anonymous:
        return f"{node.name[:40].upper()} is not supported"
    return "this expression is not supported"
