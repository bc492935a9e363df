"""The data card the owner signs: what may be known of a data set before any question is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from typing import Final, Literal

from sfumato.core.budget import Budget, read_delta, read_epsilon, read_number, read_positive
from sfumato.core.expression import Constant
from sfumato.core.refusal import Refused

ColumnType = Literal["integer", "number", "text", "boolean", "date", "timestamp"]
TYPES: Final[tuple[ColumnType, ...]] = (
    "integer",
    "number",
    "text",
    "boolean",
    "date",
    "timestamp",
)
NUMERIC: Final = ("integer", "number")
TIMES: Final = ("date", "timestamp")
ROW: Final = "row"
MAX_KEYS: Final = 1_000_000
MAX_STEPS: Final = 2**52  # the most steps between zero and a bound
MAX_BOUND: Final = 10**18  # in the column's own unit, whatever the step
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True)
class Column:
    """One column as declared; bounds in whole steps, those of dates in days since 1970."""

    name: str
    type: ColumnType
    lower: int | None = None
    upper: int | None = None
    step: Fraction = Fraction(1)
    keys: tuple[Constant, ...] | None = None

    @property
    def is_bounded(self) -> bool:
        """Say whether the owner declared both bounds."""
        return self.lower is not None and self.upper is not None

    @property
    def is_numeric(self) -> bool:
        """Say whether the column holds numbers."""
        return self.type in NUMERIC

    def bounds(self) -> tuple[int, int]:
        """Return the bounds in steps, or refuse: nothing without bounds is ever added up."""
        if self.lower is None or self.upper is None:
            raise Refused(
                "no-bounds",
                f"The card declares no lower and upper bound for {self.name!r}.",
                "Ask the owner to declare them on the card, from knowledge, not from the rows.",
                column=self.name,
            )
        return self.lower, self.upper


@dataclass(frozen=True)
class Limits:
    """The most that is kept at preparation; public, with ample margin (rules 13)."""

    rows: int = 1_000_000_000
    rows_per_person: int = 1000
    text_length: int = 200


@dataclass(frozen=True)
class Card:
    """Everything public about a data set, signed by its owner."""

    name: str
    unit: str
    people: str
    version: str
    budget: Budget
    columns: tuple[Column, ...]
    hidden: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ("",)
    user_cap: Budget | None = None
    group_cap: Budget | None = None
    who: tuple[str, ...] = ()
    max_groups: int = 1
    max_rows: int = 1
    size: int | None = None
    delta_per_request: Fraction = Fraction(0)
    limits: Limits = field(default_factory=Limits)

    @property
    def by_person(self) -> bool:
        """Say whether the unit of privacy is a person with all their rows."""
        return self.unit != ROW

    def lets_ask(self, groups: tuple[str, ...]) -> bool:
        """Say whether a member of these groups may ask; nobody may by default."""
        return any(group in self.who for group in groups)

    def index(self, name: str) -> int:
        """Return the column's place on the card, or refuse: what it does not name is not."""
        for place, column in enumerate(self.columns):
            if column.name.casefold() == name.casefold():
                return place
        raise Refused(
            "unknown-column",
            f"The card of {self.name!r} names no column {name!r}.",
            "See the columns with `sfumato card " + self.name + "`.",
            column=name,
        )

    def column(self, name: str) -> Column:
        """Return the declared column, or refuse."""
        return self.columns[self.index(name)]


# --- reading ----------------------------------------------------------------------------------

_CARD_KEYS: Final = {
    "unit", "people", "version", "budget", "nulls", "caps", "ask", "columns", "max_groups",
    "max_rows", "size", "delta_per_request", "limits",
}  # fmt: skip


def read_card(name: str, shape: Mapping[str, object]) -> Card:
    """Return the card that the owner wrote, or refuse: nothing unknown, nothing contradictory."""
    _check_name(name)
    _known(shape, _CARD_KEYS, "card")
    budget = _budget(shape.get("budget"), "budget", Fraction(0))
    caps = _table(shape.get("caps", {}), "caps", {"user", "group"})
    ask = _table(shape.get("ask", {}), "ask", {"who"})
    unit = _text(shape.get("unit", ROW), "unit")
    columns, hidden = _read_columns(_table(shape.get("columns", {}), "columns", None))
    limits = _read_limits(shape.get("limits", {}))
    if any(len(k.text) > limits.text_length for c in columns for k in c.keys or ()):
        raise _bad("a key is longer than limits.text_length, so nothing would match it")
    delta_per_request = read_delta(shape.get("delta_per_request", 0), "delta_per_request")
    return Card(
        name=name,
        unit=unit,
        people=_text(shape.get("people", name), "people"),
        version=_text(shape.get("version", "1"), "version"),
        budget=budget,
        columns=columns,
        hidden=hidden,
        nulls=_texts(shape.get("nulls", [""]), "nulls"),
        user_cap=_optional_budget(caps, "user", budget.delta),
        group_cap=_optional_budget(caps, "group", budget.delta),
        who=_texts(ask.get("who", []), "ask.who"),
        max_groups=_count(shape.get("max_groups", 1), "max_groups"),
        max_rows=_count(shape.get("max_rows", 1), "max_rows"),
        size=None if "size" not in shape else _count(shape["size"], "size"),
        delta_per_request=delta_per_request,
        limits=limits,
    )


