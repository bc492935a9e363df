"""The verbs (API operations) of surveys: the owner's, and the open ones without a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.surveys.schema import (
    BlindedToken,
    CountedReport,
    DraftSurvey,
    Estimates,
    EstimatesOf,
    Invitations,
    InviteToSurvey,
    OneSurvey,
    PageOfReports,
    PublishedSurvey,
    Reports,
    Sheet,
    SignedToken,
    Submission,
    SurveyPreview,
    Surveys,
    SurveyState,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.surveys import service
    from sfumato.vault.users import Caller

SURVEY_VERBS: Final = Verbs()
_ONE: Final = "/v1/surveys/{survey}"
_BAD: Final = ("bad-survey", "bad-budget")
_LEDGER: Final = ("ledger-frozen", "anchor-missing")


class Services(Protocol):
    """The interface of the services that the survey verbs use."""

    @property
    def surveys(self) -> service.Surveys:
        """Return the survey service of the vault."""
        ...


@SURVEY_VERBS.verb("surveys", "GET", "/v1/surveys", "own", Empty, Surveys)
def surveys(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List your surveys."""
    return {"surveys": services.surveys.of(caller)}


@SURVEY_VERBS.verb(
    "preview-survey", "POST", "/v1/survey-preview", "own", DraftSurvey, SurveyPreview,
    refusals=_BAD,
)  # fmt: skip
def preview_survey(services: Services, caller: Caller, asked: DraftSurvey) -> Json:
    """Return what a ballot would reveal and how accurate the results would be; store nothing."""
    return services.surveys.preview(caller, asked.survey)


@SURVEY_VERBS.verb(
    "publish-survey", "POST", "/v1/surveys", "own", DraftSurvey, SurveyState,
    refusals=(*_BAD, *_LEDGER),
)  # fmt: skip
def publish_survey(services: Services, caller: Caller, asked: DraftSurvey) -> Json:
    """Publish a survey: its questions, its randomisation and its key never change."""
    return services.surveys.publish(caller, asked.survey)


@SURVEY_VERBS.verb(
    "invite-to-survey", "POST", f"{_ONE}/invitations", "own", InviteToSurvey, Invitations,
    refusals=("survey-unknown", "survey-not-open", *_LEDGER),
)  # fmt: skip
def invite_to_survey(services: Services, caller: Caller, asked: InviteToSurvey) -> Json:
    """Make invitation codes for a survey; they are shown this once, and each gives one ballot."""
    return services.surveys.invite(caller, asked.survey, asked.count, asked.people)


@SURVEY_VERBS.verb(
    "close-survey", "POST", f"{_ONE}/close", "own", OneSurvey, SurveyState,
    refusals=("survey-unknown", *_LEDGER),
)  # fmt: skip
def close_survey(services: Services, caller: Caller, asked: OneSurvey) -> Json:
    """Close a survey: accept no more ballots, and publish every report that was received."""
    return services.surveys.close(caller, asked.survey)


@SURVEY_VERBS.open_verb(
    "survey", "GET", _ONE, OneSurvey, PublishedSurvey, refusals=("survey-unknown", *_LEDGER)
)
def survey(services: Services, _address: str, asked: OneSurvey) -> Json:
    """Return a survey as it was published; its id is the digest of this text."""
    return services.surveys.definition(asked.survey)


@SURVEY_VERBS.open_verb(
    "survey-token", "POST", f"{_ONE}/tokens", BlindedToken, SignedToken,
    refusals=(
        "survey-unknown", "survey-not-open", "invitation-unknown", "invitation-used",
        "budget-exceeded", *_LEDGER,
    ),
)  # fmt: skip
def sign_ballot_token(services: Services, _address: str, asked: BlindedToken) -> Json:
    """Sign a blinded ballot token, once for each invitation."""
    return services.surveys.issue(asked.survey, asked.invitation, asked.blinded)


@SURVEY_VERBS.open_verb(
    "survey-report", "POST", f"{_ONE}/reports", Submission, CountedReport,
    refusals=(
        "survey-unknown", "survey-not-open", "bad-report", "ballot-forged", "ballot-spent",
        *_LEDGER,
    ),
)  # fmt: skip
def submit_report(services: Services, _address: str, asked: Submission) -> Json:
    """Count a randomised report; its ballot token is spent, and nobody is asked who they are."""
    return services.surveys.report(asked)


@SURVEY_VERBS.open_verb(
    "survey-sheet", "POST", f"{_ONE}/sheets", Sheet, CountedReport,
    refusals=(
        "survey-unknown", "survey-not-open", "bad-report", "invitation-unknown",
        "invitation-used", "budget-exceeded", *_LEDGER,
    ),
)  # fmt: skip
def submit_sheet(services: Services, _address: str, asked: Sheet) -> Json:
    """Count a report that a respondent made with dice, under their invitation; needs no script."""
    return services.surveys.sheet(asked.survey, asked.invitation, asked.said)


@SURVEY_VERBS.open_verb(
    "survey-estimates", "GET", f"{_ONE}/estimates", EstimatesOf, Estimates,
    refusals=("survey-unknown", *_LEDGER),
)  # fmt: skip
def survey_estimates(services: Services, _address: str, asked: EstimatesOf) -> Json:
    """Return a survey's estimated results with intervals, once there are enough reports."""
    return services.surveys.estimates(asked.survey, asked.shares)


@SURVEY_VERBS.open_verb(
    "survey-reports", "GET", f"{_ONE}/reports", PageOfReports, Reports,
    refusals=("survey-unknown", *_LEDGER),
)  # fmt: skip
def survey_reports(services: Services, _address: str, asked: PageOfReports) -> Json:
    """Return the randomised reports, which anybody may read, in no order of time."""
    return services.surveys.reports(asked.survey, asked.after)
