"""Print a measure as SQL statements, from sfumato's own values only (expressions.py).

There is no volatile function, no float, and no ranking without a total order. Otherwise two runs of
a query could count different rows. This form is the same in every dialect. An engine may have a
faster form with the same counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.query.expression import Constant, Expr, LiteralValue, Ref
from sfumato.query.lru_cache import LruCache
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.printing.batched_counts import count_scan, counts_of_scan
from sfumato.query.printing.expressions import (
    Bound,
    Dialect,
    Secret,
    Text,
    filled,
    joined,
    ordered_digest,
    print_expr,
    print_predicate,
)
from sfumato.query.printing.from_clause import Rows, last_table, people_of, rows_of, table_name

# --- Selected private keys, as rows of SQL that restrict a grouping


@dataclass(frozen=True)
class Wanted:
    """The common table `wanted` of selected private keys, and the condition that joins it.

    The condition compares a group's keys g0, g1, ... with the table's columns h0, h1, ...
    """

    rows: Text
    on: str


def print_wanted(keys: Sequence[tuple[Constant, ...]], dialect: Dialect) -> Wanted:
    """Print the selected private keys as rows (index, h0, h1, ...), as bound parameters."""
    if not keys:
        raise Bug("no key is wanted")
    rows = [_row(place, key, dialect) for place, key in enumerate(keys)]
    names = ", ".join(f"h{i}" for i in range(len(keys[0])))
    values = joined(", ", rows)
    table = Text(f"wanted(cell, {names}) AS (VALUES {values.sql})", values.bound)
    same = " AND ".join(_same(i, key, dialect) for i, key in enumerate(keys[0]))
    return Wanted(table, same)


def _row(place: int, key: tuple[Constant, ...], dialect: Dialect) -> Text:
    texts = joined(", ", [print_expr(LiteralValue(constant), dialect) for constant in key])
    return Text(f"(CAST({place} AS BIGINT), {texts.sql})", texts.bound)


def _same(place: int, key: Constant, dialect: Dialect) -> str:
    """Print the condition that a group's key equals a selected key.

    In DuckDB, substr() hides a text from the statistics of stored rows, which must not change an
    answer (see `_needs_care` in expressions.py).
    """
    is_text = key.kind == "text" and dialect == "duckdb"
    return f"substr(g{place}, 1) = h{place}" if is_text else f"g{place} = h{place}"


# kinds of tallies that one statement computes together
ADDED: Final = ("rows", "values", "people", "sum")
WIDE: Final[dict[Dialect, str]] = {
    "duckdb": "HUGEINT", "postgres": "NUMERIC", "spark": "DECIMAL(38, 0)",
}  # fmt: skip
_STRING: Final[dict[Dialect, str]] = {
    "duckdb": "VARCHAR", "postgres": "TEXT", "spark": "STRING",
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A SQL statement with `?` for each bound parameter, in order.

    A cell is a group of the answer. The rows are (cell, then the numbers) or, with a private key,
    (g0, g1, ..., then the numbers). A histogram's rows have the code before the number. `tallies`
    holds the index of each number's tally.
    """

    sql: str
    parameters: tuple[Bound, ...]
    tallies: tuple[int, ...]


def lower(
    measure: Measure, dialect: Dialect, names: tuple[str, ...] | None = None
) -> tuple[Statement, ...]:
    """Print the SQL statements that compute the measure over prepared tables (cached).

    The statements return no line for a group without rows.
    """
    _check(measure)  # before the cache, for which True equals 1
    asked = measure, dialect, names
    return LOWERED.made(asked, lambda: _lowered(*asked), _size)


def _size(statements: tuple[Statement, ...]) -> int:
    """Estimate the bytes that the statements and their measure take in the cache."""
    texts = [str(text) for one in statements for text in (one.sql, *one.parameters)]
    return _OF_A_LETTER * len(texts[0]) + sum(map(getsizeof, texts))


LOWERED: Final[LruCache[tuple[Statement, ...]]] = LruCache(32 * 1024 * 1024)
# estimated bytes of a measure per character of its SQL: short texts, many values
_OF_A_LETTER: Final = 40


def _lowered(
    measure: Measure, dialect: Dialect, names: tuple[str, ...] | None
) -> tuple[Statement, ...]:
    look = count_scan(measure, dialect, names)
    if look is not None:
        text = counts_of_scan([look])
        return (Statement(text.sql, text.bound, tuple(range(look.times))),)
    names = names or tuple(table_name(dialect, n) for n in range(last_table(measure) + 1))
    printer = _Printer(measure, dialect, rows_of(measure, names), names)
    added = [i for i, t in enumerate(measure.tallies) if t.kind in ADDED]
    statements = [printer.added(added)] if added else []
    for place, tally in enumerate(measure.tallies):
        if tally.kind == "histogram":
            statements.append(printer.histogram(place))
        elif tally.kind == "distinct":
            statements.append(printer.distinct(place))
    return tuple(statements)


