"""Survey definitions: the questions, the epsilon of a ballot, and the strict JSON reader.

A published definition never changes. The survey's id, which is in its link, is a digest of the
canonical JSON and of the key that signs ballot tokens. So the server can't show two respondents
different questions, randomisers or keys under one link.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Final, Literal, cast

from sfumato.dp.budget import read_epsilon
from sfumato.dp.refusal import Refused
from sfumato.vault.hash_chain import canonical

Kind = Literal["yes-no", "choice", "several", "number", "ranking"]
Budget = Literal["split", "sampled"]
KINDS: Final = ("yes-no", "choice", "several", "number", "ranking")
REQUIRABLE: Final = ("yes-no", "choice")
BUDGETS: Final = ("split", "sampled")
NO_ANSWER: Final = "no answer"
FORMATS: Final = (
    1,
    2,
)  # 1 has k-ary response alone (features/surveys/randomisation.py); both stay readable for ever
FORMAT: Final = 2
MAX_QUESTIONS, MAX_OPTIONS, MAX_RANKED = 20, 20, 8
MAX_THROWN: Final = 5  # the most options on paper: with "no answer" they are the six sides of a die
LARGEST: Final = Fraction(10)  # a larger epsilon of a ballot hides nobody
SMALLEST: Final = Fraction(1, 100)
LARGEST_NUMBER: Final = 10**9
FEWEST: Final = 10  # the lowest `minimum` that a survey may set
_ID_BYTES: Final = 20
_DOMAIN: Final = b"sfumato-survey/1\n"


@dataclass(frozen=True)
class Question:
    """One question of a survey; "no answer" is one of its answers unless an answer is required."""

    id: str
    text: str
    kind: Kind
    options: tuple[str, ...] = ()  # the options of a choice, of several, or of a ranking
    low: int = 0  # the range of a number
    high: int = 0
    unit: str = ""
    is_required: bool = False  # for yes-no and choice: "no answer" isn't offered

    @property
    def slots(self) -> int:
        """Return the number of a question's sub-questions (slots), of which a device answers one.

        A sub-question of `several` asks whether one option is ticked. One of `ranking` asks which
        option of a pair comes first. The draw does not depend on the answer (soundness rule 31).
        """
        if self.kind == "several":
            return len(self.options)
        return len(self.pairs) if self.kind == "ranking" else 1

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Return all pairs of a ranking's options, as indexes in lexicographic order."""
        return tuple(combinations(range(len(self.options)), 2)) if self.kind == "ranking" else ()

    @property
    def categories(self) -> int:
        """Return the number of possible answers to a sub-question, with "no answer" if allowed.

        "No answer" is the last category.
        """
        answers = len(self.options) if self.kind == "choice" else 2
        return answers if self.is_required else answers + 1

    @property
    def words(self) -> tuple[str, ...]:
        """Return the texts of a yes-no or choice question's answers, in the order of their numbers.

        "No answer" is the last, unless an answer is required.
        """
        return (*(self.options or ("yes", "no")), *(() if self.is_required else (NO_ANSWER,)))

    def said(self, slot: int, category: int) -> str:
        """Return an answer as text, given its number (category) and the sub-question (slot)."""
        if category == self.categories - 1 and not self.is_required:
            return NO_ANSWER
        if self.kind == "choice":
            return self.options[category]
        if self.kind == "number":
            return f"{(self.low, self.high)[category]} {self.unit}".strip()
        if self.kind == "ranking":
            first, second = self.pairs[slot]
            order = (first, second) if category == 0 else (second, first)
            return " before ".join(self.options[place] for place in order)
        tick = ("yes", "no")[category]
        return tick if self.kind == "yes-no" else f"{self.options[slot]}: {tick}"


