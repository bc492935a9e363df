"""The replies to submitted reports; none contains anything about the sender."""

from __future__ import annotations

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.surveys.ports import Ballot, TakeResult
from sfumato.features.surveys.randomised_report import mark_of


def outcome(ballot: Ballot, taken: TakeResult) -> Json | Refused:
    """Return the reply or refusal to a submitted report, from the outcome of counting it."""
    match taken:
        case "counted" | "already":
            when = "now" if taken == "counted" else "before"
            return {"counted": when, "mark": mark_of(ballot.token, ballot.said)}
        case "spent":
            return Refused(
                "ballot-spent",
                "A report was already counted for this ballot token.",
                "There is nothing to do: each person has one ballot, and the first report counts.",
            )
        case "closed":
            return not_open()


def not_open() -> Refused:
    """Return the refusal of a ballot before the survey opens or after it closes."""
    return Refused(
        "survey-not-open",
        "This survey is not open: it has not begun, or it is closed.",
        "Look on the survey's page at which days it is open.",
    )