def _check(measure: Measure) -> None:
    if measure.selected_keys is not None and any(t.kind != "histogram" for t in measure.tallies):
        raise Bug("only histograms are counted of wanted keys")
    bounds = [measure.max_groups, measure.max_rows]
    bounds += [key.size for key in measure.keys if key.size is not None]
    bounds += [t.size for t in measure.tallies if t.kind == "histogram"]
    bounds += [t.max_distinct for t in measure.tallies if t.kind == "distinct"]
    whole = [*bounds, *(n for t in measure.tallies for n in (t.scale, t.offset, *(t.clamp or ())))]
    if any(type(number) is not int for number in whole) or min(bounds) < 1:
        raise Bug("a bound of a measure is not a whole number from 1")
    if not measure.tallies:
        raise Bug("a measure adds nothing up")
    if any((t.value is None) != (t.kind in ("rows", "people")) for t in measure.tallies):
        raise Bug("a tally lacks its value, or has one that it cannot use")


@dataclass(frozen=True)
class _Printer:
    measure: Measure
    dialect: Dialect
    rows: Rows
    names: tuple[str, ...]  # of all tables of the card

    # --- whole statements ---

    def added(self, places: Sequence[int]) -> Statement:
        tallies = [self.measure.tallies[place] for place in places]
        if not self._is_bounded:
            texts = [self._plain(tally) for tally in tallies]
            return self._statement(self._totals(texts, "picked", ""), places)
        texts = [self._bounded(tally) for tally in tallies]
        where = f"\nWHERE place <= {self.measure.max_groups}" if self._chooses else ""
        source = "chosen" if self._chooses else "parts"
        return self._statement(self._totals(texts, source, where), places)

    def histogram(self, place: int) -> Statement:
        tally = self.measure.tallies[place]
        code = self._column(tally)
        if self.measure.selected_keys is not None:
            return self._of_wanted(place, tally.size, code)
        body = (
            f"\nSELECT {self._cells}, CAST({code} AS BIGINT) AS code, count(*) AS t0\n"
            f"FROM {self._kept}\nWHERE {code} BETWEEN 0 AND {tally.size - 1}"
            f"{self._kept_where}\nGROUP BY {self._cells}, {code}"
        )
        return self._statement(body, (place,))

    def _of_wanted(self, place: int, size: int, code: str) -> Statement:
        """Print the histogram of selected private keys, after bounding each person's groups."""
        wanted = print_wanted(self.measure.selected_keys or (), self.dialect)
        body = (
            f"\nSELECT wanted.cell AS cell, CAST({code} AS BIGINT) AS code, count(*) AS t0\n"
            f"FROM (SELECT * FROM {self._kept}) AS kept JOIN wanted ON {wanted.on}\n"
            f"WHERE {code} BETWEEN 0 AND {size - 1}{self._kept_where}\n"
            f"GROUP BY wanted.cell, {code}"
        )
        picked = self._picked()
        bounding = self._bounding() if self._is_bounded else Text("")
        sql = f"WITH {picked.sql}{bounding.sql},\n{wanted.rows.sql}{body}"
        return Statement(sql, (*picked.bound, *bounding.bound, *wanted.rows.bound), (place,))

    def distinct(self, place: int) -> Statement:
        tally = self.measure.tallies[place]
        value = self._column(tally)
        if not self._is_bounded:
            body = f"\nSELECT {self._cells}, count(DISTINCT {value}) AS t0\nFROM picked"
            return self._statement(f"{body}\nGROUP BY {self._cells}", (place,))
        # every row of a person counts here, not only the first max_rows, because the bound is on
        # values
        order = self._order("value", [value])
        where = f" AND place <= {self.measure.max_groups}" if self._chooses else ""
        cells = ", ".join(f"r.{cell}" for cell in self._cell_columns)
        same = " AND ".join(f"c.{c} = r.{c}" for c in ("person", *self._cell_columns))
        joined_rows = f"picked AS r JOIN chosen AS c ON {same}" if self._chooses else "picked AS r"
        body = (
            f",\nseen AS (\n  SELECT DISTINCT r.person, r.person_key, {cells}, r.{value}\n"
            f"  FROM {joined_rows}\n  WHERE r.{value} IS NOT NULL{where}\n),\n"
            f"few AS (\n  SELECT *, row_number() OVER (PARTITION BY person, {self._cells}"
            f" ORDER BY {order}, {value}) AS nth\n  FROM seen\n)\n"
            f"SELECT {self._cells}, count(DISTINCT {value}) AS t0\nFROM few\n"
            f"WHERE nth <= {tally.max_distinct}\nGROUP BY {self._cells}"
        )
        return self._statement(body, (place,), more=(Secret.SALT,))

    def _statement(
        self, body: str, places: Sequence[int], more: tuple[Bound, ...] = ()
    ) -> Statement:
        picked = self._picked()
        bounding = self._bounding() if self._is_bounded else Text("")
        sql = "WITH " + picked.sql + bounding.sql + body
        return Statement(sql, (*picked.bound, *bounding.bound, *more), tuple(places))

    # --- which rows, and in which cell ---

    @property
    def _is_bounded(self) -> bool:
        return self.measure.by_person and self.measure.source is None

    @property
    def _chooses(self) -> bool:
        """Return True if a person may have rows in more groups than `max_groups`.

        Then only some of the person's groups count, chosen by a keyed hash.
        """
        return not self.measure.is_public or self.measure.max_groups < self.measure.cells

    @property
    def _cell_columns(self) -> tuple[str, ...]:
        if self.measure.is_public:
            return ("cell",)
        return tuple(f"g{i}" for i in range(len(self.measure.keys)))

    @property
    def _cells(self) -> str:
        return ", ".join(self._cell_columns)

    @property
    def _values(self) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(t.value for t in self.measure.tallies if t.value is not None))

    def _column(self, tally: Tally) -> str:
        if tally.value is None:
            raise Bug("a tally lacks its value")
        return f"w{self._values.index(tally.value)}"

    def _picked(self) -> Text:
        identity = ("person", "person_key", *self.rows.order) if self._is_bounded else ()
        columns = [Text(name) for name in identity]
        columns += self._cell_texts()
        columns += [
            filled(f"{{}} AS w{i}", print_expr(value, self.dialect))
            for i, value in enumerate(self._values)
        ]
        source = Text(self.rows.sql)
        first = Text("")
        if self.measure.source is not None:
            first = people_of(self.measure, self.names, self.dialect)
            source = Text("people")
        conditions = [Text("person IS NOT NULL")] if self._is_bounded else []
        if self.measure.where is not None:
            conditions.append(print_predicate(self.measure.where, self.dialect))
        where = filled("\n    WHERE {}", joined(" AND ", conditions)) if conditions else Text("")
        of_rows = filled("\n    SELECT {}\n    FROM {}{}", joined(", ", columns), source, where)
        if not self.measure.keys:  # one cell, which contains every row: no check is needed
            return filled("{}picked AS ({}\n)", first, of_rows)
        there = " AND ".join(f"{cell} IS NOT NULL" for cell in self._cell_columns)
        return filled(
            f"{{}}picked AS (\n  SELECT * FROM ({{}}\n  ) AS r\n  WHERE {there}\n)", first, of_rows
        )

    def _cell_texts(self) -> list[Text]:
        """Print the group of a row: its number if keys are public, else its keys one by one.

        The number has the keys' codes as mixed-radix digits.
        """
        if not self.measure.is_public:
            return [
                filled(f"{{}} AS g{i}", self._key(key)) for i, key in enumerate(self.measure.keys)
            ]
        cell = Text("CAST(0 AS BIGINT)")
        for place, key in enumerate(self.measure.keys):
            code = self._key(key)
            cell = code if place == 0 else filled(f"({{}} * {key.size} + {{}})", cell, code)
        return [filled("{} AS cell", cell)]

    def _key(self, key: Key) -> Text:
        text = print_expr(key.value, self.dialect)
        if key.size is None:
            return text
        code = filled("CAST({} AS BIGINT)", text)
        if isinstance(key.value, Ref) and key.value.column.startswith("k"):
            return code  # a stored code is in its range, or null
        return filled(f"CASE WHEN {{}} BETWEEN 0 AND {key.size - 1} THEN {{}} END", code, code)

    # --- contribution bounds ---

    def _bounding(self) -> Text:
        """Print each person's contribution to each group, and its rank in a secret order of groups.

        The order is a keyed PRF of (salt, person's identifier, group). A group depends only on the
        values of the keys and on the card, never on other rows. So nobody's presence can reorder
        the groups of another person (soundness rules 10 and 11). `person` is a dense code that only
        distinguishes people.
        """
        values = [f"w{i}" for i in range(len(self._values))]
        order = ", ".join((*self.rows.order, *values))
        summed = {self._column(t) for t in self.measure.tallies if t.kind == "sum"}
        counts = "".join(
            f", count({c}) AS n_{c}"
            + (f", {wide_sum(c, self.dialect)} AS s_{c}" if c in summed else "")
            for c in values
        )
        sql = (
            f",\nranked AS (\n  SELECT *, row_number() OVER"
            f" (PARTITION BY person, {self._cells} ORDER BY {order}) AS nth\n  FROM picked\n),\n"
            f"parts AS (\n  SELECT person, person_key, {self._cells}, count(*) AS n{counts}\n"
            f"  FROM ranked\n  WHERE nth <= {self.measure.max_rows}\n"
            f"  GROUP BY person, person_key, {self._cells}\n)"
        )
        if not self._chooses:
            return Text(sql)
        prf = self._order("cell", self._cell_columns)
        sql += (
            f",\nchosen AS (\n  SELECT *, row_number() OVER (PARTITION BY person"
            f" ORDER BY {prf}, {self._cells}) AS place\n  FROM parts\n)"
        )
        return Text(sql, (Secret.SALT,))

    def _order(self, tag: str, columns: Sequence[str]) -> str:
        """Print the keyed hash that puts one person's groups or values into a secret order.

        Contribution bounds keep the first groups or values in this order. The only bound parameter
        is the salt.
        """
        string = _STRING[self.dialect]
        spelt = [f"CAST({column} AS {string})" for column in ("person_key", *columns)]
        # each with its length, so that two different lists never give the same text
        if len(columns) > 1:
            spelt[1:] = [f"CAST(length({s}) AS {string}) || '=' || {s}" for s in spelt[1:]]
        salt = "CAST(? AS TEXT)" if self.dialect == "postgres" else "?"
        text = f"{salt} || ':{tag}:' || " + " || ':' || ".join(spelt)
        return ordered_digest(text, self.dialect)

    @property
    def _kept(self) -> str:
        if not self._is_bounded:
            return "picked"
        if not self._chooses:
            return "ranked"
        return f"ranked JOIN chosen USING (person, {self._cells})"

    @property
    def _kept_where(self) -> str:
        if not self._is_bounded:
            return ""
        rows = f" AND nth <= {self.measure.max_rows}"
        return rows + (f" AND place <= {self.measure.max_groups}" if self._chooses else "")

    # --- adding up ---

    def _plain(self, tally: Tally) -> str:
        if tally.kind in ("rows", "people"):
            return "count(*)"
        column = self._column(tally)
        if tally.kind == "values":
            return f"count({column})"
        if tally.clamp is not None:  # each row is one privacy unit here
            low, high = tally.clamp
            row = self._linear(tally, column, "1")
            kept = f"CASE WHEN {column} IS NOT NULL THEN least(greatest({row}, {low}), {high}) END"
            return f"coalesce(sum({kept}), 0)"
        return self._linear(tally, wide_sum(column, self.dialect), f"count({column})")

    def _bounded(self, tally: Tally) -> str:
        if tally.kind == "people":
            return "count(*)"
        if tally.kind == "rows":
            return "sum(n)"
        column = self._column(tally)
        if tally.kind == "values":
            return f"sum(n_{column})"
        if tally.clamp is not None:
            low, high = tally.clamp
            part = self._linear(tally, f"s_{column}", f"n_{column}")
            kept = f"CASE WHEN n_{column} > 0 THEN least(greatest({part}, {low}), {high}) END"
            return f"coalesce(sum({kept}), 0)"  # the sum of no rows is 0 (soundness rule 15)
        return self._linear(tally, f"sum(s_{column})", f"sum(n_{column})")

    def _linear(self, tally: Tally, total: str, count: str) -> str:
        """Print a tally's sum from the total and the count of its values; NULL totals are zero.

        A total is NULL if no row has a value.
        """
        return linear(tally, f"coalesce({total}, 0)", count, self.dialect)

    def _totals(self, texts: Sequence[str], source: str, where: str) -> str:
        numbers = [f"CAST({text} AS BIGINT)" for text in texts]
        # one cell, which exists even without rows; twice as fast as GROUP BY
        if not self.measure.keys:
            whole = "".join(f", coalesce({number}, 0) AS t{i}" for i, number in enumerate(numbers))
            return f"\nSELECT CAST(0 AS BIGINT) AS cell{whole}\nFROM {source}{where}"
        tallies = "".join(f", {number} AS t{i}" for i, number in enumerate(numbers))
        return f"\nSELECT {self._cells}{tallies}\nFROM {source}{where}\nGROUP BY {self._cells}"


def linear(tally: Tally, total: str, count: str, dialect: Dialect) -> str:
    """Print a tally's sum of scale*value + offset, from the total and the count of its values.

    It is scale*total + offset*count, computed in 128 bits.
    """
    wide = WIDE[dialect]
    scaled = f"CAST({tally.scale} AS {wide}) * {total}"
    return f"{scaled} + CAST({tally.offset} AS {wide}) * {count}" if tally.offset else scaled


def wide_sum(column: str, dialect: Dialect) -> str:
    """Print a sum of 64-bit whole numbers in a type that cannot overflow."""
    if dialect != "spark":
        return f"sum({column})"  # already a HUGEINT or NUMERIC
    upper, lower = f"sum(shiftright({column}, 31))", f"sum({column} & 2147483647)"
    return f"(CAST({upper} AS {WIDE[dialect]}) * 2147483648 + {lower})"
