"""The cold path of a query: DuckDB selects rows, the numpy kernel bounds contributions and sums.

The kernel is `engines/kernel/contribution_bounding.py`. The path serves queries that no stored
ranks or stored sums can answer. Only the measure and the card decide whether a query takes this
path. The worker receives one SQL statement and the meaning of its result columns. It runs the
statement for one range of persons at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sfumato.dp.refusal import Bug
from sfumato.engines.shared.prepared_table import PreparedTable
from sfumato.engines.shared.rank_path import Group, stored_group
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    DateField,
    DateTrunc,
    Expr,
    Floor,
    FunctionCall,
    LiteralValue,
    Ref,
    Total,
)
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.printing.expressions import (
    Bound,
    Text,
    filled,
    joined,
    print_expr,
    print_predicate,
)
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.query.printing.statements import ADDED

NULL: Final = -(2**63)  # marks a missing value; every stored number is within +-2**62
MAX_SLOTS: Final = 16  # most groups per person that the kernel separates without sorting
KeyKind = Literal["code", "number", "boolean", "date", "timestamp", "text"]


@dataclass(frozen=True)
class KernelKey:
    """Type of a GROUP BY key column (g0, g1, ...) that the kernel reads.

    A text key is a code of the dictionary table `texts`. In a copy on PostgreSQL or Spark, `texts`
    names the column that holds the codes.
    """

    kind: KeyKind
    texts: str | None = None
    is_ordered: bool = True  # whether the codes are in the order of the texts


@dataclass(frozen=True)
class KernelTally:
    """One sum or count that the kernel computes from the column w{value}.

    It has a scale, an offset and clamping bounds. `value` is -1 if the tally needs no column. For a
    count of values, the column holds only flags.
    """

    kind: str
    value: int
    scale: int
    offset: int
    low: int | None
    high: int | None


@dataclass(frozen=True)
class KernelPlan:
    """Kernel plan of a query: the SQL that selects rows, and how to bound and sum them.

    The last two parameters of the SQL are a range of persons.
    """

    sql: str
    parameters: tuple[Bound, ...]
    # number of cells if all keys are public; otherwise None, and `keys` describes them
    cells: int | None
    keys: tuple[KernelKey, ...]
    has_rank: bool  # whether the result has stored ranks of groups (place) and of their rows (rr)
    values: int
    tallies: tuple[KernelTally, ...]
    max_groups: int
    max_rows: int
    row_counts_table: str  # the table of row counts by which persons are split into ranges
    has_slot: bool = False  # the SQL already bounds contributions, and each person has few groups

    def as_json(self) -> dict[str, Any]:
        """Return the kernel plan as JSON, to send it to a worker."""
        return asdict(self)

    @staticmethod
    def read(shape: Any) -> KernelPlan:  # from the parent process, so it is trusted
        """Parse a kernel plan from its JSON."""
        return KernelPlan(
            **{
                **shape,
                "parameters": tuple(shape["parameters"]),
                "keys": tuple(KernelKey(**key) for key in shape["keys"]),
                "tallies": tuple(KernelTally(**tally) for tally in shape["tallies"]),
            }
        )


def lower_to_kernel(measure: Measure, known: PreparedTable) -> KernelPlan | None:
    """Return the kernel plan of a measure, or None if the kernel can't compute it."""
    if not (known.by_person and measure.by_person) or measure.source is not None:
        return None
    if measure.joins or any(tally.kind not in ADDED for tally in measure.tallies):
        return None
    keys = tuple(kernel_key(key, known) for key in measure.keys)
    read = tuple(key for key in keys if key is not None)
    if len(read) < len(keys):
        return None
    group = stored_group(measure, known)
    values = tuple(dict.fromkeys(t.value for t in measure.tallies if t.value is not None))
    text = _statement(measure, known, group, values)
    return KernelPlan(
        text.sql,
        text.bound,
        measure.cells if measure.is_public else None,
        () if measure.is_public else read,
        group is not None and group.code is not None,
        len(values),
        tuple(kernel_tally(tally, values) for tally in measure.tallies),
        measure.max_groups,
        measure.max_rows,
        stored_name("crowds", measure.table),
        _has_slot(measure, group),
    )


def _has_slot(measure: Measure, group: Group | None) -> bool:
    """Say whether stored ranks alone decide which rows count, so that each has a slot.

    A slot is one group of one person. A filter excludes this, and so do too many groups per person.
    """
    if group is None or group.code is None or measure.where is not None:
        return False
    return measure.is_public and measure.max_groups <= MAX_SLOTS


def kernel_key(key: Key, known: PreparedTable) -> KernelKey | None:
    """Return how the kernel reads a GROUP BY key.

    Return None for a text that the query computes: the kernel needs a list of all values.
    """
    if key.size is not None:
        return KernelKey("code")
    if isinstance(key.value, Ref) and key.value.column[0] == "v":
        index = int(key.value.column[1:])
        if known.is_coded(index):
            return KernelKey("text", known.texts(index), known.has_ordered_codes)
    kind = _kind(key.value, known)
    return None if kind is None else KernelKey(kind)


