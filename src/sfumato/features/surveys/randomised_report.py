"""Make and parse ballots: the randomised reports that a respondent's device sends.

Each question takes one draw of a dp/local randomiser (features/surveys/randomisation.py), with "no
answer" among the answers. For `several` the device draws one option, for `ranking` one pair,
independently of the answer. A number is rounded to a grid step without bias (soundness rules 31,
33).

The noise is permanent: it is derived from the device's secret, the question and the true value.
The same question gives the same report again, so nothing can be averaged (soundness rule 32). With
`ever`, the permanent response is never sent: each wave sends a fresh randomised response to it,
derived from that response and the wave alone. JavaScript does the same bit by bit
(server/console/static/survey-coins.js).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.random_words import PARTS
from sfumato.dp.refusal import Refused
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.model import Question, Survey, bad_survey, id_of, read_survey
from sfumato.features.surveys.randomisation import (
    NUMBERS,
    QuestionRandomiser,
    choose_randomisers,
    cost_of,
    in_words,
    is_valid_report,
    read_randomisers,
    round_to_grid,
)
from sfumato.vault.hash_chain import canonical

_MEMO: Final = b"sfumato-memo/1\n"
_SERIES: Final = b"sfumato-series/1\n"
_TOKEN: Final = b"sfumato-ballot-token/1\n"
_MARK: Final = b"sfumato-ballot-mark/1\n"
_LONGEST: Final = 1000  # the most letters of a report
_REMEMBERED: Final = 1 << 14  # the most cached parts of reports, per survey
# the most decimal digits of a number in a report; JavaScript's numbers hold so many exactly
_DIGITS: Final = 15


@dataclass(frozen=True)
class Published:
    """A published survey: its definition, its randomisers, and the key that signs its tokens."""

    survey: Survey
    key: PublicKey
    listed: tuple[QuestionRandomiser, ...] | None = (
        None  # the published randomisers; None for a new survey
    )

    @cached_property
    def coins(self) -> tuple[QuestionRandomiser, ...]:
        """Return the randomiser of each question: as published, or as chosen for a new survey."""
        return choose_randomisers(self.survey) if self.listed is None else self.listed

    @cached_property
    def response_ids(self) -> tuple[str, ...]:
        """Return for each question the identifier (memo) of its permanent responses.

        In a series, the same asker, wording and randomiser give the same memo, so a device repeats
        its response.
        """
        named = canonical([self.survey.asks, self.survey.series]).encode()
        scope = hashlib.sha256(_SERIES + named).hexdigest() if self.survey.series else ""
        parts = (scope, self.survey.budget, len(self.coins))
        return tuple(
            hashlib.sha256(
                _MEMO
                + canonical([*parts, question.text, *shape_of(question), self._odds(coin)]).encode()
            ).hexdigest()
            for question, coin in zip(self.survey.questions, self.coins, strict=True)
        )

    @cached_property
    def lasting(self) -> tuple[str, ...]:
        """Return the memos (ids of permanent responses) that all waves of a series must share.

        They are sorted. With the budget `sampled` they are in the order of the questions, because
        the draw of the question depends on it. A wave in another order could draw another question
        and reveal one more answer.
        """
        return (
            self.response_ids
            if self.survey.budget == "sampled"
            else tuple(sorted(self.response_ids))
        )

    @cached_property
    def text(self) -> str:
        """Return the canonical JSON text of the published survey, whose digest is its id."""
        return canonical(
            {
                "survey": self.survey.shape(),
                "key": {"n": f"{self.key.modulus:x}", "e": self.key.exponent},
                "coins": [dict(coin.parameters) for coin in self.coins],
                "memos": list(self.response_ids),
                "costs": [float(cost) for cost in self.costs],
                "bound_to": "series" if self.survey.series else "survey",
            }
        )

    @cached_property
    def id(self) -> str:
        """Return the survey's id, a digest of its published text."""
        return id_of(self.text)

    @cached_property
    def read_before(self) -> dict[str, RandomisedAnswer]:
        """Return an empty cache, from the text of a randomised answer to its parsed form.

        The parser of reports fills it up to a limit, so that it rarely parses a text twice.
        """
        return {}

    @property
    def epsilon(self) -> Fraction:
        """Return the epsilon of a ballot: the exact sum of its costs, or the largest if sampled."""
        return sum(self.costs, Fraction(0)) if self.survey.budget == "split" else max(self.costs)

    @cached_property
    def costs(self) -> tuple[Fraction, ...]:
        """Return the epsilon of each question's randomised answer, in the order of questions."""
        return tuple(cost_of(coin, is_dice=self.survey.paper) for coin in self.coins)

    def _odds(self, coin: QuestionRandomiser) -> object:
        """Return the parameters of a question's permanent randomiser, for the question's memo.

        The memo is the id of permanent responses, so it changes with the parameters. In waves under
        `ever`, the fresh response of each wave does not count.
        """
        if isinstance(coin, PermanentResponse):
            return dict(coin.permanent.parameters)
        if self.survey.format == 1 and isinstance(coin, KAry):
            return coin.truth
        return dict(coin.parameters)


