"""Dispatch pipeline verbs to the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sfumato.features.pipelines.service import RunRequest
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

_TERMS: Final = ("epsilon", "delta", "blocks", "trim", "take", "cpu_s", "memory_mb", "disk_mb")
_STATES: Final = ("approved", "declined")


def _submit(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.submit(caller, text_of(body, "data_set"), body)


def _decide(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    state = text_of(body, "state")
    if state not in _STATES:
        raise bad_request(f"state is one of {', '.join(_STATES)}")
    names = text_of(body, "data_set"), text_of(body, "pipeline")
    return desk.pipelines.decide(caller, *names, state, body.get("most_epsilon"))


def _asked(body: Body) -> RunRequest:
    op = None if body.get("op") is None else text_of(body, "op")
    if op is not None and not (1 <= len(op) <= 100 and op.isprintable()):
        raise bad_request("op is 1 to 100 printable letters")
    terms = {key: body[key] for key in _TERMS if key in body}
    return RunRequest(text_of(body, "data_set"), text_of(body, "pipeline"), terms, op)


def _price(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.price(caller, _asked(body))


def _plan(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.plan(caller, _asked(body), body.get("people"), body.get("seed"))


def _run(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    release = desk.pipelines.run(caller, _asked(body))
    return {**release.answer, "receipt": release.receipt}


def _all(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.all(caller, text_of(body, "data_set"))


def _rules(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.all_rules(caller, text_of(body, "data_set"))


def _set_rule(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    said = {key: value for key, value in body.items() if key != "data_set"}
    return desk.pipelines.set_rule(caller, text_of(body, "data_set"), said)


def _end_rule(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.pipelines.end_rule(caller, text_of(body, "data_set"), text_of(body, "rule"))


PIPELINE_VERBS: Final[Mapping[str, Callable[[Dispatcher, Caller, Body], Json]]] = {
    "pipelines": _all,
    "submit-pipeline": _submit,
    "decide-pipeline": _decide,
    "price-pipeline": _price,
    "plan-pipeline": _plan,
    "run-pipeline": _run,
    "pipeline-rules": _rules,
    "set-pipeline-rule": _set_rule,
    "end-pipeline-rule": _end_rule,
}
