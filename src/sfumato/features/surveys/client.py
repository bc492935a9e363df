"""Surveys in Python: design, preview, simulate and publish a survey.

`sfumato.local_survey(design)` needs no vault. A simulation runs the same randomisers as the
respondents' devices on synthetic people, so its errors are those to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.client.ask_terms import Json
from sfumato.dp.local.frequency_estimation import estimate, variances
from sfumato.dp.local.frequency_oracle import simulate
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.random_words import PARTS, among, drawn
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys.blind_signatures import PublicKey
from sfumato.features.surveys.estimation import Estimate, Expected, expected, results, tried
from sfumato.features.surveys.model import Question, Survey, read_survey
from sfumato.features.surveys.randomisation import NUMBERS, kept_of
from sfumato.features.surveys.randomised_report import Published
from sfumato.features.surveys.respondent_client import Coins, ServerConnection
from sfumato.features.surveys.tally import Tally

Draw = Callable[[int], bytes]
Shares = Mapping[str, float]  # answer -> the share of people who would give it


@dataclass(frozen=True)
class Simulated:
    """The simulation of one answer: its true share, its share in the reports, and the estimate."""

    question: str
    answer: str
    truth: float  # the true share among the synthetic people
    observed: float  # the share in the randomised reports, before estimation
    estimate: Estimate

    def __str__(self) -> str:
        back = self.estimate
        return (
            f"{self.question}, {self.answer}: {self.truth:.1%} is so -> {self.observed:.1%} was "
            f"said -> {share_in_words(back.value)} comes back ({back.low:.1%} to {back.high:.1%})"
        )


def nearest_share(value: float) -> float:
    """Clamp an estimated share to 0..1. The unbiased estimate can be outside that range."""
    return min(1.0, max(0.0, value))


def share_in_words(value: float) -> str:
    """Format an estimated share clamped to 0..1; if that changes it, add the unbiased estimate."""
    nearest = nearest_share(value)
    return f"{nearest:.1%}" + ("" if nearest == value else f" (cut from {value:.1%})")


@dataclass(frozen=True)
class LocalSurvey:
    """A survey design: validated, with its epsilon, ready to simulate or publish."""

    design: Mapping[str, object]
    draw: Draw

    def __post_init__(self) -> None:
        _ = self.epsilon  # refuses an invalid design

    @property
    def epsilon(self) -> float:
        """Return the epsilon of one whole ballot, over all questions that it answers."""
        return float(self._drawn.epsilon)

    @property
    def expected(self) -> tuple[Expected, ...]:
        """Return the expected error of each question, for the expected number of people."""
        return expected(self._drawn.survey)

    @property
    def tried(self) -> tuple[tuple[Fraction, tuple[Expected, ...]], ...]:
        """Return the expected errors of all questions at several other epsilons, to choose from."""
        return tried(self._drawn.survey)

    def simulate(self, shares: Mapping[str, Shares], people: int | None = None) -> list[Simulated]:
        """Simulate the survey on synthetic people.

        Args:
            shares: For each question id, the share of people who give each answer; the rest give
                no answer.
            people: The number of people; by default the number that the design expects.

        Returns:
            For each answer: the true share, the randomised share, and the estimate.

        Raises:
            Refused: `bad-survey` for unknown questions or answers, or invalid shares; `bad-request`
                for too few people.
        """
        made = self._drawn
        size = made.survey.people if people is None else people
        _check_simulated(made.survey, shares, size)
        counts, truths, seen = [], [], []
        for number, question in enumerate(made.survey.questions):
            asked = size if made.survey.budget == "split" else size // len(made.survey.questions)
            told = self._told(question, shares.get(question.id, {}), asked)
            coin = made.coins[number]
            if isinstance(coin, NUMBERS):
                raise Bug("a number was simulated as an answer")
            tally = simulate(coin, told, Coins(self.draw))
            counts.append((kept_of(coin, asked, tally.counts),))
            truths.append(np.bincount(told, minlength=question.categories) / asked)
            seen.append(tally.counts / asked)
        found = results(made, Tally(size, tuple(counts)))
        return [
            Simulated(one.question.id, e.label, float(t), float(s), e)
            for one, truth, said in zip(found, truths, seen, strict=True)
            for e, t, s in zip(one.estimates, truth, said, strict=True)
        ]

    def publish(self, house: ServerConnection) -> Json:
        """Publish the survey, after which its questions and randomisers never change.

        Args:
            house: The vault to publish in.

        Returns:
            The published survey; its id is its link.

        Raises:
            Refused: `not-allowed` if you may not publish.
        """
        return house.call("publish-survey", {"survey": dict(self.design)})

    @property
    def _drawn(self) -> Published:
        return Published(read_survey(dict(self.design)), PublicKey(1, 1))

    def _told(self, question: Question, shares: Shares, people: int) -> np.ndarray:
        """Draw the true answers of synthetic people to one question, in the shares that are given.

        Refuse shares that do not suit the question, or that sum to more than 1.
        """
        if question.kind not in ("yes-no", "choice"):
            raise Refused(
                "bad-survey",
                f"A simulation supports only yes-or-no and choice questions, and {question.id} "
                "is of another kind.",
                "Simulate its respondents with sfumato.features.surveys.respondent_client.Device.",
            )
        words = question.words
        unknown = sorted(set(shares) - set(words))
        if unknown or min(shares.values(), default=0) < 0 or sum(shares.values()) > 1 + 1e-9:
            raise Refused(
                "bad-survey",
                f"The shares of {question.id} must be of the answers {', '.join(words)}, not "
                "negative, and at most 1 together.",
                "Give each answer a share, such as 0.3.",
            )
        if question.is_required and sum(shares.values()) < 1 - 1e-9:
            raise Refused(
                "bad-survey",
                f"The shares of {question.id} add up to less than 1, but this question cannot be "
                "left out.",
                "Give this question shares that add up to 1.",
            )
        ends = np.cumsum([shares.get(word, 0.0) for word in words[:-1]])
        spots = among(drawn(Coins(self.draw), 1, people)[0], 1 << 20) / (1 << 20)
        return np.searchsorted(ends, spots, side="right").astype(np.int64)


def _check_simulated(survey: Survey, shares: Mapping[str, Shares], people: int) -> None:
    unknown = sorted(set(shares) - {question.id for question in survey.questions})
    if unknown:
        raise Refused(
            "bad-survey",
            f"The survey has no question with the id {unknown[0]!r}.",
            "Name the shares by the ids of the survey's questions.",
        )
    asked = 1 if survey.budget == "split" else len(survey.questions)
    if people < 2 * asked:
        raise Refused(
            "bad-request",
            f"A simulation of this survey with {people} people is too small to estimate anything.",
            f"Simulate at least {2 * asked} people.",
        )


@dataclass(frozen=True)
class Coin:
    """The result of a two-coin simulation: the true share of yes, its estimate, and the error."""

    truth: float
    observed: float
    value: float
    low: float
    high: float
    epsilon: float
    error: float  # half the width of a 95 % interval at this share


def two_coins(share: float, people: int, epsilon: Fraction | None, draw: Draw) -> Coin:
    """Simulate randomised response with two coins, for a question of yes or no.

    Heads of the first coin: the truth. Tails: what the second coin says.

    Args:
        share: The true share of yes.
        people: How many people.
        epsilon: The epsilon of an answer; if None, both coins are fair.
        draw: A source of random bytes.

    Returns:
        The true share, the randomised share, and the estimate with its 95 % interval.

    Raises:
        Refused: `bad-request` for a share outside 0 to 1, or fewer than two people.
    """
    if not (0 <= share <= 1 and people >= 2):
        raise Refused(
            "bad-request",
            "The share must be from 0 to 1, and the number of people at least 2.",
            "Give numbers in these ranges, for example 0.3 and 1,000.",
        )
    coin = KAry(2, PARTS // 2) if epsilon is None else KAry.within(2, epsilon)
    yes = round(share * people)
    told = np.concatenate([np.zeros(yes, np.int64), np.ones(people - yes, np.int64)])
    tally = simulate(coin, told, Coins(draw))
    found = estimate(tally)
    return Coin(
        yes / people,
        float(tally.counts[0] / people),
        float(found.shares[0]),
        float(found.low[0]),
        float(found.high[0]),
        float(coin.epsilon),
        1.96 * float(np.sqrt(variances(coin, np.array([share, 1 - share]), people)[0])),
    )


def invite(house: ServerConnection, survey: str, who: int | Sequence[str]) -> list[str]:
    """Create invitation codes; they are shown only once.

    Args:
        house: The vault that has the survey.
        survey: The id of the survey.
        who: How many codes, or the names of people to invite.

    Returns:
        The codes.

    Raises:
        Refused: `survey-unknown` for a survey that is not yours.
    """
    asked: Json = {"count": who} if isinstance(who, int) else {"people": list(who)}
    made = house.call("invite-to-survey", {"survey": survey, **asked}).get("codes")
    return [str(code) for code in made] if isinstance(made, list) else []


def reports(house: ServerConnection, survey: str) -> list[tuple[str, str]]:
    """Return all randomised reports of a survey.

    Args:
        house: The vault that has the survey.
        survey: The id of the survey.

    Returns:
        The mark (code by which a respondent finds their report) and the text of each report.

    Raises:
        Refused: `survey-unknown`, or `service-down` for a reply that is no page of reports.
    """
    found: list[tuple[str, str]] = []
    asked: Json = {"survey": survey}
    while True:
        page = house.call("survey-reports", asked)
        listed, after = page.get("reports"), page.get("next")
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise Refused(
                "service-down",
                "The service's reply is not a list of the survey's reports.",
                "Try again later, or check that the address is a sfumato service.",
            )
        found += [(str(one.get("mark")), str(one.get("said"))) for one in listed]
        if after is None or not listed:
            return found
        asked = {"survey": survey, "after": after}
