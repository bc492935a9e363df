"""Typed terms of ask, price, twin (synthetic data), run and fit calls, and their JSON."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from typing import Final, Literal, ParamSpec, Protocol, TypedDict, TypeVar, cast

from sfumato.dp.budget import read_number
from sfumato.dp.refusal import Refused
from sfumato.query.model import query_json

Number = int | float | Decimal | Fraction
Json = dict[str, object]
P = ParamSpec("P")
R = TypeVar("R")
ROUNDS: Final = 3  # the number of questions of a logistic fit after the first one
# a function from an unknown keyword and the known keywords to a refusal
NoSuchTerm = Callable[[str, Sequence[str]], Refused]


class Receipted(Protocol):
    """An object with a receipt, such as an answer that is to be topped up."""

    @property
    def receipt(self) -> Json:
        """Return the receipt of the answer."""
        ...


class Sized(Protocol):
    """A released count, as an answer with one number; it gives a group's size."""

    @property
    def value(self) -> object:
        """Return the number of the released count."""
        ...


class PriceTerms(TypedDict, total=False):
    """The terms to price a question: an epsilon or target errors, and contribution bounds."""

    epsilon: Number | None  # the price of the whole request
    error: Mapping[str, Number] | None  # column -> the wanted 95 % half-width
    # delta is spent only where it buys less noise; 0 forces pure-epsilon noise
    delta: Number | None
    # the size of a group, guessed or released before; the error of a mean depends on it
    people: int | Sized | None
    max_groups: int | None  # contribution bound: groups that a person counts in
    max_rows: int | None  # contribution bound: rows of a person in each group
    split: Mapping[str, Number] | None  # column -> its share of the price, relative to the others
    top_up: Receipted | str | None  # an earlier answer or its op, raised to this epsilon
    fresh: bool | None  # new noise instead of the stored answer; pays in full


class AskTerms(PriceTerms, total=False):
    """The terms to ask a question: those of a price, and an operation id."""

    op: str | None  # the caller's id: a retry with it is the same question and pays once


class TwinTerms(TypedDict, total=False):
    """The terms of a DP twin (synthetic data): its whole price, and how it is generated."""

    epsilon: Number | None
    delta: Number | None
    method: str | None
    rows: int | None
    seed: str | None
    op: str | None
    private_bins: Sequence[str] | None
    error_epsilon: Number | None


class RunTerms(TypedDict, total=False):
    """The terms to run a program on blocks of people, without the price."""

    error: Mapping[str, Number] | None
    split: Mapping[str, Number] | None
    blocks: int | None
    trim: int | None
    take: Literal["mean", "median", "auto"] | None
    delta: Number | None
    cpu_s: Number | None
    memory_mb: int | None
    disk_mb: int | None
    timing: Literal["isolated", "batch"] | None
    job_s: Number | None
    op: str | None


class PlanTerms(TypedDict, total=False):
    """The terms to try a program on synthetic people, without the price."""

    people: int | None
    blocks: int | None
    cpu_s: Number | None
    memory_mb: int | None
    disk_mb: int | None
    timing: Literal["isolated", "batch"] | None
    seed: str | None


class FitTerms(TypedDict, total=False):
    """The terms of a regression or a clamping check: the whole price, and the method's options."""

    epsilon: Number | None
    delta: Number | None
    ridge: Number | None
    rounds: int
    resume: bool


class FitPriceTerms(FitTerms, total=False):
    """The terms of a regression's price: those of a fit, and a guessed number of rows."""

    people: int | None


def terms_body(terms: Mapping[str, object]) -> Json:
    """Return the terms as JSON for a request; drop those that are None or False."""
    body = {k: v for k, v in terms.items() if v is not None and v is not False}
    top_up = body.get("top_up")
    for name in ("error", "split"):
        if name in body:
            body[name] = _by_name(name, body[name])
            for column, number in cast("Json", body[name]).items():
                check_number(number, f"{name} of {column}")
    for name in ("epsilon", "delta", "error_epsilon"):
        check_number(body.get(name, 1), name)
    if top_up is not None and not isinstance(top_up, str):
        body["top_up"] = _op_of(top_up)
    if hasattr(body.get("people"), "value"):
        body["people"] = _size_of(cast("Sized", body["people"]))
    if isinstance(body.get("private_bins"), tuple):
        body["private_bins"] = list(cast("Sequence[str]", body["private_bins"]))
    return body