def _read_limits(shape: object) -> Limits:
    body = _table(shape, "limits", {"rows", "rows_per_person", "text_length"})
    counts = {key: _count(value, f"limits.{key}") for key, value in body.items()}
    limits = Limits(**counts)
    if limits.rows > 10**10 or limits.rows_per_person > 10**6 or limits.text_length > 10**4:
        raise _bad("limits are larger than the house can hold")
    return limits


def _read_columns(shape: Mapping[str, object]) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    columns: list[Column] = []
    hidden: list[str] = []
    for name, value in shape.items():
        body = _table(
            value, f"columns.{name}", {"type", "lower", "upper", "step", "keys", "hidden"}
        )
        if not name.strip() or len(name) > 200:
            raise _bad("a column's name is empty or longer than 200 letters")
        if body.get("hidden", False) is True:
            hidden.append(name)
        else:
            columns.append(_read_column(name, body))
    if len({c.name.casefold() for c in columns}) < len(columns):
        raise _bad("two columns have one name, letter case aside")
    return tuple(columns), tuple(hidden)


def _read_column(name: str, body: Mapping[str, object]) -> Column:
    if body.get("hidden", False) is not False:
        raise _bad(f"hidden of column {name!r} is true or false")
    kind = next((t for t in TYPES if t == body.get("type")), None)
    if kind is None:
        raise _bad(f"the type of column {name!r} is none of {', '.join(TYPES)}")
    if kind not in NUMERIC:
        return _read_plain(name, kind, body)
    return _read_numeric(name, kind, body)


def _read_plain(name: str, kind: ColumnType, body: Mapping[str, object]) -> Column:
    has_bounds = "lower" in body or "upper" in body
    if "step" in body or (has_bounds and kind not in TIMES):
        raise _bad(f"column {name!r} is {kind}: bounds are for numbers and dates")
    keys = _read_keys(name, kind, body)
    if not has_bounds:
        return Column(name, kind, keys=keys)
    if not {"lower", "upper"} <= set(body):
        raise _bad(f"column {name!r} has one bound; declare both or none")
    low, high = (_day(body[end], f"columns.{name}.{end}") for end in ("lower", "upper"))
    if low >= high:
        raise _bad(f"lower of column {name!r} is not below its upper")
    return Column(name, kind, low, high, keys=keys)


def _day(value: object, name: str) -> int:
    """Return the day as a whole number since 1970; what a date's bounds are kept as."""
    if isinstance(value, datetime) or not isinstance(value, str | date):
        raise _bad(f"{name} is a day like 2026-11-21")
    return (date.fromisoformat(_iso_date(value, name)) - date(1970, 1, 1)).days


def _read_numeric(name: str, kind: ColumnType, body: Mapping[str, object]) -> Column:
    if ("lower" in body) != ("upper" in body):
        raise _bad(f"column {name!r} has one bound; declare both or none")
    if "lower" not in body:
        step = _read_step(name, kind, body, None)
        return Column(name, kind, step=step, keys=_read_keys(name, kind, body, step))
    low = read_number(body["lower"], f"columns.{name}.lower")
    high = read_number(body["upper"], f"columns.{name}.upper")
    if low >= high:
        raise _bad(f"lower of column {name!r} is not below its upper")
    step = _read_step(name, kind, body, (low, high))
    lower, upper = low / step, high / step
    if lower.denominator != 1 or upper.denominator != 1:
        raise _bad(f"the bounds of column {name!r} are not multiples of its step {step}")
    if max(abs(low), abs(high)) > MAX_BOUND:
        raise _bad(f"a bound of column {name!r} is beyond 1e18")
    if max(abs(lower), abs(upper)) > MAX_STEPS:
        raise _bad(f"the step of column {name!r} is too fine for its bounds")
    keys = _read_keys(name, kind, body, step)
    return Column(name, kind, int(lower), int(upper), step, keys)


def _read_step(
    name: str,
    kind: ColumnType,
    body: Mapping[str, object],
    bounds: tuple[Fraction, Fraction] | None,
) -> Fraction:
    if "step" in body:
        step = read_positive(body["step"], f"columns.{name}.step")
    elif kind == "integer" or bounds is None:
        step = Fraction(1)
    else:
        step = proposed_step(*bounds)
    if kind == "integer" and step.denominator != 1:
        raise _bad(f"column {name!r} is integer, so its step is whole")
    if (step * 10**12).denominator != 1:
        raise _bad(f"the step of column {name!r} is finer than 1e-12 or not a decimal")
    return step


