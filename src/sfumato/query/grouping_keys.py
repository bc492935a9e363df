"""GROUP BY keys of a query: public keys or private keys.

An answer has every public key. It shows a private key only if partition selection keeps the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.query.expression import Arithmetic, Constant, Expr, Ref, Unit
from sfumato.query.measure import Key
from sfumato.query.time_periods import first_of_period
from sfumato.query.typed_expression import ExpressionType, number, whole
from sfumato.vault.card.card_json import key_value
from sfumato.vault.card.columns import ColumnType

# most whole numbers or periods between public bounds that become public keys
LISTED: Final = 10_000


@dataclass(frozen=True)
class PlanKey:
    """A GROUP BY expression with its list of public keys; `keys` is None if they are private."""

    of: Expr
    key: Key
    keys: tuple[Constant, ...] | None
    kind: ColumnType
    step: Fraction
    origin: Fraction
    unit: Unit | None

    @property
    def shown_kind(self) -> str:
        """Return the kind of the key's values in an answer: number, text or boolean."""
        if self.unit is None and self.kind in ("integer", "number"):
            return "number"
        return "boolean" if self.kind == "boolean" else "text"

    def shown(self, key: Constant) -> object:
        """Return the key as a JSON value, in the form in which answers show it."""
        return key_value(key)

    def physical(self, value: object) -> Constant:
        """Convert a key value from the engine to the constant with which its column is compared."""
        if self._is_whole:
            return number(Fraction(int(str(value))))
        if self.kind == "boolean":
            return Constant.of(bool(value))
        if self.kind == "date":
            return Constant("date", str(value)[:10])
        return Constant("timestamp" if self.kind == "timestamp" else "text", str(value))

    @property
    def any_constant(self) -> Constant:
        """Return an example value of the key's type, so that SQL can be checked before payment."""
        is_time = self.kind in ("date", "timestamp") and not self._is_whole
        return self.physical("2000-01-01" if is_time else 0)

    @property
    def _is_whole(self) -> bool:
        """Check whether the key column holds whole numbers: codes, periods or steps."""
        return self.keys is not None or self.unit is not None or self.kind in ("integer", "number")

    def read(self, value: object) -> Constant:
        """Convert a private key value from the engine to a constant in canonical form."""
        if self.unit is not None:
            return Constant("text", first_of_period(self.unit, int(str(value))))
        if self.kind in ("integer", "number"):
            return number(self.origin + int(str(value)) * self.step)
        if isinstance(value, bool):
            return Constant.of(value)
        return Constant("text", str(value)[:10] if self.kind == "date" else str(value))


def plan_key(of: Expr, side: ExpressionType) -> PlanKey:
    """Plan the key of a GROUP BY expression: public if its values are public and can be listed.

    The values of a plain column are public only if the owner declared its keys. A computed
    expression (bins, CASE, months) has the values that the card's bounds allow. These values are
    public keys if there are at most 10,000 of them (LISTED).
    """
    if side.keys is not None and side.code is not None:
        return _made(of, side, Key(side.code, len(side.keys)), side.keys)
    size = side.upper - side.lower + 1
    is_plain = isinstance(of, Ref) and _is_stored(side)
    is_listed = side.is_bounded and size <= LISTED and not is_plain
    if is_listed and (side.is_number or side.unit is not None):
        code = Arithmetic("-", side.physical, whole(side.lower))
        return _made(of, side, Key(code, size), _listed(side))
    return _made(of, side, Key(side.physical, None), None)


def _is_stored(side: ExpressionType) -> bool:
    """Check whether the expression is a column of the data card, not one of a per-person table."""
    return isinstance(side.physical, Ref) and side.physical.column.startswith("v")


def _made(of: Expr, side: ExpressionType, key: Key, keys: tuple[Constant, ...] | None) -> PlanKey:
    return PlanKey(of, key, keys, side.kind, side.step, side.origin, side.unit)


def _listed(side: ExpressionType) -> tuple[Constant, ...]:
    places = range(side.lower, side.upper + 1)
    if side.unit is not None:
        return tuple(Constant("text", first_of_period(side.unit, place)) for place in places)
    return tuple(number(side.origin + place * side.step) for place in places)
