"""Dispatch survey verbs to the service: the owner's, and the open ones for a survey's link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sfumato.dp.refusal import Refused
from sfumato.features.surveys.service import Surveys
from sfumato.features.surveys.submission import Submission
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, count_of, optional_texts, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher


def _survey(body: Body) -> str:
    return text_of(body, "survey")


def _invite(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    people = optional_texts(body, "people")
    return desk.surveys.invite(caller, _survey(body), count_of(body, "count", 1, 1000), people)


def _issue(desk: Dispatcher, body: Body, _place: str) -> Json:
    sent = text_of(body, "invitation"), text_of(body, "blinded")
    return desk.surveys.issue(_survey(body), *sent)


def _report(desk: Dispatcher, body: Body, _place: str) -> Json:
    return desk.surveys.report(_sent(body))


def _sent(body: Body) -> Submission:
    token, signature, said = (text_of(body, key) for key in ("token", "signature", "said"))
    return Submission(_survey(body), token, signature, said)


def take_reports(surveys: Surveys, bodies: Sequence[Body]) -> list[Json | Refused]:
    """Count several reports in one commit; return the reply or refusal of each."""
    read = [_read_sent(body) for body in bodies]
    ended = iter(surveys.take([one for one in read if isinstance(one, Submission)]))
    return [next(ended) if isinstance(one, Submission) else one for one in read]


def _read_sent(body: Body) -> Submission | Refused:
    try:
        return _sent(body)
    except Refused as refused:
        return refused


def _sheet(desk: Dispatcher, body: Body, _place: str) -> Json:
    return desk.surveys.sheet(_survey(body), text_of(body, "invitation"), text_of(body, "said"))


def _estimates(desk: Dispatcher, body: Body, _place: str) -> Json:
    shares = None if body.get("shares") is None else text_of(body, "shares")
    return desk.surveys.estimates(_survey(body), shares)


def _reports(desk: Dispatcher, body: Body, _place: str) -> Json:
    after = None if body.get("after") is None else text_of(body, "after")
    return desk.surveys.reports(_survey(body), after)


SURVEY_VERBS: Final[Mapping[str, Callable[[Dispatcher, Caller, Body], Json]]] = {
    "surveys": lambda desk, caller, _: {"surveys": desk.surveys.of(caller)},
    "preview-survey": lambda d, caller, body: d.surveys.preview(caller, body.get("survey")),
    "publish-survey": lambda d, caller, body: d.surveys.publish(caller, body.get("survey")),
    "invite-to-survey": _invite,
    "close-survey": lambda d, caller, body: d.surveys.close(caller, _survey(body)),
}
OPEN_SURVEY_VERBS: Final[Mapping[str, Callable[[Dispatcher, Body, str], Json]]] = {
    "survey": lambda desk, body, _: desk.surveys.definition(_survey(body)),
    "survey-token": _issue,
    "survey-report": _report,
    "survey-sheet": _sheet,
    "survey-estimates": _estimates,
    "survey-reports": _reports,
}
