"""HTTP routes of surveys: an owner's, and the open ones that need no access token."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import COUNT, FLAG, OBJECT, Schema, listed, opened, shape, text
from sfumato.wire.route import Route

# In 100: above this certainty the privacy statement no longer says that reports are deniable.
WEAK: Final = 95

_AT: Final = "/v1/surveys/{survey}"
_BAD: Final = ("bad-survey", "bad-budget")
_NUMBER: Final[Schema] = {"type": "number"}
_LISTED: Final = opened(
    {
        "survey": text(), "title": text(), "state": text(), "opens": text(), "closes": text(),
        "epsilon": _NUMBER, "guarantee": text(), "invited": {"type": "integer"},
        "reports": {"type": "integer"},
    }
)  # fmt: skip
_COUNTED: Final = opened({"counted": text(), "mark": text()})

SURVEY_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "surveys", "GET", "/v1/surveys", "Your surveys.", "own",
        opened({"surveys": listed(_LISTED)}),
    ),
    Route(
        "preview-survey", "POST", "/v1/survey-preview",
        "What a ballot would give away, and how far off the results would be; nothing is kept.",
        "own",
        opened({"epsilon": _NUMBER, "promise": OBJECT, "expected": listed(OBJECT)}),
        shape({"survey": OBJECT}), refusals=_BAD,
    ),
    Route(
        "publish-survey", "POST", "/v1/surveys",
        "Publish a survey: its questions, coins and key stand for good.", "own", _LISTED,
        shape({"survey": OBJECT}), refusals=(*_BAD, "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "invite-to-survey", "POST", f"{_AT}/invitations",
        "New invitation codes, shown this once; each gives one ballot.", "own",
        opened({"survey": text(), "codes": listed(text())}),
        shape({}, {"count": COUNT, "people": listed(text(), maxItems=1000)}),
        refusals=("survey-unknown", "survey-not-open", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "close-survey", "POST", f"{_AT}/close",
        "Take no more ballots, and show every report that came.", "own", _LISTED, shape({}),
        refusals=("survey-unknown", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "survey", "GET", _AT,
        "The survey as it was published: the id is the digest of this text.", None,
        opened({"survey": text(), "text": text(1_000_000), "state": text(), "promise": OBJECT,
                "proof": listed(text(1000))}),
        refusals=("survey-unknown", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "survey-token", "POST", f"{_AT}/tokens",
        "The signature of a blinded ballot token, for an invitation, once.", None,
        opened({"signed": text(1000)}), shape({"invitation": text(40), "blinded": text(1000)}),
        refusals=(
            "survey-unknown", "survey-not-open", "invitation-unknown", "invitation-used",
            "budget-exceeded", "ledger-frozen", "anchor-missing",
        ),
    ),
    Route(
        "survey-report", "POST", f"{_AT}/reports",
        "A randomised report, under the token that it spends; nobody is asked who they are.",
        None, _COUNTED,
        shape({"token": text(100), "signature": text(1000), "said": text(1000)}),
        refusals=(
            "survey-unknown", "survey-not-open", "bad-report", "ballot-forged", "ballot-spent",
            "ledger-frozen", "anchor-missing",
        ),
    ),
    Route(
        "survey-sheet", "POST", f"{_AT}/sheets",
        "What somebody has said with dice, under their invitation, without script.", None,
        _COUNTED, shape({"invitation": text(40), "said": text(1000)}),
        refusals=(
            "survey-unknown", "survey-not-open", "bad-report", "invitation-unknown",
            "invitation-used", "budget-exceeded", "ledger-frozen", "anchor-missing",
        ),
    ),
    Route(
        "survey-estimates", "GET", f"{_AT}/estimates",
        "What the reports tell, with intervals, once there are enough of them.", None,
        opened({"survey": text(), "enough": FLAG, "reports": {"type": "integer"},
                "questions": listed(OBJECT)}),
        query={"shares": text(20, description="`add-up` moves shares to add up to 1.")},
        refusals=("survey-unknown", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "survey-reports", "GET", f"{_AT}/reports",
        "The randomised reports, which anybody may read, in no order of time.", None,
        opened({"survey": text(), "reports": listed(OBJECT),
                "next": {"type": ["string", "null"]}}),
        query={"after": text(200, description="The `next` of the page before.")},
        refusals=("survey-unknown", "ledger-frozen", "anchor-missing"),
    ),
)  # fmt: skip
