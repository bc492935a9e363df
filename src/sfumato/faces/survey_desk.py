"""The desk's verbs about surveys: an owner's, and those of whoever has a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sfumato.faces.body import Body, count_of, optional_texts, text_of
from sfumato.services.access import Caller
from sfumato.wire import Json

if TYPE_CHECKING:
    from sfumato.faces.desk import Desk


def _survey(body: Body) -> str:
    return text_of(body, "survey")


def _invite(desk: Desk, caller: Caller, body: Body) -> Json:
    people = optional_texts(body, "people")
    return desk.surveys.invite(caller, _survey(body), count_of(body, "count", 1, 1000), people)


def _issue(desk: Desk, body: Body, _place: str) -> Json:
    sent = text_of(body, "invitation"), text_of(body, "blinded")
    return desk.surveys.issue(_survey(body), *sent)


def _report(desk: Desk, body: Body, _place: str) -> Json:
    sent = text_of(body, "token"), text_of(body, "signature"), text_of(body, "said")
    return desk.surveys.report(_survey(body), *sent)


def _sheet(desk: Desk, body: Body, _place: str) -> Json:
    return desk.surveys.sheet(_survey(body), text_of(body, "invitation"), text_of(body, "said"))


def _reports(desk: Desk, body: Body, _place: str) -> Json:
    after = None if body.get("after") is None else text_of(body, "after")
    return desk.surveys.reports(_survey(body), after)


SURVEY_VERBS: Final[Mapping[str, Callable[[Desk, Caller, Body], Json]]] = {
    "surveys": lambda desk, caller, _: {"surveys": desk.surveys.of(caller)},
    "preview-survey": lambda d, caller, body: d.surveys.preview(caller, body.get("survey")),
    "publish-survey": lambda d, caller, body: d.surveys.publish(caller, body.get("survey")),
    "invite-to-survey": _invite,
    "close-survey": lambda d, caller, body: d.surveys.close(caller, _survey(body)),
}
OPEN_SURVEY_VERBS: Final[Mapping[str, Callable[[Desk, Body, str], Json]]] = {
    "survey": lambda desk, body, _: desk.surveys.definition(_survey(body)),
    "survey-token": _issue,
    "survey-report": _report,
    "survey-sheet": _sheet,
    "survey-estimates": lambda desk, body, _: desk.surveys.estimates(_survey(body)),
    "survey-reports": _reports,
}
