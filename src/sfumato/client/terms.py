"""The terms of an ask and of a price, named once for the data set and the builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal, Protocol, TypedDict, cast

from sfumato.core.question import question_json
from sfumato.core.refusal import Refused

Number = int | float | Decimal | Fraction
Json = dict[str, object]


class Receipted(Protocol):
    """What was asked and paid: an answer."""

    @property
    def receipt(self) -> Json:
        """Return its receipt."""
        ...


class Sized(Protocol):
    """A released count: an answer of one number."""

    @property
    def value(self) -> object:
        """Return its number."""
        ...


class PriceTerms(TypedDict, total=False):
    """What a price depends on: an epsilon, or the errors that can be lived with."""

    epsilon: Number | None  # the whole price of the whole request
    error: Mapping[str, Number] | None  # column -> the +- at 95 % that is wanted instead
    delta: Number | None  # spent only where it buys less noise; 0 forces pure noise
    people: int | Sized | None  # a group's size, guessed or counted before: for a mean's error
    max_groups: int | None  # groups a person counts in
    max_rows: int | None  # rows a person counts with, in each group
    split: Mapping[str, Number] | None  # column -> its share of the price, beside the others'
    top_up: Receipted | str | None  # your earlier answer (or its op), raised to this epsilon


class AskTerms(PriceTerms, total=False):
    """What an ask takes besides."""

    op: str | None  # your own id: a retry with it is the same question and pays once
    fresh: bool | None  # new noise instead of the standing answer; pays in full


class TwinTerms(TypedDict, total=False):
    """What a DP twin takes: its whole price, and how it is made."""

    epsilon: Number
    delta: Number | None  # left out, it is the card's; with one, noise is Gaussian
    method: str  # independent, mst (if left out) or aim
    rows: int | None  # people (or rows) of the first table; as many as measured, if left out
    seed: str | None
    op: str | None  # your own id: the same again pays once
    private_bins: Sequence[str] | None  # columns of numbers whose bins are measured too
    error_epsilon: Number | None  # paid besides: for how far the twin is off


class RunTerms(TypedDict, total=False):
    """What a run of a program takes besides its price."""

    blocks: int  # of people; 50 if left out
    trim: int  # blocks left out at each end
    take: Literal["mean", "median"]  # of the blocks
    delta: Number | None  # that may be spent; the card's if left out
    cpu_s: Number  # processor time of one block
    memory_mb: int  # of one block
    disk_mb: int  # of one block
    op: str | None  # your own id: a retry with it pays once


class FitTerms(TypedDict, total=False):
    """What a fit or a check takes: its whole price, and how a fit is reckoned."""

    epsilon: Number
    delta: Number | None  # of all questions together; left out, it is the card's
    ridge: Number | None  # of a line: rows added to each scaled square; left out, as noise needs
    rounds: int  # of a logistic fit, after its first question; 3 if left out
    resume: bool  # it was asked before, perhaps interrupted: what was answered is free


class FitPriceTerms(FitTerms, total=False):
    """What the price of a regression takes besides."""

    people: int | None  # your own guess of how many rows there are


def terms_body(terms: Mapping[str, object]) -> Json:
    """Return the terms that were given, as they go over the wire."""
    body = {k: v for k, v in terms.items() if v is not None and v is not False}
    top_up = body.get("top_up")
    for name in ("error", "split"):
        if name in body:
            body[name] = _by_name(name, body[name])
    if top_up is not None and not isinstance(top_up, str):
        body["top_up"] = _op_of(top_up)
    if hasattr(body.get("people"), "value"):
        body["people"] = _size_of(cast("Sized", body["people"]))
    if isinstance(body.get("private_bins"), tuple):
        body["private_bins"] = list(cast("Sequence[str]", body["private_bins"]))
    return body


def question_body(data_set: str, question: object, terms: Mapping[str, object]) -> Json:
    """Return a question, in SQL or built, and its terms as they go over the wire."""
    unknown = sorted(set(terms) - AskTerms.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(AskTerms.__optional_keys__))
        raise Refused(
            "not-in-language", f"A question has no term {unknown[0]!r}.", f"There are: {known}."
        )
    body: Json = {"data_set": data_set, **terms_body(terms)}
    if isinstance(question, str):
        return {**body, "sql": question}
    built = getattr(question, "question", None)
    if built is None:
        raise Refused(
            "not-in-language", "This is no question.", "Give SQL, or what a data set's steps build."
        )
    return {**body, "question": question_json(built())}


def _by_name(term: str, pairs: object) -> Json:
    if isinstance(pairs, Mapping):
        return dict(pairs)
    raise Refused(
        "not-in-language",
        f"{term!r} is given for each number by its name.",
        f'Name the number: count(name="n") and {term}={{"n": 5}}.',
    )


def _size_of(counted: Sized) -> int:
    """Return the size that a released count says; a noisy one may be below one."""
    value = counted.value
    if not isinstance(value, int | float):
        raise Refused("not-in-language", "That is no count.", "Give people=N, or a count's answer.")
    return max(1, round(value))


def _op_of(answer: object) -> object:
    receipt = getattr(answer, "receipt", None)
    if not isinstance(receipt, dict):
        raise Refused(
            "top-up-unknown", "This is no earlier answer.", "Give the answer, or its receipt's op."
        )
    return cast("Json", receipt)["op"]