@dataclass(frozen=True)
class Survey:
    """A survey as its owner designs it: questions, epsilon, number of people, and days."""

    title: str
    about: str  # the owner's description of the survey: who asks, and for what purpose
    asks: str  # the name of the asker
    questions: tuple[Question, ...]
    epsilon: Fraction  # of the whole ballot
    # "split": epsilon is split among all questions; "sampled": one drawn question gets all of it
    budget: Budget
    people: int  # the expected number of respondents
    minimum: int  # the number of reports before estimates are shown
    opens: date
    closes: date  # the last day of the survey
    lifetime: Fraction  # cap on one invited person's epsilon over all surveys of this owner
    series: str = ""  # surveys with the same series share the permanent response to a question
    paper: bool = False  # two dice can randomise the answers: probabilities are multiples of 1/36
    ever: Fraction | None = None  # epsilon of all waves together while an answer stays the same
    format: int = FORMAT

    @property
    def epsilon_each(self) -> Fraction:
        """Return the epsilon of one randomised answer: that of a ballot, or an equal part of it."""
        return self.epsilon / len(self.questions) if self.budget == "split" else self.epsilon

    @property
    def asked_each(self) -> int:
        """Return the number of questions that one ballot answers."""
        return len(self.questions) if self.budget == "split" else 1

    def text(self) -> str:
        """Return the survey definition as canonical JSON text."""
        return canonical(self.shape())

    def shape(self) -> dict[str, object]:
        """Return the survey definition as plain JSON values; fractions become strings."""
        made: dict[str, object] = {
            "format": self.format,
            "title": self.title,
            "about": self.about,
            "asks": self.asks,
            "questions": [_question_shape(question) for question in self.questions],
            "epsilon": str(self.epsilon),
            "budget": self.budget,
            "people": self.people,
            "minimum": self.minimum,
            "opens": self.opens.isoformat(),
            "closes": self.closes.isoformat(),
            "lifetime": str(self.lifetime),
            "series": self.series,
            "paper": self.paper,
        }
        return made if self.format == 1 else made | {"ever": str(self.ever or "")}

    def is_open(self, day: date) -> bool:
        """Return True if the survey accepts ballots on this day."""
        return self.opens <= day <= self.closes


def id_of(text: str) -> str:
    """Return a survey's id: a base32 SHA-256 prefix of its published text."""
    digest = hashlib.sha256(_DOMAIN + text.encode()).digest()[:_ID_BYTES]
    return base64.b32encode(digest).decode("ascii").lower()


def read_survey(shape: object) -> Survey:
    """Parse and validate a survey definition from JSON; refuse an invalid one."""
    table = _table(shape, "the survey", _SURVEY)
    number = table.get("format", FORMAT)
    if type(number) is not int or number not in FORMATS:
        raise bad_survey(f"this version reads the formats {FORMATS[0]} to {FORMATS[-1]}")
    listed = table.get("questions")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_QUESTIONS:
        raise bad_survey(f"a survey must have 1 to {MAX_QUESTIONS} questions")
    questions = tuple(_question(one, f"q{number}") for number, one in enumerate(listed, start=1))
    if len({question.id for question in questions}) != len(questions):
        raise bad_survey("every question needs an id of its own")
    if len({replace(question, id="") for question in questions}) != len(questions):
        # Identical questions would share a memo, so the same noise: their two correlated reports
        # would cost more than two epsilons.
        raise bad_survey("two questions must differ in more than their ids")
    made = Survey(
        title=_text(table, "title", 200),
        about=_text(table, "about", 2000, "", lines=True),
        asks=_text(table, "asks", 200),
        questions=questions,
        epsilon=_epsilon(table, "epsilon"),
        budget=cast("Budget", _word(table, "budget", BUDGETS, "split")),
        people=_whole(table, "people", 1, 10**8),
        minimum=_whole(table, "minimum", FEWEST, 10**8, 50),
        opens=_day(table, "opens"),
        closes=_day(table, "closes"),
        lifetime=_lifetime(table),
        series=_text(table, "series", 100, ""),
        paper=_flag(table, "paper"),
        ever=None if table.get("ever") in (None, "") else _epsilon(table, "ever"),
        format=number,
    )
    if made.closes < made.opens:
        raise bad_survey("a survey cannot close before it opens")
    if any(question.is_required for question in questions) and (made.paper or made.format == 1):
        raise bad_survey("with dice, and in format 1, “no answer” is always allowed")
    if made.paper and (made.budget != "split" or not all(map(_fits_dice, questions))):
        raise bad_survey(
            "on paper every question is asked, and each must be yes or no, or a choice of "
            f"{MAX_THROWN} at most"
        )
    if made.ever is not None and (not made.series or made.paper or made.format == 1):
        raise bad_survey("ever is for the waves of a series, not for dice")
    if made.ever is not None and made.ever < made.epsilon:
        raise bad_survey(
            "ever is the privacy loss of all waves together, so it cannot be less than epsilon"
        )
    if made.lifetime < made.epsilon:
        raise bad_survey(
            "lifetime is the privacy loss that one person may have in all, so it cannot be less "
            "than epsilon"
        )
    return made


def _fits_dice(question: Question) -> bool:
    return question.kind == "yes-no" or (
        question.kind == "choice" and len(question.options) <= MAX_THROWN
    )


def bad_survey(what: str) -> Refused:
    """Return the refusal of an invalid survey definition."""
    return Refused(
        "bad-survey",
        f"{what[0].upper()}{what[1:]}.",
        "Correct the survey's design, and send it again.",
    )


_SURVEY: Final = frozenset(
    {
        "format", "title", "about", "asks", "questions", "epsilon", "budget", "people", "minimum",
        "opens", "closes", "lifetime", "series", "paper", "ever",
    }
)  # fmt: skip
_QUESTION: Final = frozenset({"id", "text", "kind", "options", "low", "high", "unit", "required"})


