"""The data of an answer: a table of released numbers with error bars, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

from sfumato.client.ask_terms import Json
from sfumato.client.data_frames import arrow_stream
from sfumato.client.pandas_hints import ANSWER_HINTS, Hinted
from sfumato.client.text_tables import (
    number_text,
    printable,
    table_html,
    table_text,
    warned,
    warned_html,
)
from sfumato.dp.refusal import Refused
from sfumato.system.optional_packages import extra_module

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Bar = tuple[float, float]  # the low and the high end; an open end is infinite
SHOWN = 50  # the most rows that a terminal or a notebook displays
NUMBERS = 20  # the most numbers of an array without names that they display


@dataclass(frozen=True)
class AnswerValues(Hinted):
    """Released values, the standard deviation of their noise, and 95 % intervals.

    `Answer` adds post-processing. An interval has a low and a high end; an unknown end is infinite.
    Polars, pyarrow, DuckDB and others read an answer directly by Arrow's C stream:
    `polars.DataFrame(answer)`.
    """

    _called: ClassVar[str] = "An answer"
    _hints: ClassVar[Mapping[str, str]] = ANSWER_HINTS

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    std: tuple[tuple[float | None, ...], ...]
    interval: tuple[tuple[Bar | None, ...], ...]
    guarantee: str
    receipt: Json
    # texts about the post-processing since the release; they are shown under the table
    notes: tuple[str, ...] = ()
    arrays: Mapping[str, Json] = field(default_factory=dict)  # of a program: values, std, margin
    warnings: tuple[str, ...] = ()  # shown above the table

    @classmethod
    def of(cls, shape: Mapping[str, object]) -> Self:
        """Return the answer that its JSON object describes.

        Args:
            shape: The answer's JSON, as `/v1/data-sets/{data_set}/ask` returns it.
        """
        body = cast("dict[str, Any]", shape)  # Any: JSON; the contract tests check its shape
        return cls(
            columns=tuple(body["columns"]),
            rows=tuple(map(tuple, body["rows"])),
            std=tuple(map(tuple, body["std"])),
            interval=_intervals(body),
            guarantee=body["guarantee"],
            receipt=body["receipt"],
            arrays=body.get("arrays", {}),
            warnings=tuple(body.get("warnings", ())),
        )

    @property
    def value(self) -> object:
        """Return the value of an answer with one row and one column; refuse any other answer."""
        if len(self.rows) != 1 or len(self.columns) != 1:
            raise Refused(
                "not-in-language",
                "The answer does not have exactly one row and one column, so it has no single "
                "value.",
                "Read the numbers from .rows or .to_pandas().",
            )
        return self.rows[0][0]

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the answer, each as a tuple of its values."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Return the number of rows of the answer, which is public."""
        return len(self.rows)

    def frame(self) -> dict[str, list[object]]:
        """Return the answer as a dict of columns, with error columns after each noisy one.

        A noisy column `n` is followed by `n_std`, `n_low` and `n_high`.

        If the answer already has a column of that name, ours gets one more underscore at the end.
        """
        made: dict[str, list[object]] = {}
        for place, name in enumerate(self.columns):
            made[name] = [row[place] for row in self.rows]
            has_error = [row[place] is not None for row in (*self.std, *self.interval)]
            if any(has_error):
                made[self._beside(name, "std")] = [row[place] for row in self.std]
                pairs = [row[place] or (None, None) for row in self.interval]
                made[self._beside(name, "low")] = [pair[0] for pair in pairs]
                made[self._beside(name, "high")] = [pair[1] for pair in pairs]
        return made

    def _beside(self, name: str, what: str) -> str:
        """Return an unused name for an error column beside `name`, such as `n_std`.

        If the name is taken, underscores are added.
        """
        called = f"{name}_{what}"
        return called if called not in self.columns else self._beside(name, f"{what}_")

    def to_pandas(self) -> pandas.DataFrame:
        """Return the answer with its error bars as a pandas DataFrame.

        Raises:
            Refused: `not-installed` without pandas.
        """
        return extra_module("pandas", "frames").DataFrame(self.frame())

    def to_polars(self) -> polars.DataFrame:
        """Return the answer with its error bars as a Polars DataFrame.

        Raises:
            Refused: `not-installed` without polars.
        """
        return cast("polars.DataFrame", extra_module("polars", "frames").DataFrame(self.frame()))

    def to_arrow(self) -> pyarrow.Table:
        """Return the answer with its error bars as an Arrow table.

        Raises:
            Refused: `not-installed` without pyarrow.
        """
        return extra_module("pyarrow", "frames").table(self.frame())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns of `frame()` as a stream of Arrow's C interface.

        Args:
            requested_schema: The schema that the reader asks for, as a capsule.

        Returns:
            A capsule that polars, pyarrow, DuckDB and pandas read.

        Raises:
            Refused: `not-installed` if neither pyarrow nor polars is installed.
        """
        return arrow_stream(self.frame(), requested_schema)

    def output_of_column(self, name: str) -> Json:
        """Return the part of the question that a column of the answer comes from.

        Args:
            name: The name of a column.

        Returns:
            The question's output as JSON; empty for a number of a program.
        """
        question = cast("dict[str, Any] | None", self.receipt.get("question"))  # Any: JSON
        outputs = [] if question is None else question["outputs"]
        return cast("Json", next((one for one in outputs if one["name"] == name), {}))

    def table(self, name: str) -> pandas.DataFrame:
        """Return a program's table with named rows and columns as a pandas DataFrame.

        The error of its numbers is in `.arrays[name]["margin"]`.

        Args:
            name: The name of the output that is a table.

        Raises:
            Refused: `unknown-column` if the program has no such table; `not-installed` without
                pandas.
        """
        found = cast("dict[str, Any]", self.arrays.get(name, {}))  # Any: JSON
        if "rows" not in found:
            raise Refused(
                "unknown-column",
                f"The answer has no table {name!r} with named rows and columns.",
                "Read numbers from .rows, and arrays from .arrays.",
            )
        frame = extra_module("pandas", "frames").DataFrame
        return cast(
            "pandas.DataFrame",
            frame(found["values"], index=found["rows"], columns=found["columns"]),
        )

    def __repr__(self) -> str:
        lines = table_text(self.columns, self._cells()) if self.columns or not self.arrays else []
        if len(self.rows) > SHOWN:
            lines.append(f"... {len(self.rows) - SHOWN:,} more rows")
        for head, cells in named_tables(self.arrays):
            lines += table_text(head, cells)
        return "\n".join(map(printable, [*warned(self.warnings), *lines, *self._foot()]))

    def _repr_html_(self) -> str:
        foot = "".join(f"<p><small>{escape(line)}</small></p>" for line in self._foot())
        numbers = table_html(self.columns, self._cells())
        named = "".join(table_html(head, cells) for head, cells in named_tables(self.arrays))
        return warned_html(self.warnings) + numbers + named + foot

    def _cells(self) -> list[list[str]]:
        pairs = zip(self.rows[:SHOWN], self.interval[:SHOWN], strict=True)
        return [
            [cell_text(value, bar) for value, bar in zip(row, bars, strict=True)]
            for row, bars in pairs
        ]

    def _foot(self) -> Sequence[str]:
        receipt = cast("dict[str, Any]", self.receipt)
        left = receipt["left"]["next_epsilon"]
        but = " unless said below" if self.notes else ""
        if receipt["epsilon"] is None:
            return (
                f"Exact: {receipt['beside']}; {receipt['bounding']}.",
                *advice_lines(receipt),
                f"{self.guarantee}: it hides {receipt['hides']}.",
                *self.notes,
            )
        paid = why_free(receipt) if receipt["free"] else f"paid epsilon {receipt['epsilon']:g}"
        raised = receipt.get("top_up")
        if raised is not None and not receipt["free"]:
            paid += f", {raised['paid_in_all']['epsilon']:g} in all for this question"
        return (
            f"± and ranges hold at 95 %, for the noise alone{but}; {receipt['bounding']}.",
            *chosen_lines(receipt),
            *advice_lines(receipt),
            f"{self.guarantee}, {paid}, {left:g} left.",
            *array_lines(self.arrays),
            *rank_lines(receipt),
            *([str(receipt["chosen_by"])] if receipt.get("chosen_by") else []),
            *([str(receipt["window"]["says"])] if "window" in receipt else []),
            *([f"{receipt['not_dp']} of these people."] if "not_dp" in receipt else []),
            *self.notes,
        )


SomeAnswer = TypeVar("SomeAnswer", bound=AnswerValues)  # post-processing keeps the type


def _intervals(body: Mapping[str, Any]) -> tuple[tuple[Bar | None, ...], ...]:  # Any: JSON
    """Return the intervals of an answer's JSON, by row and column.

    The JSON has the intervals with an infinite end in a separate list.
    """
    rows = [[None if pair is None else (pair[0], pair[1]) for pair in r] for r in body["interval"]]
    for one in body.get("open_intervals", ()):
        low, high = one["low"], one["high"]
        ends = -math.inf if low is None else low, math.inf if high is None else high
        rows[one["row"]][one["column"]] = ends
    return tuple(map(tuple, rows))


def named_tables(
    arrays: Mapping[str, Any],  # Any: JSON
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield each array that a program returned as a header and rows of texts.

    A table with named cells has its own names. Any other array has a row for each of its first
    numbers, with the number's index.
    """
    for name, one in arrays.items():
        if "rows" in one:
            pairs = zip(one["rows"][:SHOWN], one["values"], _bars(one), strict=False)
            cells = [[row, *map(cell_text, values, bars)] for row, values, bars in pairs]
            yield [name, *one["columns"]], cells
        else:
            yield ["index", name], _first_numbers(one)


