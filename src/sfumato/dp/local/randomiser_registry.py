"""The registry of local randomisers: build a randomiser from the JSON parameters of its reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sfumato.dp.local.ballot_split import MAX_QUESTIONS, Sampled, Split
from sfumato.dp.local.binary_response import Binary
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Oracle, Parameters, Randomiser
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.numeric_response import Numbers
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.dp.refusal import Bug, Refused

_Maker = Callable[..., Any]  # Any: a frequency oracle, or a randomiser of numbers
_Table = Mapping[str, tuple[_Maker, tuple[str, ...]]]


def _waves(size: int, permanent: int, momentary: int) -> PermanentResponse:
    return PermanentResponse(KAry(size, permanent), KAry(size, momentary))


KINDS: Final[_Table] = {
    "binary": (Binary, ("yes", "other")),
    "hadamard": (Hadamard, ("size", "rows", "truth")),
    "hashing": (Hashing, ("size", "cells", "truth")),
    "k-ary": (KAry, ("size", "truth")),
    "projective": (Projective, ("size", "prime", "dimension", "truth")),
    "subset": (Subset, ("size", "field", "chosen", "truth")),
    "unary": (Unary, ("size", "other")),
    "waves": (_waves, ("size", "permanent", "momentary")),
}
NUMBERS: Final[_Table] = {
    "duchi": (Duchi, ("steps", "truth")),
    "hybrid": (Hybrid, ("steps", "share", "window", "truth", "ends")),
    "piecewise": (Piecewise, ("steps", "window", "truth")),
}
BALLOTS: Final[Mapping[str, Callable[[tuple[Randomiser, ...]], Randomiser]]] = {
    "sampled": Sampled,
    "split": Split,
}
DEEPEST: Final = 3  # most levels of ballots inside ballots


def oracle_of(parameters: Parameters) -> Oracle:
    """Build a frequency oracle from its JSON parameters; refuse missing or unknown ones."""
    made: Oracle = _read(parameters, KINDS)
    return made


def numbers_of(parameters: Parameters) -> Numbers:
    """Build a randomiser of numbers from its JSON parameters; refuse missing or unknown ones."""
    made: Numbers = _read(parameters, NUMBERS)
    return made


def randomiser_of(parameters: Parameters, depth: int = 0) -> Randomiser:
    """Build any randomiser from its JSON parameters: for an answer, a number or a ballot.

    Missing or unknown parameters are refused.
    """
    kind, questions = parameters.get("kind"), parameters.get("questions")
    if not isinstance(kind, str) or kind not in BALLOTS:
        made: Randomiser = _read(parameters, {**KINDS, **NUMBERS})
        return made
    if not isinstance(questions, list) or set(parameters) != {"kind", "questions"}:
        raise _unreadable()
    are_read = all(isinstance(question, dict) for question in questions)
    if not are_read or depth >= DEEPEST or not 1 <= len(questions) <= MAX_QUESTIONS:
        raise _unreadable()
    return BALLOTS[kind](tuple(randomiser_of(question, depth + 1) for question in questions))


def _read(parameters: Parameters, table: _Table) -> Any:
    kind = parameters.get("kind")
    maker, names = table.get(kind, (None, ())) if isinstance(kind, str) else (None, ())
    if maker is None or set(parameters) != {"kind", *names}:
        raise _unreadable()
    numbers = [parameters[name] for name in names]
    if not all(type(number) is int for number in numbers):
        raise _unreadable()
    made = _made(maker, numbers)
    if made is None:
        raise _unreadable()
    return made


def _made(maker: _Maker, numbers: list[object]) -> Any:
    try:
        return maker(*numbers)
    except Bug:  # the invalid numbers come from the caller, so they are not a bug of this program
        return None


def _unreadable() -> Refused:
    return Refused(
        "bad-request",
        "The parameters do not describe a randomiser that sfumato knows.",
        "Give the randomiser's .parameters unchanged.",
    )
