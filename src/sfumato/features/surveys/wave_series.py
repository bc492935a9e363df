"""Check that all waves (repeated surveys) of a series with `ever` ask the same questions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.model import bad_survey
from sfumato.features.surveys.randomised_report import (
    Published,
    is_of_one_series,
    is_wave_beside,
    read_published,
)
from sfumato.vault.hash_chain import canonical


def is_beside_all(made: Published, texts: Iterable[str]) -> bool:
    """Return True if a survey may be a wave of its series, next to all published waves.

    `texts` are the published texts of all surveys.
    """
    series = canonical(made.survey.series)
    named = (kept_survey(text) for text in texts if series in text)
    others = [other for other in named if is_of_one_series(made, other)]
    return all(is_wave_beside(made, other) for other in others)


def asks_otherwise() -> Refused:
    """Return the refusal of a wave (survey of a series) that asks differently from other waves."""
    return bad_survey(
        "all waves of a series with ever must ask the same questions with the same ever; give "
        "this one its own series"
    )


@lru_cache(maxsize=256)
def kept_survey(text: str) -> Published:
    """Parse a stored survey's text; the result is cached, because a survey never changes."""
    return read_published(text)
