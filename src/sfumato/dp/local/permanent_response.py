"""Repeated surveys: permanent randomised response once, plus fresh randomisation in each wave.

The device derives a permanent answer from its secret, the survey, the question and the true answer
only. So the permanent answer never changes. In each wave, the device randomises the permanent
answer again, with fresh random words.

This is the method of RAPPOR (Erlingsson et al. 2014) with k-ary responses (soundness rule 32). Any
number of waves reveals no more than the permanent answer itself. Proof:
permanent_response.proof.md.
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
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.random_words import PARTS, Integers, Words, words_each
from sfumato.dp.refusal import Bug, Refused

SECRET_BYTES: Final = 32
_LABEL: Final = "sfumato permanent 1"
_PER_BLOCK: Final = 8  # 32-bit words in a SHA-256 digest


@dataclass(frozen=True)
class PermanentResponse:
    """Randomised response for repeated surveys: a permanent response, then a fresh one per wave.

    Both are k-ary. `randomise` takes permanent answers, which `Device.permanent_answer` returns.
    """

    permanent: KAry
    momentary: KAry

    def __post_init__(self) -> None:
        if self.permanent.size != self.momentary.size:
            raise Bug("a wave has the answers of the permanent response")

    @staticmethod
    def within(size: int, *, ever: Fraction, wave: Fraction) -> PermanentResponse:
        """Return the randomiser with epsilon at most `ever` for all waves and `wave` for each."""
        if not 0 < wave < ever:
            raise Refused(
                "bad-budget",
                "The epsilon of one wave must be above 0, and below the lifetime epsilon of all "
                "waves together.",
                "Raise the lifetime epsilon, or lower the epsilon of a wave.",
            )
        permanent = KAry.within(size, ever)
        low, high = 1, PARTS - 1
        if PermanentResponse(permanent, KAry(size, low)).epsilon > wave:
            raise Refused(
                "bad-budget",
                "The epsilon of a wave is so small that no randomiser can reach it.",
                "Give each wave a larger epsilon.",
            )
        while low < high:
            middle = (low + high + 1) // 2
            is_within = PermanentResponse(permanent, KAry(size, middle)).epsilon <= wave
            low, high = (middle, high) if is_within else (low, middle - 1)
        return PermanentResponse(permanent, KAry(size, low))

    @property
    def size(self) -> int:
        """Return the number of possible answers, including silence (no answer)."""
        return self.permanent.size

    @property
    def words_per_report(self) -> int:
        """Return the number of random words per report in a wave."""
        return self.momentary.words_per_report

    @property
    def width(self) -> int:
        """Return the length of a report in one wave, in bytes."""
        return self.momentary.width

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters: kind, `size` and truth probabilities of both responses."""
        return {"kind": "waves", "size": self.size, "permanent": self.permanent.truth,
                "momentary": self.momentary.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the exact probability of each report in one wave, for each true answer."""
        said = self.momentary.law
        return {truth: _mixed(kept, said) for truth, kept in self.permanent.law.items()}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one true answer than under another.

        The report is that of one wave, and the logarithm of the ratio is its local epsilon. A
        report names answer y with probability told * P(permanent = y) + drawn(y). Here `told` is
        the probability of a truthful report of the permanent answer, and `drawn` that of a random
        one. Neither depends on the true answer. The worst y is one with the fewest random words.
        """
        told = Fraction(self.momentary.truth, PARTS)
        kept = Fraction(self.permanent.truth, PARTS)
        words = {Fraction(int(n), PARTS) for n in words_each(self.size)}
        others = [(told * (1 - kept) + 1 - told) * each for each in words]
        return max(1 + told * kept / other for other in others)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of the report in one wave, which is the logarithm of `ratio`.

        It is rounded up to 1e-9.
        """
        return epsilon_of(self.ratio)

    @property
    def epsilon_ever(self) -> Fraction:
        """Return the local epsilon of all waves together, if the true answer never changes."""
        return self.permanent.epsilon

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(report v | true answer v) - P(report v | another true answer).

        It is the same for every answer v, and estimates of shares divide by it.
        """
        return self.permanent.p_minus_q * self.momentary.p_minus_q

    @property
    def q(self) -> Floats:
        """Return for each answer the probability to report it when another answer is true.

        Estimates of shares subtract it.
        """
        through = float(self.momentary.p_minus_q) * self.permanent.q
        return np.asarray(self.momentary.q + through)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise permanent answers again, with fresh random words, for the reports of a wave."""
        return self.momentary.randomise(values, words)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is the number of an answer."""
        return self.momentary.are_valid(reports)

    def counts(self, reports: Reports) -> Integers:
        """Count how many reports name each answer."""
        return self.momentary.counts(reports)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: a report supports the answer that it names."""
        return counts


@dataclass(frozen=True)
class Device:
    """A respondent's device, with a permanent secret of 32 bytes that never leaves the device."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise Bug("a device's secret has 32 bytes")

    def __repr__(self) -> str:
        """Return a text of the device for debugging that omits its secret."""
        return "Device(...)"

    def words(self, survey: str, question: str, value: int, count: int) -> list[int]:
        """Derive the random words of the permanent answer to one question; they never change.

        Block b is HMAC-SHA256 of the JSON list [label, survey, question, value, b] without spaces.
        Each block gives eight words, in little-endian order.
        """
        blocks = range(-(-count // _PER_BLOCK))
        bytes_ = b"".join(self._block(survey, question, value, block) for block in blocks)
        return [int(word) for word in np.frombuffer(bytes_, dtype="<u4")[:count]]

    def permanent_answer(self, response: KAry, survey: str, question: str, value: int) -> int:
        """Return the permanent answer that the device gives for this true answer."""
        words = np.array(
            self.words(survey, question, value, response.words_per_report), dtype=np.uint32
        )
        said = response.randomise(np.array([value]), words.reshape(-1, 1))
        return int.from_bytes(said.tobytes(), "little")

    def _block(self, survey: str, question: str, value: int, block: int) -> bytes:
        message = [_LABEL, survey, question, value, block]
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        return hmac.digest(self.secret, text.encode(), "sha256")


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of one person for one question of a repeated survey.

    `values` are the true answers that the person gave, and `waves` the number of reports.
    """

    response: PermanentResponse
    values: frozenset[int]
    waves: int

    @property
    def epsilon(self) -> Fraction:
        """Return the lifetime epsilon: the epsilon of one permanent answer for each true answer.

        It is not the sum of the epsilons of the single waves. That sum may be smaller, and is no
        bound: all waves randomise the same permanent answer, so a second wave can reveal more than
        the first.
        """
        return self.response.epsilon_ever * len(self.values)

    @property
    def epsilon_of_changes(self) -> Fraction:
        """Return an epsilon that also hides changes of the true answer: the sum over all waves."""
        return self.response.momentary.epsilon * self.waves


def lifetime(questions: Mapping[str, PrivacyLoss]) -> Fraction:
    """Return a person's lifetime epsilon: the sum of the epsilons of all questions.

    `questions` has the privacy loss of each question. See soundness rule 32.
    """
    return sum((kept.epsilon for kept in questions.values()), Fraction(0))


def _mixed(kept: ReportProbabilities, said: Law) -> ReportProbabilities:
    mixed: dict[object, Fraction] = {}
    for permanent, chance in kept.items():
        for what, then in said[permanent].items():
            mixed[what] = mixed.get(what, Fraction(0)) + chance * then
    return mixed