def _first_numbers(array: Mapping[str, Any]) -> list[list[str]]:  # Any: JSON
    """Return a row for each of an array's first numbers: its index, and the number's text."""
    ends, margin = array.get("interval"), array["margin"]
    first = list(islice(_indexed(array["values"]), NUMBERS))
    bars: list[Bar | None] = [
        None if margin is None else (one - margin, one + margin) for _, one in first
    ]
    if ends is not None:
        both = zip(_indexed(ends["lower"]), _indexed(ends["upper"]), strict=True)
        bars = [(low, high) for (_, low), (_, high) in islice(both, NUMBERS)]
    return [
        [", ".join(map(str, at)), cell_text(one, bar)]
        for (at, one), bar in zip(first, bars, strict=True)
    ]


def _indexed(values: Any) -> Iterator[tuple[tuple[int, ...], float]]:  # Any: JSON
    """Yield each number of nested lists with its index, in order."""
    if not isinstance(values, list | tuple):
        yield (), values
        return
    for place, inner in enumerate(values):
        yield from (((place, *at), one) for at, one in _indexed(inner))


def _bars(table: Mapping[str, Any]) -> Iterator[Sequence[Bar | None]]:  # Any: JSON
    """Yield the intervals of each row of a table; older services send only their half-width."""
    ends, margin = table.get("interval"), table["margin"]
    if ends is not None:
        pairs = zip(ends["lower"], ends["upper"], strict=True)
        yield from (list(zip(low, high, strict=True)) for low, high in pairs)
        return
    for values in table["values"]:
        yield [None if margin is None else (one - margin, one + margin) for one in values]