def _question_shape(question: Question) -> dict[str, object]:
    made: dict[str, object] = {"id": question.id, "text": question.text, "kind": question.kind}
    if question.options:
        made["options"] = list(question.options)
    if question.kind == "number":
        made |= {"low": question.low, "high": question.high, "unit": question.unit}
    if question.is_required:  # included only if true, so that the ids of older texts do not change
        made["required"] = True
    return made


def _question(shape: object, name: str) -> Question:
    table = _table(shape, name, _QUESTION)
    kind = cast("Kind", _word(table, "kind", KINDS, None))
    is_required = _flag(table, "required")
    if is_required and kind not in REQUIRABLE:
        raise bad_survey(f"{name}: only a yes-no or a choice can be required")
    made = Question(
        _text(table, "id", 40, name), _text(table, "text", 500), kind, is_required=is_required
    )
    if kind == "number":
        low = _whole(table, "low", -LARGEST_NUMBER, LARGEST_NUMBER)
        high = _whole(table, "high", -LARGEST_NUMBER, LARGEST_NUMBER)
        if high <= low:
            raise bad_survey(f"{name}: high is above low")
        return replace(made, low=low, high=high, unit=_text(table, "unit", 40, ""))
    if kind == "yes-no":
        if table.get("options"):
            raise bad_survey(f"{name}: a yes or no takes no options")
        return made
    return replace(made, options=_options(table, name, kind))


def _options(table: Mapping[str, object], name: str, kind: str) -> tuple[str, ...]:
    options = table.get("options")
    most = MAX_RANKED if kind == "ranking" else MAX_OPTIONS
    if not isinstance(options, list) or not 2 <= len(options) <= most:
        raise bad_survey(f"{name}: a {kind} needs 2 to {most} options")
    made = tuple(_text({"option": one}, "option", 200) for one in options)
    if len(set(made)) != len(made) or NO_ANSWER in made:
        raise bad_survey(
            f"{name}: options must differ, and must not be {NO_ANSWER!r}, which is added "
            "automatically"
        )
    return made


def _table(shape: object, name: str, known: frozenset[str]) -> Mapping[str, object]:
    if not isinstance(shape, Mapping):
        raise bad_survey(f"{name} must be an object")
    unknown = sorted(str(key) for key in set(shape) - known)
    if unknown:
        raise bad_survey(f"{name} has an unknown field {unknown[0][:40]!r}")
    return shape


def _text(
    table: Mapping[str, object],
    key: str,
    longest: int,
    otherwise: str | None = None,
    *,
    lines: bool = False,
) -> str:
    value = table.get(key, otherwise)
    if value == "" and otherwise == "":
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= longest or value != value.strip():
        raise bad_survey(f"{key} must be a text of 1 to {longest} letters")
    if not all(part.isprintable() for part in (value.split("\n") if lines else [value])):
        raise bad_survey(f"{key} has letters that cannot be printed")
    return value


def _word(table: Mapping[str, object], key: str, known: tuple[str, ...], other: str | None) -> str:
    value = table.get(key, other)
    if not isinstance(value, str) or value not in known:
        raise bad_survey(f"{key} must be one of {', '.join(known)}")
    return value


def _whole(
    table: Mapping[str, object], key: str, least: int, most: int, otherwise: int | None = None
) -> int:
    value = table.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise bad_survey(f"{key} must be a whole number from {least} to {most}")
    return value


def _flag(table: Mapping[str, object], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise bad_survey(f"{key} must be true or false")
    return value


def _day(table: Mapping[str, object], key: str) -> date:
    value = table.get(key)
    try:
        read = date.fromisoformat(value) if isinstance(value, str) and len(value) == 10 else None
    except ValueError:
        read = None
    if read is None:
        raise bad_survey(f"{key} must be a day such as 2027-03-01")
    return read


def _epsilon(table: Mapping[str, object], key: str) -> Fraction:
    value = table.get(key)
    exact = read_epsilon(_number(value), key)
    if not SMALLEST <= exact <= LARGEST:
        raise bad_survey(f"{key} must be between {float(SMALLEST)} and {int(LARGEST)}")
    return exact


def _lifetime(table: Mapping[str, object]) -> Fraction:
    if table.get("lifetime") is None:
        return _epsilon(table, "epsilon")
    return _epsilon({"lifetime": _number(table["lifetime"])}, "lifetime")


def _number(value: object) -> object:
    """Convert a text such as "1/2" or "0.1" in a survey definition to an exact number.

    A text that is no number is returned unchanged; a later check refuses it.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= 40 or not value.isascii():
        return value
    above, _, below = value.partition("/")
    if below and above.isdecimal() and below.isdecimal() and int(below):
        return Fraction(int(above), int(below))
    try:
        return Decimal(value)
    except ArithmeticError:
        return value