def read_published(text: str) -> Published:
    """Parse a published survey's text; refuse one that does not reproduce itself exactly."""
    try:
        table: dict[str, Any] = json.loads(text)  # Any: JSON, whose digest is compared below
        key = PublicKey(int(table["key"]["n"], 16), int(table["key"]["e"]))
        survey = read_survey(table["survey"])
        made = Published(survey, key, read_randomisers(survey, table["coins"]))
        is_whole = made.text == text
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        is_whole = False
    if not is_whole:
        raise bad_survey("the text is not one that was published")
    return made


def is_of_one_series(one: Published, other: Published) -> bool:
    """Return True if two surveys belong to one series of one asker."""
    names = [(made.survey.asks, made.survey.series) for made in (one, other)]
    return bool(one.survey.series) and names[0] == names[1]


def is_wave_beside(one: Published, other: Published) -> bool:
    """Return True if two surveys may be waves of one series.

    They may if they share all permanent responses, or if neither has `ever`. `ever` bounds the
    privacy loss of all waves together. Other questions or another `ever` would have permanent
    responses of their own and spend that epsilon again.
    """
    if one.survey.ever is None and other.survey.ever is None:
        return True
    return one.lasting == other.lasting


def shape_of(question: Question) -> tuple[object, ...]:
    """Return a question's kind, options, range and unit: what its memo depends on besides wording.

    The memo is the id of its permanent responses.
    """
    shape = (question.kind, list(question.options), question.low, question.high, question.unit)
    return (*shape, "required") if question.is_required else shape


@dataclass(frozen=True)
class RandomisedAnswer:
    """One randomised answer: the question, its sub-question (slot), and the report.

    `said` is the report's bytes as a little-endian number.
    """

    question: int
    slot: int
    said: int

    def __str__(self) -> str:
        return f"{self.question}.{self.slot}.{self.said}"


def spelled(said: Iterable[RandomisedAnswer]) -> str:
    """Join a ballot's randomised answers into the report that is sent: one line of text."""
    return " ".join(map(str, said))


def words_for(published: Published, text: str) -> list[tuple[str, str]]:
    """Return the text of each answered question, and its randomised answer as text."""
    questions, coins = published.survey.questions, published.coins
    return [
        (questions[one.question].text,
         in_words(questions[one.question], coins[one.question], one.slot, one.said))
        for one in read_report(published, text)
    ]  # fmt: skip


def read_report(published: Published, text: str) -> tuple[RandomisedAnswer, ...]:
    """Parse a report; refuse one that no device could make for this survey."""
    survey = published.survey
    parts = text.split(" ") if len(text) <= _LONGEST else []
    said = tuple(_said(published, part) for part in parts)
    if len(said) != survey.asked_each:
        raise bad_report()
    wanted = range(len(survey.questions))
    if survey.budget == "split" and [one.question for one in said] != list(wanted):
        raise bad_report()
    return said


def bad_report() -> Refused:
    """Return the refusal of a report that no device could make for this survey."""
    return Refused(
        "bad-report",
        "The report is not valid: no device that follows this survey could send it.",
        "Load the survey again, and answer it anew.",
    )


def _said(published: Published, part: str) -> RandomisedAnswer:
    known = published.read_before
    found = known.get(part)
    if found is None:
        found = _read_part(published, part)
        if len(known) < _REMEMBERED:
            known[part] = found
    return found


def _read_part(published: Published, part: str) -> RandomisedAnswer:
    numbers = part.split(".")
    if len(numbers) != 3 or not all(
        n.isascii() and n.isdecimal() and len(n) <= _DIGITS for n in numbers
    ):
        raise bad_report()
    said, questions = RandomisedAnswer(*map(int, numbers)), published.survey.questions
    if str(said) != part or said.question >= len(questions):
        raise bad_report()
    is_asked = said.slot < questions[said.question].slots
    if not is_asked or not is_valid_report(published.coins[said.question], said.said):
        raise bad_report()
    return said


Truth = bool | int | str | Sequence[str] | None  # None is no answer


def make_report(published: Published, truths: Mapping[str, Truth], secret: bytes) -> str:
    """Randomise the true answers (by question id) into this device's report.

    The drawn question and sub-question do not depend on the answers.
    """
    survey, scope = published.survey, "" if published.survey.series else published.id
    _check_required(survey, truths)
    chosen = list(range(len(survey.questions)))
    if survey.budget == "sampled":
        word = words_of(secret, ["question", scope, *published.response_ids])[0]
        chosen = [drawn_among(word, len(survey.questions))]
    return spelled(
        _answered(published, number, truths.get(survey.questions[number].id), secret)
        for number in chosen
    )