def proposed_step(low: Fraction, high: Fraction) -> Fraction:
    """Return the largest power of ten that divides the bounds and makes 10,000 steps or more."""
    for power in range(12, -13, -1):
        step = Fraction(10) ** power
        fits = (low / step).denominator == 1 and (high / step).denominator == 1
        if fits and (high - low) / step >= 10_000:
            return step
    raise _bad("no decimal step divides the bounds; declare one")


def _read_keys(
    name: str, kind: ColumnType, body: Mapping[str, object], step: Fraction = Fraction(1)
) -> tuple[Constant, ...] | None:
    if kind == "boolean":
        if "keys" in body:
            raise _bad(f"column {name!r} is boolean: its keys are false and true")
        return (Constant.of(False), Constant.of(True))
    if "keys" not in body:
        return None
    values = body["keys"]
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_KEYS:
        raise _bad(f"keys of column {name!r} are a list of 1 to {MAX_KEYS}")
    keys = tuple(read_constant(kind, value, name) for value in values)
    if len(set(keys)) < len(keys):
        raise _bad(f"a key of column {name!r} stands twice")
    if kind in NUMERIC and any((k.number / step).denominator != 1 for k in keys):
        raise _bad(f"a key of column {name!r} is not a multiple of its step")
    return keys


def read_constant(kind: ColumnType, value: object, name: str) -> Constant:
    """Return a constant of the column's type in canonical spelling, or refuse."""
    if kind in NUMERIC and isinstance(value, Fraction):
        return Constant.of(value)
    if kind in NUMERIC and not isinstance(value, str | bool):
        return Constant.of(read_number(value, name))
    if kind == "boolean" and isinstance(value, bool):
        return Constant.of(value)
    if kind == "text" and isinstance(value, str):
        return Constant("text", value.strip())
    if kind == "date" and isinstance(value, str | date):
        return Constant("text", _iso_date(value, name))
    if kind == "timestamp" and isinstance(value, str | datetime):
        return Constant("text", _iso_time(value, name))
    raise Refused(
        "type-mismatch",
        f"{name!r} is {kind}, and the value given is not.",
        f"Give a value of type {kind}.",
        column=name,
    )


def _iso_date(value: str | date, name: str) -> str:
    return _iso(lambda: date.fromisoformat(str(value)).isoformat(), name, "2026-11-21")


def _iso_time(value: str | datetime, name: str) -> str:
    def spell() -> str:
        moment = datetime.fromisoformat(str(value))
        if moment.tzinfo is not None:
            raise ValueError
        return moment.isoformat(sep=" ", timespec="microseconds")

    return _iso(spell, name, "2026-11-21 10:00:00")


def _iso(spell: Callable[[], str], name: str, example: str) -> str:
    try:
        text: str | None = spell()
    except ValueError:
        text = None
    if text is None:
        raise Refused(
            "type-mismatch", f"A value for {name!r} is not like {example}.", f"Write {example}."
        )
    return text


def _optional_budget(caps: Mapping[str, object], key: str, delta: Fraction) -> Budget | None:
    return _budget(caps[key], f"caps.{key}", delta) if key in caps else None


def _budget(shape: object, name: str, delta: Fraction) -> Budget:
    body = _table(shape, name, {"epsilon", "delta"})
    if "epsilon" not in body:
        raise _bad(f"{name} needs an epsilon")
    epsilon = read_epsilon(body["epsilon"], f"{name}.epsilon")
    return Budget(epsilon, read_delta(body.get("delta", delta), f"{name}.delta"))


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise _bad("a data set's name is letters, digits, - and _, begins with a letter, up to 63")


def _known(shape: Mapping[str, object], known: set[str], where: str) -> None:
    unknown = sorted(set(shape) - known)
    if unknown:
        raise _bad(f"{where} does not know {unknown[0]!r} (it knows {', '.join(sorted(known))})")


def _table(shape: object, name: str, known: set[str] | None) -> Mapping[str, object]:
    if not isinstance(shape, Mapping):
        raise _bad(f"{name} is missing or not a table")
    if known is not None:
        _known(shape, known, name)
    return shape


def _texts(shape: object, name: str) -> tuple[str, ...]:
    if not isinstance(shape, list) or not all(isinstance(t, str) for t in shape):
        raise _bad(f"{name} is a list of texts")
    return tuple(shape)


def _text(shape: object, name: str) -> str:
    if not isinstance(shape, str) or not 1 <= len(shape) <= 200 or not shape.isprintable():
        raise _bad(f"{name} is a text of 1 to 200 letters")
    return shape


def _count(shape: object, name: str) -> int:
    if isinstance(shape, bool) or not isinstance(shape, int) or not 1 <= shape <= 10**10:
        raise _bad(f"{name} is a whole number from 1")
    return shape


def _bad(what: str) -> Refused:
    return Refused("bad-card", f"{what[0].upper()}{what[1:]}.", "Mend the card and add it again.")
