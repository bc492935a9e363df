"""Dispatch airlock verbs to the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.request_fields import Body, count_of, text_of, text_or

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

Act = Callable[["Dispatcher", Caller, Body], Json]


def _submit(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.airlock.submit(caller, text_of(body, "data_set"), body)


def _all(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.airlock.all(caller, text_of(body, "data_set"))


def _vote(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    seen = text_of(body, "seal"), count_of(body, "draft", 0, 10**6)
    says, why = text_of(body, "says"), text_or(body, "why", "")
    return desk.airlock.vote(caller, text_of(body, "request"), says, seen, why)


def _trim(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.airlock.trim(caller, text_of(body, "request"), text_of(body, "path"))


def _replace(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    path, file = text_of(body, "path"), text_of(body, "base64")
    return desk.airlock.replace(caller, text_of(body, "request"), path, file)


AIRLOCK_VERBS: Final[Mapping[str, Act]] = {
    "airlock": _all,
    "submit-airlock": _submit,
    "show-airlock": lambda d, caller, body: d.airlock.show(caller, text_of(body, "request")),
    "run-airlock": lambda d, caller, body: d.airlock.run(caller, text_of(body, "request")),
    "decline-airlock": lambda d, caller, body: d.airlock.decline(caller, text_of(body, "request")),
    "withdraw-airlock": lambda d, caller, body: d.airlock.withdraw(
        caller, text_of(body, "request")
    ),
    "vote-airlock": _vote,
    "trim-airlock": _trim,
    "replace-airlock": _replace,
    "release-airlock": lambda d, caller, body: d.airlock.release(caller, text_of(body, "request")),
    "fetch-airlock": lambda d, caller, body: d.airlock.fetch(caller, text_of(body, "request")),
}
