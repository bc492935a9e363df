"""Compute a survey's privacy statement for respondents; page, CLI and API show the same one."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, exp, floor, log10
from typing import Final

from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.subset_selection import Subset
from sfumato.features.surveys.model import Question
from sfumato.features.surveys.randomisation import (
    QuestionRandomiser,
    grid_step_width,
    sides_of,
    told_of,
)
from sfumato.features.surveys.randomised_report import Published

_DRAWN: Final = {  # the draw does not depend on the answer (soundness rule 31)
    "several": "about one option alone, which your device draws: yes, no or “no answer”",
    "ranking": "about one pair alone, which your device draws: which of the two comes first, or "
    "“no answer”",
}


def privacy_statement(made: Published) -> dict[str, object]:
    """Compute the privacy statement as JSON: how often reports are true, how sure a guess is."""
    survey = made.survey
    return {
        "epsilon": float(made.epsilon),
        "lifetime": float(survey.lifetime),
        "asked": survey.asked_each,
        "of": len(survey.questions),
        "guess": posterior_percent(made.epsilon),
        "questions": [
            _odds(question, coin, survey.paper)
            for question, coin in zip(survey.questions, made.coins, strict=True)
        ],
        "ever": posterior_percent(survey.ever) if survey.ever is not None else None,
    }


def _odds(question: Question, coin: QuestionRandomiser, paper: bool) -> dict[str, object]:
    """Return one question's part of the statement: of 100 reports, how many follow the true answer.

    The others follow chance alone.
    """
    told = ceil(100 * told_of(coin))  # every figure that a respondent relies on is rounded up
    return {
        "id": question.id,
        "told": told,
        "chance": 100 - told,
        "ways": coin.size if isinstance(coin, KAry | PermanentResponse) else None,
        "sent": _sent(question, coin),
        "required": question.is_required,
        "epsilon": float(coin.epsilon),
        "guess": posterior_percent(coin.epsilon),
        "sides": sides_of(coin) if paper and isinstance(coin, KAry) else None,
    }


def _sent(question: Question, coin: QuestionRandomiser) -> str:
    """Return the words for what is sent, if a report is not simply one of the answers, else ""."""
    if question.kind in _DRAWN:
        return _DRAWN[question.kind]
    if isinstance(coin, KAry | PermanentResponse) and question.kind != "number":
        return ""
    if isinstance(coin, Subset):
        some = round(coin.chosen * coin.size / coin.field)
        among = "" if question.is_required else ", “no answer” among them"
        return f"a list of about {max(1, some)} of the {coin.size} answers{among}"
    if isinstance(coin, Piecewise):
        return _stretch(question, coin.window)
    if isinstance(coin, KAry | PermanentResponse) or not hasattr(coin, "window"):
        return "the lowest or the highest number, or “no answer”"
    return f"{_stretch(question, coin.window)}; at times only the lowest or the highest number"


def _stretch(question: Question, window: int) -> str:
    wide = grid_step_width(question) * (window - 1)
    unit = f" {question.unit}" if question.unit else ""
    return f"a stretch of {wide:,}{unit}, or “no answer”" if wide else "a number, or “no answer”"


def posterior_percent(epsilon: Fraction) -> float:
    """Return how sure a guess can get, in per cent: the largest posterior for a prior of 50 %.

    It is 100 / (1 + exp(-epsilon)), rounded up. Above 99 it gets as many digits as it needs to stay
    below 100.
    """
    left = 100 / (1 + exp(float(epsilon)))
    if left >= 1:
        return ceil(100 - left)
    digits = max(1, ceil(-log10(left)))
    parts = 10.0**digits
    return round(100 - floor(left * parts) / parts, digits)