def check_number(value: object, name: str) -> None:
    """Refuse a number that JSON cannot express exactly, such as NaN or a number of NumPy."""
    is_plain = type(value) in (bool, int, Fraction, str) or value is None
    is_finite = isinstance(value, float | Decimal) and math.isfinite(value)
    if not is_plain and not is_finite and not isinstance(value, list | dict | tuple):
        read_number(value, name)


def named_terms(refusal: NoSuchTerm) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to refuse unknown keyword arguments; its signature stays for help()."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        taken = {one.name for one in parameters}

        def check(named: Mapping[str, object]) -> None:
            unknown = named.keys() - taken
            if unknown:
                raise refusal(min(unknown), known)

        @wraps(function)
        def called(*args: P.args, **named: P.kwargs) -> R:
            check(named)
            return function(*args, **named)

        @wraps(function)
        async def awaited(*args: P.args, **named: P.kwargs) -> object:
            check(named)
            return await cast("Awaitable[object]", function(*args, **named))

        if inspect.iscoroutinefunction(function):
            return cast("Callable[P, R]", awaited)
        return called

    return decorated


def unknown_term_refusal(what: str) -> NoSuchTerm:
    """Return a function that makes the refusal of an unknown argument of `what`."""

    def refusal(name: str, known: Sequence[str]) -> Refused:
        cause = f"{what[0].upper()}{what[1:]} takes no argument {name!r}."
        return Refused("not-in-language", cause, f"Known arguments: {', '.join(sorted(known))}.")

    return refusal


no_question_term: Final = unknown_term_refusal("a question")
no_twin_term: Final = unknown_term_refusal("a DP twin")
no_run_term: Final = unknown_term_refusal("a run")
no_histogram_term: Final = unknown_term_refusal("a histogram")


def no_fit_term(name: str, known: Sequence[str]) -> Refused:
    """Return the refusal of an argument that a regression or a clamping check does not take."""
    return Refused(
        "not-in-language",
        f"A regression or a clamping check does not take the argument {name!r}.",
        f"Write at_most(rows=1) before it, and give it only {', '.join(known[:-1])} and "
        f"{known[-1]}.",
    )


def no_line_term(name: str, known: Sequence[str]) -> Refused:
    """Return the refusal of an argument that a linear regression does not take."""
    if name in ("rounds", "resume"):
        return Refused(
            "not-in-language",
            "A linear regression does not take the arguments rounds and resume.",
            "Leave both out. Only a logistic regression needs them.",
        )
    return no_fit_term(name, known)


def question_body(data_set: str, question: object, terms: Mapping[str, object]) -> Json:
    """Return a question, as SQL or as a built query, and its terms as JSON for a request."""
    unknown = sorted(set(terms) - AskTerms.__optional_keys__)
    if unknown:
        raise no_question_term(unknown[0], sorted(AskTerms.__optional_keys__))
    body: Json = {"data_set": data_set, **terms_body(terms)}
    if isinstance(question, str):
        return {**body, "sql": question}
    built = getattr(question, "question", None)
    if built is None:
        raise Refused(
            "not-in-language",
            "The first argument is not a question.",
            "Give SQL text, or a question built from a data set: vault[NAME].",
        )
    return {**body, "question": query_json(built())}


def _by_name(term: str, pairs: object) -> Json:
    if isinstance(pairs, Mapping):
        return dict(pairs)
    raise Refused(
        "not-in-language",
        f"{term!r} must be a dict with one value for each number of the answer, by its name.",
        f'Name the number: count(name="n") and {term}={{"n": 5}}.',
    )


def _size_of(counted: Sized) -> int:
    """Return the group size that a released count gives, at least one; refuse what is no count."""
    value = counted.value
    if not isinstance(value, int | float):
        raise Refused(
            "not-in-language",
            "The answer given as people is not a count.",
            "Give a whole number (people=5000), or the answer of a COUNT.",
        )
    return max(1, round(value))


def _op_of(answer: object) -> object:
    receipt = getattr(answer, "receipt", None)
    if not isinstance(receipt, dict):
        raise Refused(
            "top-up-unknown",
            "The value to top up is not an earlier answer.",
            'Give the answer itself, or its operation id (answer.receipt["op"]).',
        )
    return cast("Json", receipt)["op"]
