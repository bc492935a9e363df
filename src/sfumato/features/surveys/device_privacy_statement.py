"""Tell respondents what can be learnt about them, computed on their own device.

The published text contains the randomisers, and the survey's id is the digest of that text. So the
device needs no statement from the server, and uses none.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any, Final

from sfumato.features.surveys.privacy_statement import posterior_percent, privacy_statement
from sfumato.features.surveys.randomised_report import Published
from sfumato.features.surveys.schema import WEAK

_NOT_HIDDEN: Final = (
    "Not hidden: that you were invited, and, to whoever runs the house, that your invitation was "
    "used, on which day, and that a device at your network address has sent something."
)


def device_privacy_statement(made: Published) -> list[str]:
    """Return the privacy statement of one ballot, line by line, as on the respondent's page.

    It contains no text by the survey's owner, because that could imitate the device's own text. So
    questions have numbers.
    """
    told = privacy_statement(_without_their_words(made))
    is_drawn = made.survey.asked_each < len(made.survey.questions)
    drawn = f", and draws one of the {told['of']} questions to answer" if is_drawn else ""
    return [
        f"This ballot gives away epsilon {_up(made.epsilon)} at most. Your answers stay on this "
        f"device: it flips coins{drawn}, and sends what the coins have made of them.",
        *(f"Question {n}: {_odds(odds)}" for n, odds in enumerate(_each(told), start=1)),
        *_guesses(made, told),
        *_of_series(made, told),
        _NOT_HIDDEN,
        adds_up(made),
    ]


def adds_up(made: Published) -> str:
    """Return the sentence that tells respondents who sums up their epsilon over several surveys."""
    return (
        "The house adds up what you give away only if it invited you by name: then over all "
        f"surveys of this owner, up to epsilon {_up(made.survey.lifetime)}. An invitation without "
        "a name is a person of its own to it, and only your device knows your sum."
    )


def summed(spent: Fraction) -> str:
    """Return the sentence on everything this device has reported, with the total epsilon `spent`.

    It says how sure somebody could become of a fact about the person from all reports.
    """
    return (
        f"In all surveys that were answered with this device: epsilon {_up(spent)}. Somebody who "
        "saw every report of yours, and knew it for yours, could become "
        f"{_out_of(posterior_percent(spent))} sure of something that they held for 50 to 50."
    )


def _without_their_words(made: Published) -> Published:
    questions = tuple(replace(question, unit="") for question in made.survey.questions)
    return Published(replace(made.survey, questions=questions), made.key, made.coins)


def _each(told: dict[str, object]) -> list[dict[str, Any]]:
    odds: Any = told["questions"]  # Any: JSON values
    return list(odds)


def _odds(one: dict[str, Any]) -> str:  # Any: as above
    """Say of 100 people how many have their true answer reported, and what others report.

    The sentence also says what a report is, if it is not simply one of the answers.
    """
    if one["ways"]:
        whose = "have their own answer sent"
        among = "" if one["required"] else ", “no answer” among them"
        chance = f"pick one of all {one['ways']} answers{among}"
    else:
        whose = "have their own answer in what is sent, on purpose"
        chance = "pick what is sent without a look at the answer"
    sent = f" What is sent is {one['sent']}." if one["sent"] else ""
    if one["told"] >= 100:
        return f"Of 100 people, nearly all {whose}; for fewer than one the coins {chance}.{sent}"
    of = f"Of 100 people, {one['told']} {whose}; for the other {one['chance']} the coins {chance}."
    return f"{of}{sent}"


def _guesses(made: Published, told: dict[str, object]) -> list[str]:
    each = max(one["guess"] for one in _each(told))
    weak = (
        "The coins hide little here. Whoever sees what is sent in your name can be nearly sure "
        "that it is your own answer: leave out what must stay yours alone."
        if each > WEAK
        else "Whatever is sent in your name, it may have been the coins. Nobody can hold it "
        "against you."
    )
    asked = made.survey.asked_each
    ballot = (
        f"; of something that all {asked} answers together would tell, {_out_of(told['guess'])}"
        if asked > 1
        else ""
    )
    lasts = (
        "for this survey by itself."
        if made.survey.series
        else "for ever. The same question in another survey is a new draw, and adds up."
    )
    return [
        weak,
        "Somebody who does not know your answer to a question, 50 to 50, can become "
        f"{_out_of(each)} sure of it, not more{ballot}. That holds whatever else they know, "
        f"{lasts}",
    ]


def _of_series(made: Published, told: dict[str, object]) -> list[str]:
    if not made.survey.series:
        return []
    if made.survey.ever is not None:
        return [
            "This is one wave of a series. All waves together, as long as your answers stay the "
            f"same, can make nobody more than {_out_of(told['ever'])} sure of them. Answers that "
            "change add up."
        ]
    return [
        "This is one of a series. To the same question with the same coins the same answer is sent "
        "the same way each time; asked otherwise, it is a new draw, and adds up. If two such "
        "reports are known for yours and differ, your answer has changed, and that was not the "
        "coins. Answers that change add up."
    ]


def _out_of(sure: object) -> str:
    return f"{sure} in 100"


def _up(epsilon: Fraction) -> str:
    return f"{ceil(100 * epsilon) / 100:.2f}"
