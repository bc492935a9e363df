"""Request parsing for the verbs of a site; messages of rounds are base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from sfumato.features.federated.service import STAGES, FederatedRequest
from sfumato.features.federated.tensor_service import MAX_NUMBER, Said
from sfumato.vault.users import Caller
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import Json, read_number
from sfumato.wire.request_fields import Body, count_of, flag_of, text_of

if TYPE_CHECKING:
    from sfumato.server.dispatch import Dispatcher

MOST: Final = 10**10
TOLD: Final = ("loss", "accuracy")
PAID: Final = "paid"


def _asked(body: Body) -> FederatedRequest:
    sql = None if body.get("sql") is None else text_of(body, "sql")
    if [sql, body.get("question"), body.get("lesson")].count(None) != 2:
        raise bad_request("one of sql, question and lesson is needed")
    return FederatedRequest(
        text_of(body, "data_set"),
        text_of(body, "federation"),
        sql,
        body.get("question"),
        read_number(body.get("epsilon")),
        read_number(body.get("delta")),
        None if body.get("max_groups") is None else count_of(body, "max_groups", 1, MOST),
        None if body.get("max_rows") is None else count_of(body, "max_rows", 1, MOST),
        body.get("lesson"),
        0 if body.get("number") is None else count_of(body, "number", 1, MOST),
        b"" if body.get("weights") is None else _bytes_of(body, "weights"),
        _told(body),
        _paid(body),
        None if body.get("guarantee") is None else text_of(body, "guarantee"),
    )


def _told(body: Body) -> tuple[tuple[str, float], ...]:
    """Parse the convener's report of loss and accuracy."""
    told = body.get("told", {})
    if not isinstance(told, dict) or not told.keys() <= {*TOLD, PAID}:
        raise bad_request(f"told is an object of {', '.join(TOLD)} and {PAID}")
    return _numbers({name: told[name] for name in TOLD if name in told})


def _paid(body: Body) -> tuple[tuple[str, float], ...]:
    """Parse the convener's report of what each site has paid."""
    told = body.get("told", {})
    paid = told.get(PAID, {}) if isinstance(told, dict) else {}
    if not isinstance(paid, dict):
        raise bad_request("what sites have paid is an object of numbers")
    return _numbers(paid)


def _numbers(said: Mapping[str, object]) -> tuple[tuple[str, float], ...]:
    read = {name: _number_told(one) for name, one in said.items()}
    numbers = tuple((name, one) for name, one in read.items() if one is not None)
    if len(numbers) < len(said):
        raise bad_request("what is told are numbers between 0 and 10,000,000,000")
    return numbers


def _number_told(one: object) -> float | None:
    """Return the number as a float if it is in range, else None; it may overflow a float."""
    if isinstance(one, bool) or not isinstance(one, int | float | Decimal):
        return None
    try:
        number = float(one)
    except (OverflowError, ValueError):
        return None
    return number if 0 <= number <= MOST else None


def _join(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    shape = {key: value for key, value in body.items() if key != "data_set"}
    return desk.sites.join(caller, text_of(body, "data_set"), shape)


def _leave(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return desk.sites.leave(caller, text_of(body, "data_set"), text_of(body, "federation"))


def _begin(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    return _sent(desk.sites.begin(caller, _asked(body), _bytes_of(body)))


def _go_on(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    stage = text_of(body, "stage")
    if stage not in STAGES:
        raise bad_request(f"stage is one of {', '.join(STAGES)}")
    names = text_of(body, "data_set"), text_of(body, "round")
    return _sent(desk.sites.go_on(caller, *names, stage, _bytes_of(body)))


def _show(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    total = body.get("total")
    if not isinstance(total, list) or not all(type(one) is int for one in total):
        raise bad_request("total is a list of whole numbers")
    sites = count_of(body, "sites", 0, MOST)
    return desk.sites.answer(caller, _asked(body), total, sites)


def _call(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    is_part = flag_of(body, "more") if "more" in body else False
    number = count_of(body, "number", 1, MAX_NUMBER)
    said = Said(_session(body), number, _bytes_of(body), is_part)
    return _sent({"message": desk.sites.tensors.call(caller, said)})


def _table(desk: Dispatcher, caller: Caller, body: Body) -> Json:
    said = Said(_session(body), count_of(body, "number", 1, MAX_NUMBER))
    return _sent({"message": desk.sites.table(caller, text_of(body, "data_set"), said)})


def _session(body: Body) -> str:
    session = text_of(body, "session")
    if not 1 <= len(session) <= 64:
        raise bad_request("session is a text of up to 64 letters")
    return session


def _bytes_of(body: Body, name: str = "message") -> bytes:
    text, found = text_of(body, name), None
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = None
    if found is None:
        raise bad_request(f"{name} is bytes in base64")
    return found


def _sent(reply: Json) -> Json:
    message = reply["message"]
    sent = base64.b64encode(message).decode("ascii") if isinstance(message, bytes) else message
    return {**reply, "message": sent}


SITE_VERBS: Final[Mapping[str, Callable[[Dispatcher, Caller, Body], Json]]] = {
    "site-key": lambda desk, _caller, _body: desk.sites.key(),
    "federations": lambda desk, caller, body: desk.sites.all(caller, text_of(body, "data_set")),
    "lessons": lambda desk, caller, body: desk.sites.lessons(caller, text_of(body, "data_set")),
    "join-federation": _join,
    "leave-federation": _leave,
    "price-sum": lambda desk, caller, body: desk.sites.price(caller, _asked(body)),
    "join-sum": _begin,
    "go-on-with-sum": _go_on,
    "show-sum": _show,
    "tensor-call": _call,
    "tensor-table": _table,
}
