"""Expressions and conditions in plain words, for every face."""

from __future__ import annotations

from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    Curve,
    Expr,
    Floor,
    IsNull,
    Literally,
    Not,
    Part,
    Predicate,
    Ref,
    Since,
    StartsWith,
    Total,
)
from sfumato.vault.card.card_json import plain_number


def expr_in_words(expr: Expr) -> str:
    """Return the expression as people write it."""
    match expr:
        case Ref(column=column):
            return column
        case Literally(constant=constant):
            return constant_in_words(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            return f"({expr_in_words(left)} {sign} {expr_in_words(right)})"
        case Floor(of=of):
            return f"floor({expr_in_words(of)})"
        case Clamp(of=of, lower=lower, upper=upper):
            return _clamp(expr_in_words(of), lower, upper)
        case Coalesce(parts=parts):
            return "the first known of " + ", ".join(map(expr_in_words, parts))
        case Case(whens=whens, otherwise=otherwise):
            pairs = [f"{expr_in_words(e)} if {condition_in_words(p)}" for p, e in whens]
            rest = "" if otherwise is None else f", else {expr_in_words(otherwise)}"
            return f"({', '.join(pairs)}{rest})"
        case Since(unit=unit, of=of):
            return f"the {unit} of {expr_in_words(of)}"
        case Part(field=field, of=of):
            return f"the {field} number of {expr_in_words(of)}"
        case Curve(name=name, of=of):
            return f"{name}({expr_in_words(of)})"
        case Total(of=of, by=by):
            within = f" with the same {', '.join(by)}" if by else ""
            return f"the total of {expr_in_words(of)} over all rows{within}"


def _clamp(of: str, lower: Constant | None, upper: Constant | None) -> str:
    ends = []
    if lower is not None:
        ends.append(f"at least {constant_in_words(lower)}")
    if upper is not None:
        ends.append(f"at most {constant_in_words(upper)}")
    return f"({of}, {' and '.join(ends)})"


def condition_in_words(predicate: Predicate) -> str:
    """Return the condition as people write it."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            return f"{expr_in_words(of)} {operator} {constant_in_words(constant)}"
        case Among(of=of, constants=constants):
            return f"{expr_in_words(of)} is one of {', '.join(map(constant_in_words, constants))}"
        case StartsWith(of=of, letters=letters):
            return f"{expr_in_words(of)} begins with {letters!r}"
        case IsNull(of=of):
            return f"{expr_in_words(of)} is missing"
        case Not(predicate=IsNull(of=of)):
            return f"{expr_in_words(of)} is known"
        case Not(predicate=inner):
            return f"not ({condition_in_words(inner)})"
        case All(predicates=parts):
            return " and ".join(_within(p) for p in parts)
        case AnyOf(predicates=parts):
            return " or ".join(_within(p) for p in parts)


def _within(predicate: Predicate) -> str:
    text = condition_in_words(predicate)
    return f"({text})" if isinstance(predicate, All | AnyOf) else text


def constant_in_words(constant: Constant) -> str:
    """Return the constant as people write it."""
    if constant.kind == "number":
        return str(plain_number(constant.number))
    return constant.text if constant.kind == "boolean" else f"'{constant.text}'"
