"""Dispatch the verbs of owners and second persons to the policy services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sfumato.features.policy.caps_service import CapAsked, check_second
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json, read_number
from sfumato.wire.request_fields import Body, flag_of, text_of, text_or

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

Verb = Callable[["Dispatcher", Caller, Body], Json]


def _name(body: Body) -> str:
    return text_of(body, "data_set")


def _grants(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    name = _name(body)
    enrolled = desk.policy.enrolled(caller, name)
    return {"grants": desk.policy.grants(caller, name), "enrolled": enrolled}


def _grant(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    group = None if body.get("group") is None else text_of(body, "group")
    return desk.policy.grant(caller, _name(body), text_of(body, "user"), group)


def _revoke_grant(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.policy.revoke_grant(caller, _name(body), text_of(body, "user"))


def _set_cap(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    asked = CapAsked(
        data_set=_name(body),
        of=text_of(body, "of"),
        name=text_or(body, "name", ""),
        epsilon=read_number(body.get("epsilon")),
        delta=read_number(body.get("delta")),
        why=text_or(body, "why", ""),
    )
    return desk.caps.set(caller, asked)


def _approvals(desk: Dispatcher, caller: Caller, _body: Body) -> Json:
    found = [*desk.caps.waiting(caller), *desk.confirmations.waiting(caller)]
    return {"approvals": sorted(found, key=lambda one: str(one["asked_at"]), reverse=True)}


def _decide(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    approval, is_approved = text_of(body, "approval"), flag_of(body, "approve")
    if desk.confirmations.holds(approval):
        check_second(caller)
        return desk.confirmations.decide(caller, approval, is_approved)
    return desk.caps.decide(caller, approval, is_approved)


def _frozen_questions(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    name = _name(body)
    questions = desk.policy.frozen_questions(caller, name)
    return {"questions": questions, "lost": desk.policy.lost_readings(caller, name)}


def _thaw_question(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.policy.thaw_question(caller, _name(body), text_of(body, "shape"))


OWNER_VERBS: Final[Mapping[str, Verb]] = {
    "grants": _grants,
    "grant": _grant,
    "revoke-grant": _revoke_grant,
    "spending": lambda desk, caller, body: desk.policy.spending(caller, _name(body)),
    "set-cap": _set_cap,
    "approvals": _approvals,
    "decide": _decide,
    "freeze": lambda desk, caller, body: desk.policy.freeze(caller, _name(body)),
    "thaw": lambda desk, caller, body: desk.policy.thaw(caller, _name(body)),
    "frozen-questions": _frozen_questions,
    "thaw-question": _thaw_question,
}