def _check_required(survey: Survey, truths: Mapping[str, Truth]) -> None:
    """Refuse if a required answer is missing, whichever question is drawn (decision 0022)."""
    for question in survey.questions:
        if question.is_required and truths.get(question.id) is None:
            raise Refused(
                "bad-request",
                f"The question {question.id} cannot be left without an answer.",
                "Answer this question, or do not take part. Nothing was sent.",
            )


def _answered(published: Published, number: int, truth: Truth, secret: bytes) -> RandomisedAnswer:
    question, coin = published.survey.questions[number], published.coins[number]
    memo, scope = published.response_ids[number], "" if published.survey.series else published.id
    slot = drawn_among(words_of(secret, ["slot", scope, memo])[0], question.slots)
    value = value_of(question, slot, truth)
    words = words_of(secret, ["said", scope, memo, slot, value])
    if isinstance(coin, PermanentResponse):
        kept = said_of(coin.permanent, category_of(question, value, words[2]), words)
        words = words_of(secret, ["wave", published.id, memo, slot, kept])
        return RandomisedAnswer(number, slot, said_of(coin.momentary, kept, words))
    if isinstance(coin, NUMBERS):
        return RandomisedAnswer(
            number, slot, said_of(coin, round_to_grid(question, value, words[7]), words)
        )
    return RandomisedAnswer(
        number, slot, said_of(coin, category_of(question, value, words[2]), words)
    )


def said_of(coin: QuestionRandomiser, value: int, words: Sequence[int]) -> int:
    """Randomise one true answer (category or grid step); return the randomised answer as a number.

    The randomiser uses the first of these random words, as many as it needs.
    """
    column = np.array(words[: coin.words_per_report], dtype=np.uint32).reshape(
        coin.words_per_report, 1
    )
    return int.from_bytes(coin.randomise(np.array([value]), column).tobytes(), "little")


def words_of(secret: bytes, label: list[object]) -> list[int]:
    """Derive eight random 32-bit words for the noise from the device's secret and a label.

    The function is HMAC-SHA256, so the same label gives the same noise again.
    """
    text = json.dumps(label, separators=(",", ":"))
    made = hmac.new(secret, text.encode("ascii"), hashlib.sha256).digest()
    return [int.from_bytes(made[at : at + 4], "little") for at in range(0, 32, 4)]


def drawn_among(word: int, outcomes: int) -> int:
    """Map a random 32-bit word to one of `outcomes` whole numbers, counted from 0."""
    return int(word * outcomes // PARTS)


def value_of(question: Question, slot: int, truth: Truth) -> int:
    """Return the true answer to one sub-question as a whole number.

    No answer is -1, and for a number `low - 1`.
    """
    if truth is None:
        return -1 if question.kind != "number" else question.low - 1
    match question.kind:
        case "yes-no" if isinstance(truth, bool):
            return 0 if truth else 1
        case "choice" if truth in question.options:
            return question.options.index(str(truth))
        case "several" if _are_options(question, truth):
            return 0 if question.options[slot] in _texts(truth) else 1
        case "ranking" if _are_options(question, truth) and len(_texts(truth)) == len(
            question.options
        ):
            first, second = (_texts(truth).index(question.options[n]) for n in question.pairs[slot])
            return 0 if first < second else 1
        case "number" if type(truth) is int and question.low <= truth <= question.high:
            return truth
    raise Refused(
        "bad-request",
        f"The question {question.id} does not accept this answer.",
        "Give one of the answers that the survey offers for it.",
    )


def category_of(question: Question, value: int, word: int) -> int:
    """Return the category (number of an answer) of a true answer, before it is randomised.

    A number is rounded to `high` or `low` at random, without bias.
    """
    if question.kind != "number":
        return question.categories - 1 if value < 0 else value
    if value < question.low:
        return question.categories - 1
    is_high = word * (question.high - question.low) < (value - question.low) * PARTS
    return 1 if is_high else 0


def _texts(truth: Truth) -> list[str]:
    return [str(one) for one in truth] if isinstance(truth, Sequence) else []


def _are_options(question: Question, truth: Truth) -> bool:
    if isinstance(truth, str) or not isinstance(truth, Sequence):
        return False
    return len(set(truth)) == len(truth) and set(truth) <= set(question.options)


def token_digest(token: bytes) -> str:
    """Return the digest under which the service stores a spent token."""
    return hashlib.sha256(_TOKEN + token).hexdigest()


def mark_of(token: str, said: str) -> str:
    """Return the mark of a report: a code by which its respondent finds it in the public list."""
    return hashlib.sha256(_MARK + f"{token}\n{said}".encode("ascii")).hexdigest()[:16]