def array_lines(arrays: Mapping[str, Any]) -> list[str]:  # Any: JSON
    """Return one line for each array that a program returned next to the table."""
    return [
        f"{name} is {_kind(one)}: every number "
        + ("a median." if one["margin"] is None else f"± {one['margin']:.4g} at 95 %{_cut(one)}.")
        + _rest(name, one)
        for name, one in arrays.items()
    ]


def _kind(array: Mapping[str, Any]) -> str:  # Any: JSON
    if "rows" in array:
        return "a table"
    count = sum(1 for _ in _indexed(array["values"]))
    return "an array of 1 number" if count == 1 else f"an array of {count:,} numbers"


def _rest(name: str, array: Mapping[str, Any]) -> str:  # Any: JSON
    """Say where the numbers are that are not shown, and how Python reads them."""
    if "rows" in array:
        more = len(array["rows"]) - SHOWN
        how, shown = f".table({name!r})", f"The first {SHOWN} rows are shown"
    else:
        more = sum(1 for _ in _indexed(array["values"])) - NUMBERS
        how, shown = f".arrays[{name!r}]", f"The first {NUMBERS} are shown"
    return f"{f' {shown}; `--json` prints all.' if more > 0 else ''} In Python: {how}."


def _cut(array: Mapping[str, Any]) -> str:  # Any: JSON
    """Say that the intervals of an array end at its declared range, if they do."""
    return ", cut to the declared range" if array.get("interval") is not None else ""