def _kind(expr: Expr, known: PreparedTable) -> KeyKind | None:
    match expr:
        case Ref(column=column):
            index = int(column[1:])
            return _KINDS.get(known.types[index]) if column[0] == "v" else "number"
        case LiteralValue(constant=constant):
            return _KINDS.get(constant.kind)
        case (
            Arithmetic() | Floor() | Clamp() | DateTrunc() | DateField() | FunctionCall() | Total()
        ):
            return "number"
        case Coalesce(parts=parts):
            return _same([_kind(part, known) for part in parts])
        case Case(whens=whens, otherwise=otherwise):
            branches = [then for _, then in whens] + ([] if otherwise is None else [otherwise])
            return _same([_kind(part, known) for part in branches])


_KINDS: Final[dict[str, KeyKind]] = {
    "integer": "number", "number": "number", "boolean": "boolean", "date": "date",
    "timestamp": "timestamp",
}  # fmt: skip


def _same(kinds: Sequence[KeyKind | None]) -> KeyKind | None:
    return kinds[0] if len(set(kinds)) == 1 else None


# --- the statement -------------------------------------------------------------------------------


def _statement(
    measure: Measure, known: PreparedTable, group: Group | None, values: Sequence[Expr]
) -> Text:
    columns = [Text("person")]
    bounds = ""
    if group is None or group.code is None:
        columns.append(Text("rr"))
    else:
        columns += [Text(f"{group.row_rank} AS rr"), Text(f"{group.group_rank} AS place")]
        if measure.where is None:  # a filter could remove groups that the ranks count
            bounds = f" AND rr <= {measure.max_rows} AND place <= {measure.max_groups}"
    keys = _keys(measure, known, group)
    named = () if bounds else keys  # a row without a key has a null rank: the bounds exclude it
    columns += [filled(f"{{}} AS {name}", text) for name, text in keys]
    summed = {tally.value for tally in measure.tallies if tally.kind == "sum"}
    columns += [_value(i, value, value in summed) for i, value in enumerate(values)]
    where = Text("true") if measure.where is None else print_predicate(measure.where, "duckdb")
    there = "".join(f"{name} IS NOT NULL AND " for name, _ in named)
    return filled(
        f"SELECT * FROM (SELECT {{}} FROM {table_name('duckdb', measure.table)} WHERE {{}}) AS r"
        f" WHERE {there}person >= ? AND person < ?{bounds}",
        joined(", ", columns),
        where,
    )


def _keys(measure: Measure, known: PreparedTable, group: Group | None) -> list[tuple[str, Text]]:
    """Return SQL of a row's group: one group number for public keys, one column per private key."""
    if not measure.keys:
        return []
    if group is not None and group.code is not None:
        return [("cell" if measure.is_public else "g0", Text(group.code))]
    codes = [_key(key, known) for key in measure.keys]
    if not measure.is_public:
        return [(f"g{i}", code) for i, code in enumerate(codes)]
    cell = codes[0]
    for key, code in zip(measure.keys[1:], codes[1:], strict=True):
        cell = filled(f"({{}} * {key.size} + {{}})", cell, code)
    return [("cell", cell)]


def _key(key: Key, known: PreparedTable) -> Text:
    text = print_expr(key.value, "duckdb")
    if key.size is not None:
        code = filled("CAST({} AS BIGINT)", text)
        if isinstance(key.value, Ref) and key.value.column.startswith("k"):
            return code  # a stored code is in its range or null, so no check is needed
        return filled(f"CASE WHEN {{}} BETWEEN 0 AND {key.size - 1} THEN {{}} END", code, code)
    read = kernel_key(key, known)
    if read is None:
        raise Bug("a private key that a kernel cannot read")
    match read.kind:
        case "text":
            return Text(_code(key)) if read.texts else text
        case "date":
            return filled("(CAST({} AS DATE) - DATE '1970-01-01')", text)
        case "timestamp":
            return filled("epoch_us({})", text)
        case _:
            return filled("CAST({} AS BIGINT)", text)


def _code(key: Key) -> str:
    if not isinstance(key.value, Ref):
        raise Bug("only a column has a dictionary")
    return f"c{key.value.column[1:]}"


def _value(index: int, value: Expr, is_summed: bool) -> Text:
    """Return SQL of the values that a tally (sum or count) needs: numbers, or non-null flags."""
    text = print_expr(value, "duckdb")
    form = "CAST({} AS BIGINT)" if is_summed else "({} IS NOT NULL)"
    return filled(f"{form} AS w{index}", text)


def kernel_tally(tally: Tally, values: Sequence[Expr]) -> KernelTally:
    """Return a tally in the kernel's form; `values` are the expressions of columns w0, w1, ..."""
    low, high = tally.clamp or (None, None)
    value = -1 if tally.value is None else values.index(tally.value)
    return KernelTally(tally.kind, value, tally.scale, tally.offset, low, high)
