"""Surveys for tests: designs, respondents, and a house to send them to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sfumato.features.surveys.randomised_report import Truth
from sfumato.features.surveys.respondent_client import Device
from sfumato.system.randomness import SystemRandomSource

DICE: Final = SystemRandomSource()


def day(after: int) -> str:
    """Return a day, so many after today."""
    return (datetime.now(UTC) + timedelta(days=after)).date().isoformat()


def design(**changed: Any) -> dict[str, Any]:
    """Return a survey of two questions that is open."""
    return {
        "title": "How we work",
        "about": "For the works council's report.",
        "asks": "The works council",
        "questions": [
            {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"},
            {
                "id": "way",
                "text": "How do you come to work?",
                "kind": "choice",
                "options": ["on foot", "by bus", "by car"],
            },
        ],
        "epsilon": 2,
        "budget": "split",
        "people": 200,
        "minimum": 50,
        "opens": day(-1),
        "closes": day(30),
        **changed,
    }


def device() -> Device:
    """Return a device of a new respondent, who remembers what was answered while it is there."""
    return Device.new(DICE.draw, waves={})


TRUTHS: Final[Mapping[str, Truth]] = {"smokes": True, "way": "by bus"}