def chosen_lines(receipt: Mapping[str, object]) -> list[str]:
    """Return a warning if the intervals do not hold for selected rows (soundness rule 17)."""
    if "not valid for rows" not in str(receipt.get("interval", "")):
        return []
    return [
        "They do not hold for rows that were chosen or ordered by their own noisy values, nor "
        "for the branch that a CASE takes by such values."
    ]


def advice_lines(receipt: Mapping[str, object]) -> list[str]:
    """Return the lines of advice in a receipt on how to get a better answer.

    Older services send no advice. If contribution bounds can drop rows, the advice says which
    bounds to set (contribution_bounds.py).
    """
    said = receipt.get("advice")
    return [str(line) for line in said] if isinstance(said, list) else []


def may_be_cut(receipt: Mapping[str, object]) -> bool:
    """Return True if contribution bounds can drop rows of a person, by the card alone."""
    bounds = receipt.get("bounds")
    return isinstance(bounds, dict) and bool(bounds.get("may_cut"))


def rank_lines(receipt: Mapping[str, Any]) -> list[str]:  # Any: JSON
    """Return a line for each median over blocks of people, with its rank error at 95 %."""
    return [
        f"{name} is a median of blocks, off by {error:g} of them at most at 95 %."
        for name, error in receipt.get("rank_error", {}).items()
    ]


def why_free(receipt: Mapping[str, object]) -> str:
    """Return why an answer cost nothing: its stream was paid before, or it was asked before."""
    return "free: paid when the stream was opened" if "stream" in receipt else "free: asked before"


def cell_text(value: object, bar: Bar | None) -> str:
    """Return the text of one value of the answer: a number with its error bar, or a key."""
    if value is None:
        return "null" if bar is None else f"null {_range_text(bar, bar)}"
    if not isinstance(value, int | float) or isinstance(value, bool) or bar is None:
        return f"{value:.10g}" if isinstance(value, float) else str(value)
    below, above = value - bar[0], bar[1] - value
    if math.isfinite(below + above) and abs(below - above) <= 0.01 * max(abs(below), abs(above)):
        return f"{number_text(value, above)} ± {number_text(above, above)}"
    known = max((arm for arm in (below, above) if math.isfinite(arm)), default=abs(value))
    return f"{number_text(value, known)} {_range_text(bar, (value - known, value + known))}"


def _range_text(bar: Bar, digits_of: Bar) -> str:
    """Return an interval as text, such as "[10 to 20]".

    It has as many digits as the half-width of `digits_of` needs.
    """
    half = (digits_of[1] - digits_of[0]) / 2
    half = half if math.isfinite(half) else max(map(abs, filter(math.isfinite, bar)), default=1.0)
    low, high = (number_text(end, half) if math.isfinite(end) else None for end in bar)
    if low is None and high is None:
        return "[any number]"
    if high is None:
        return f"[{low} or more]"
    return f"[{high} or less]" if low is None else f"[{low} to {high}]"
