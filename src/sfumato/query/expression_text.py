"""Print expressions and conditions in plain words, for people."""

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
    DateField,
    DateTrunc,
    Expr,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    StartsWith,
    Total,
)
from sfumato.vault.card.card_json import plain_number


def expression_text(expr: Expr) -> str:
    """Describe the expression in plain words."""
    match expr:
        case Ref(column=column):
            return column
        case LiteralValue(constant=constant):
            return constant_text(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            return f"({expression_text(left)} {sign} {expression_text(right)})"
        case Floor(of=of):
            return f"floor({expression_text(of)})"
        case Clamp(of=of, lower=lower, upper=upper):
            return _clamp(expression_text(of), lower, upper)
        case Coalesce(parts=parts):
            return "the first known of " + ", ".join(map(expression_text, parts))
        case Case(whens=whens, otherwise=otherwise):
            pairs = [f"{expression_text(e)} if {condition_text(p)}" for p, e in whens]
            rest = "" if otherwise is None else f", else {expression_text(otherwise)}"
            return f"({', '.join(pairs)}{rest})"
        case DateTrunc(unit=unit, of=of):
            return f"the {unit} of {expression_text(of)}"
        case DateField(field=field, of=of):
            return f"the {field} number of {expression_text(of)}"
        case FunctionCall(name=name, of=of):
            return f"{name}({expression_text(of)})"
        case Total(of=of, by=by):
            within = f" with the same {', '.join(by)}" if by else ""
            return f"the total of {expression_text(of)} over all rows{within}"


def _clamp(of: str, lower: Constant | None, upper: Constant | None) -> str:
    ends = []
    if lower is not None:
        ends.append(f"at least {constant_text(lower)}")
    if upper is not None:
        ends.append(f"at most {constant_text(upper)}")
    return f"({of}, {' and '.join(ends)})"


def condition_text(predicate: Predicate) -> str:
    """Describe the condition in plain words."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            return f"{expression_text(of)} {operator} {constant_text(constant)}"
        case Among(of=of, constants=constants):
            return f"{expression_text(of)} is one of {', '.join(map(constant_text, constants))}"
        case StartsWith(of=of, letters=letters):
            return f"{expression_text(of)} begins with {letters!r}"
        case IsNull(of=of):
            return f"{expression_text(of)} is missing"
        case Not(predicate=IsNull(of=of)):
            return f"{expression_text(of)} is known"
        case Not(predicate=inner):
            return f"not ({condition_text(inner)})"
        case All(predicates=parts):
            return " and ".join(_within(p) for p in parts)
        case AnyOf(predicates=parts):
            return " or ".join(_within(p) for p in parts)


def _within(predicate: Predicate) -> str:
    text = condition_text(predicate)
    return f"({text})" if isinstance(predicate, All | AnyOf) else text


def constant_text(constant: Constant) -> str:
    """Print the constant as people write it, with texts in quotes."""
    if constant.kind == "number":
        return str(plain_number(constant.number))
    return constant.text if constant.kind == "boolean" else f"'{constant.text}'"
