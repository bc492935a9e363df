"""Outputs of odd kinds: what a caller could see of one, the auditor sees, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.lab.audit import Audited, audit, auditor, outputs

Random = np.random.Generator


def held(mechanism: Callable[..., Any], *, most: int = 256) -> Audited:
    return audit(mechanism, 0, 1, epsilon=1, most=most, dice=np.random.default_rng(1))


def nan(payload: int) -> float:
    found: float = struct.unpack(">d", struct.pack(">Q", 0x7FF8000000000000 + payload))[0]
    return found


class Marked(float):
    """A number that carries something along."""


def marked(data: int) -> Marked:
    made = Marked(1)
    made.note = data  # type: ignore[attr-defined]  # a subclass has room for it
    return made


class Plain:
    """Something that says nothing of itself."""

    def __init__(self, data: int) -> None:
        self.data = data


class Slotted:
    __slots__ = ("data",)

    def __init__(self, data: int) -> None:
        self.data = data


class OneSlot:
    """Its one slot is a text, and a name that Python writes otherwise."""

    __slots__ = "__data"  # noqa: PLC0205  # as somebody may write it

    def __init__(self, data: int) -> None:
        self.__data = data

    def __repr__(self) -> str:
        return "nothing"


class Called(Plain):
    def __call__(self) -> int:
        return self.data

    def __repr__(self) -> str:
        return "nothing"


@dataclass
class Quiet:
    data: int

    def __repr__(self) -> str:
        return "nothing"


class Colour(Enum):
    RED = 0
    BLUE = 1


ODD: dict[str, Callable[[int], object]] = {
    "sign of zero": lambda data: (0.0, -0.0)[data],
    "payload of NaN": lambda data: nan(data),
    "sign of NaN": lambda data: struct.unpack(
        ">d", struct.pack(">Q", 0x7FF8 + 0x8000 * data << 48)
    ),
    "decimal's digits": lambda data: Decimal(("1.0", "1.00")[data]),
    "text of numpy's": lambda data: np.str_(("1.0", "1.00")[data]),
    "bytearray": lambda data: bytearray([data]),
    "other part": lambda data: 1 + 1j * data,
    "other part of numpy's": lambda data: np.complex64(1 + 1j * data),
    "field": lambda data: np.array([(1, data)], dtype=[("a", "i4"), ("b", "i4")])[0],
    "array without a length": lambda data: np.array(data),
    "day": lambda data: date(2026, 1, 1 + data),
    "day of numpy's": lambda data: np.datetime64("2026-01-01") + data,
    "key's kind": lambda data: {(1, "1")[data]: 0},
    "set": lambda data: {"a", "bc"[data]},
    "frozen set": lambda data: frozenset({2, data}),
    "attribute": lambda data: Plain(data),
    "slot": lambda data: Slotted(data),
    "slot of one name": lambda data: OneSlot(data),
    "what can be called": lambda data: Called(data),
    "masked array": lambda data: np.ma.masked_array([1, data], [False, True]),
    "mask": lambda data: np.ma.masked_array([1, 2], [False, bool(data)]),
    "field without words": lambda data: Quiet(data),
    "carried along": marked,
    "kind of enum": lambda data: Colour(data),
    "range": lambda data: range(data + 1),
    "nothing": lambda data: (None, ...)[data],
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_kind_of_output_tells_beside_noise(odd: str) -> None:
    """Noise stands beside it, so that the whole output is never the same twice."""

    def hidden(data: int, random: Random) -> object:
        return [random.random(), ODD[odd](data)]

    assert held(hidden).is_violated
    assert not held(lambda data, random: hidden(0 * data, random)).is_violated


NOISY: dict[str, Callable[[float], object]] = {
    "decimal": lambda noisy: Decimal(repr(noisy)),
    "fraction": lambda noisy: Fraction(noisy),
    "moment": lambda noisy: datetime(2026, 1, 1) + timedelta(days=noisy),
    "stretch": lambda noisy: timedelta(days=noisy),
    "sentence": lambda noisy: f"about {noisy:.6f} people",
    "part of one": lambda noisy: complex(1, noisy),
    "attribute": lambda noisy: Marked(noisy),
    "set": lambda noisy: {noisy},
    "key": lambda noisy: {noisy: 0},
    "values": lambda noisy: {1: noisy}.values(),
    "slice": lambda noisy: slice(noisy),
    "value of a key that has a namesake": lambda noisy: {1: noisy, "1": 0},
    "error": lambda noisy: ValueError(noisy),
    "fact": lambda noisy: Refused("bad-request", "No.", "Ask otherwise.", near=noisy),
}


@pytest.mark.parametrize("kind", NOISY)
def test_noise_that_is_too_narrow_is_seen_in_any_kind_of_number(kind: str) -> None:
    """Hardly two outputs are the same: only as numbers do they tell."""

    def narrow(data: int, random: Random) -> object:
        return NOISY[kind](float(np.round(data + random.laplace(0, 0.25), 6)))

    assert held(narrow, most=2048).is_violated


def told(data: int) -> Iterator[int]:
    yield 5
    yield data


def ends_badly(data: int) -> Iterator[int]:
    yield data
    raise ValueError("always the same")


def endless(data: int) -> Iterator[int]:
    while True:
        yield data


@pytest.mark.parametrize("made", [told, ends_badly, endless, lambda data: map(int, [data])])
def test_what_a_generator_yields_is_an_output(
    made: Callable[[int], Iterator[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditor, "MAX_ITEMS", 64)  # of thousands an audit takes minutes

    def mechanism(data: int) -> Iterator[int]:
        return made(data)

    assert held(mechanism).is_violated
    assert not held(lambda data: made(data * 0)).is_violated


def behind(data: int) -> None:
    try:
        raise KeyError(data)
    except KeyError:
        raise ValueError("always the same") from None


def noted(data: int) -> None:
    error = ValueError("always the same")
    error.add_note(f"of {data}")
    raise error


def carried(data: int) -> None:
    error = ValueError("always the same")
    error.row = data  # type: ignore[attr-defined]  # an error has room for it
    raise error


@pytest.mark.parametrize("fails", [behind, noted, carried])
def test_what_stands_behind_an_error_is_seen(fails: Callable[[int], None]) -> None:
    assert held(fails).is_violated
    assert not held(lambda data: fails(data * 0)).is_violated


@pytest.mark.parametrize("one", [object(), iter([1]), lambda: 1])
def test_what_cannot_be_looked_into_is_refused(one: object) -> None:
    with pytest.raises(Refused, match="cannot read values of") as refused:
        held(lambda data: [data * 0, one])
    assert refused.value.code == "bad-request"


def in_itself() -> list[object]:
    one: list[object] = [1]
    one.append(one)
    return one


def of_itself() -> Plain:
    one = Plain(1)
    one.data = one  # type: ignore[assignment]
    return one


@pytest.mark.parametrize("made", [in_itself, of_itself, lambda: range(10**9), lambda: 10**5000])
def test_what_has_no_end_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(Refused, match="cannot read values of") as refused:
        held(lambda data: [data * 0, made()])
    assert refused.value.code == "bad-request"


def test_keys_that_are_never_the_same_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs, "MAX_NUMBERS", 1 << 16)  # or the test would fill much of it itself

    def mechanism(data: int, random: Random) -> dict[str, int]:
        return {f"{place} {random.random()}": 0 for place in range(10)}

    with pytest.raises(Refused, match="too many numbers"):
        held(mechanism)


def test_where_a_key_or_a_member_lies_in_memory_is_no_difference() -> None:
    kept = [Plain(0), Plain(0)]

    def mechanism(data: int) -> list[object]:
        return [{kept[data]: 0}, {kept[data]}]

    assert held(mechanism, most=512).lower == 0


def long_one(data: int, runs: int, random: Random) -> NDArray[np.longdouble]:
    return np.asarray(random.random(runs) + 1 + np.longdouble(data) * np.longdouble(2) ** -60)


def masked(data: int, runs: int, random: Random) -> object:
    table = np.round(random.random((runs, 2)), 3)
    return np.ma.masked_array(table, np.tile([False, bool(data)], (runs, 1)))


def under_a_mask(data: int, runs: int, random: Random) -> object:
    table = np.column_stack([random.random(runs), np.full(runs, float(data))])
    return np.ma.masked_array(table, np.tile([False, True], (runs, 1)))


def zeros(data: int, runs: int, random: Random) -> NDArray[np.float64]:
    return np.column_stack([random.random(runs), np.full(runs, (0.0, -0.0)[data])])


def nans(data: int, runs: int, random: Random) -> NDArray[np.float64]:
    return np.column_stack([random.random(runs), np.full(runs, nan(data))])


@pytest.mark.parametrize("many", [long_one, masked, under_a_mask, zeros, nans])
def test_odd_numbers_of_many_runs_at_once_tell_as_well(many: Callable[..., Any]) -> None:
    assert held(many).is_violated
    assert not held(lambda data, runs, random: many(data * 0, runs, random)).is_violated


def test_where_an_output_lies_in_memory_is_no_difference() -> None:
    kept: list[object] = []

    def mechanism(data: int) -> Exception:
        kept.append(bytearray(100_000 * data + 1))
        return ValueError(object())

    assert held(mechanism, most=512).lower == 0


def test_digits_of_a_word_are_no_number_and_endless_ones_do_no_harm() -> None:
    def mechanism(data: int) -> list[object]:
        words = [f"sha {n}7e9999 and {n}e99 x" for n in range(13)]
        return [*words, data]

    assert held(mechanism).is_violated

    def endless_ones(data: int) -> list[float]:
        return [np.inf * n if n else 0.5 for n in range(14)] + [float(data)]

    assert held(endless_ones).is_violated
