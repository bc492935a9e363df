"""Requests and replies of the survey verbs (API operations)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from sfumato.wire.schema import Name, Reply, Request, items, letters, needed

# In 100: above this certainty the privacy statement no longer says that reports are deniable.
WEAK: Final = 95
Long = Annotated[str, letters(1000)]
Code = Annotated[str, letters(40, "An invitation code.")]


class DraftSurvey(Request, frozen=True, kw_only=True):
    """A request with a draft survey, to preview or publish it."""

    survey: Annotated[Any, needed(dict[str, Any])] = None


class OneSurvey(Request, frozen=True, kw_only=True):
    """A request about one survey, by its id."""

    survey: Name


class InviteToSurvey(OneSurvey, frozen=True, kw_only=True):
    """A request for invitations to a survey: how many to make, or for whom."""

    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    people: Annotated[list[Name], items(1000)] | None = None


class BlindedToken(OneSurvey, frozen=True, kw_only=True):
    """A request to sign a ballot token unseen (blind signature), and its invitation."""

    invitation: Code
    blinded: Long


class Submission(OneSurvey, frozen=True, kw_only=True):
    """A randomised report as received, with the ballot token that it spends."""

    token: Annotated[str, letters(100)]
    signature: Long
    said: Annotated[str, letters(1000, "The randomised report.")]


class Sheet(OneSurvey, frozen=True, kw_only=True):
    """A report that a respondent made with dice, and their invitation."""

    invitation: Code
    said: Long


class EstimatesOf(OneSurvey, frozen=True, kw_only=True):
    """A request for the estimated results of a survey."""

    shares: Annotated[
        Annotated[str, letters(20)] | None,
        Meta(description="`add-up` makes shares add up to 1."),
    ] = None


class PageOfReports(OneSurvey, frozen=True, kw_only=True):
    """A request for one page of a survey's published reports."""

    after: Annotated[Name | None, Meta(description="The `next` of the previous page.")] = None


class SurveyState(Reply):
    """A survey in the owner's list: its state, days, epsilon and number of reports."""

    survey: Name
    title: Name
    state: Name
    opens: Name
    closes: Name
    epsilon: float
    guarantee: Name
    invited: int
    reports: int


class Surveys(Reply):
    """The reply with all surveys of the caller."""

    surveys: list[SurveyState]


class SurveyPreview(Reply):
    """The epsilon and the privacy statement of a draft survey, with its expected errors."""

    epsilon: float
    promise: dict[str, Any]
    expected: list[dict[str, Any]]


class Invitations(Reply):
    """New invitation codes, which are shown once."""

    survey: Name
    codes: list[Name]


class PublishedSurvey(Reply):
    """A survey as it was published; its id is the digest of the text."""

    survey: Name
    text: Annotated[str, letters(1_000_000)]
    state: Name
    promise: dict[str, Any]
    proof: list[Long]


class SignedToken(Reply):
    """The reply with the blind signature of a ballot token."""

    signed: Long


class CountedReport(Reply):
    """The reply to a counted report: when it was counted, and the mark by which to find it."""

    counted: Name
    mark: Name


class Estimates(Reply):
    """The estimated results of a survey, with intervals, once there are enough reports."""

    survey: Name
    enough: bool
    reports: int
    questions: list[dict[str, Any]]


class Reports(Reply):
    """A page of a survey's randomised reports, whose order says nothing about time."""

    survey: Name
    reports: list[Any]
    next: str | None
