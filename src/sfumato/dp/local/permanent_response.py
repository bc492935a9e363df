"""Answers that may be asked for again: a permanent lie once, and fresh noise in every wave.

The device draws a permanent answer with words that hang on its secret, the survey, the question and
the value alone, so that it is the same for ever; what is sent in a wave is said, with fresh words,
of the permanent answer (soundness rule 32, in the manner of RAPPOR, Erlingsson et al. 2014, with
k-ary responses). However many waves there are, they tell no more than the permanent answer would.
Proof: permanent_response.proof.md.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import Law, Says, epsilon_of
from sfumato.dp.local.random_words import PARTS, Integers, Words, words_each
from sfumato.dp.refusal import Bug, Refused

SECRET_BYTES: Final = 32
_LABEL: Final = "sfumato permanent 1"
_PER_BLOCK: Final = 8  # words of a SHA-256


@dataclass(frozen=True)
class Waves:
    """The k-ary response of the permanent answer, and the one of every wave, over the same answers.

    An oracle like the others: `say` takes permanent answers, as `permanent_answer` made them.
    """

    permanent: KAry
    momentary: KAry

    def __post_init__(self) -> None:
        if self.permanent.size != self.momentary.size:
            raise Bug("a wave has the answers of the permanent response")

    @staticmethod
    def within(size: int, *, ever: Fraction, wave: Fraction) -> Waves:
        """Return the ones that cost `ever` for all waves together, and `wave` for one."""
        if not 0 < wave < ever:
            raise Refused(
                "bad-budget", "A wave costs less than all of them.", "Raise the lifetime's epsilon."
            )
        permanent = KAry.within(size, ever)
        low, high = 1, PARTS - 1
        if Waves(permanent, KAry(size, low)).epsilon > wave:
            raise Refused("bad-budget", "No coin is so unfair.", "Raise the epsilon of a wave.")
        while low < high:
            middle = (low + high + 1) // 2
            is_within = Waves(permanent, KAry(size, middle)).epsilon <= wave
            low, high = (middle, high) if is_within else (low, middle - 1)
        return Waves(permanent, KAry(size, low))

    @property
    def size(self) -> int:
        """Return how many answers there are."""
        return self.permanent.size

    @property
    def words(self) -> int:
        """Return the words of a wave."""
        return self.momentary.words

    @property
    def width(self) -> int:
        """Return the bytes of a wave's report."""
        return self.momentary.width

    @property
    def parameters(self) -> Parameters:
        """Return the kind and its three numbers."""
        return {"kind": "waves", "size": self.size, "permanent": self.permanent.truth,
                "momentary": self.momentary.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the chance of everything said in one wave under every true answer."""
        said = self.momentary.law
        return {truth: _mixed(kept, said) for truth, kept in self.permanent.law.items()}

    @property
    def ratio(self) -> Fraction:
        """Return the largest ratio of one wave's report: of the answers with the fewest words.

        Something is said of y with the chance told * P(permanent = y) + drawn(y), where told and
        the draw hang on no truth.
        """
        told = Fraction(self.momentary.truth, PARTS)
        kept = Fraction(self.permanent.truth, PARTS)
        words = {Fraction(int(n), PARTS) for n in words_each(self.size)}
        others = [(told * (1 - kept) + 1 - told) * each for each in words]
        return max(1 + told * kept / other for other in others)

    @property
    def epsilon(self) -> Fraction:
        """Return what one wave costs by itself."""
        return epsilon_of(self.ratio)

    @property
    def epsilon_ever(self) -> Fraction:
        """Return what all waves together cost, for as long as the true answer stays the same."""
        return self.permanent.epsilon

    @property
    def contrast(self) -> Fraction:
        """Return how much likelier the true answer is said than by chance."""
        return self.permanent.contrast * self.momentary.contrast

    @property
    def by_chance(self) -> Floats:
        """Return how often each answer is said of another."""
        through = float(self.momentary.contrast) * self.permanent.by_chance
        return np.asarray(self.momentary.by_chance + through)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return what is said of permanent answers in one wave."""
        return self.momentary.say(values, words)

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which are answers."""
        return self.momentary.are_valid(reports)

    def counts(self, reports: Reports) -> Integers:
        """Return how often each answer was said."""
        return self.momentary.counts(reports)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts."""
        return counts


@dataclass(frozen=True)
class Device:
    """What a device keeps for ever: a secret of 32 bytes that is never sent."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise Bug("a device's secret has 32 bytes")

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return "Device(...)"

    def words(self, survey: str, question: str, value: int, count: int) -> list[int]:
        """Return the words of a value's permanent answer: the same ones for ever.

        Block b is HMAC-SHA256 of the JSON list [label, survey, question, value, b] without spaces;
        each holds eight words, the lowest byte first.
        """
        blocks = range(-(-count // _PER_BLOCK))
        bytes_ = b"".join(self._block(survey, question, value, block) for block in blocks)
        return [int(word) for word in np.frombuffer(bytes_, dtype="<u4")[:count]]

    def permanent_answer(self, response: KAry, survey: str, question: str, value: int) -> int:
        """Return the answer that stands for this value in this survey's question."""
        words = np.array(self.words(survey, question, value, response.words), dtype=np.uint32)
        said = response.say(np.array([value]), words.reshape(-1, 1))
        return int.from_bytes(said.tobytes(), "little")

    def _block(self, survey: str, question: str, value: int, block: int) -> bytes:
        message = [_LABEL, survey, question, value, block]
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        return hmac.digest(self.secret, text.encode(), "sha256")


@dataclass(frozen=True)
class Kept:
    """What a person has given away of one question so far: values reported, and waves."""

    response: Waves
    values: frozenset[int]
    waves: int

    @property
    def epsilon(self) -> Fraction:
        """Return the lifetime's price of what the answers were: a permanent answer a value.

        Not the sum of the waves' own prices, which may be less and is no bound: waves share their
        permanent answer, so a second one can tell more than the first.
        """
        return self.response.epsilon_ever * len(self.values)

    @property
    def epsilon_of_changes(self) -> Fraction:
        """Return a bound that also covers when the answer changed: every wave's fresh noise."""
        return self.response.momentary.epsilon * self.waves


def lifetime(questions: Mapping[str, Kept]) -> Fraction:
    """Return what a person gave away of all questions: the sum over them (soundness rule 32)."""
    return sum((kept.epsilon for kept in questions.values()), Fraction(0))


def _mixed(kept: Says, said: Law) -> Says:
    mixed: dict[object, Fraction] = {}
    for permanent, chance in kept.items():
        for what, then in said[permanent].items():
            mixed[what] = mixed.get(what, Fraction(0)) + chance * then
    return mixed
