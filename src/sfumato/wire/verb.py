"""The declaration of a verb (API operation): route, permission, request, reply and handler.

Each feature declares its verbs once. From them, the server makes its routes, readers and OpenAPI
document, and the client makes its requests. A handler gets the services, the caller and the
request.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
import msgspec.inspect

from sfumato.dp.refusal import Refused
from sfumato.wire.json_text import json_text, read_json
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Reply, Request, fields_with_default

if TYPE_CHECKING:
    from sfumato.vault.users import Caller

_PLACE: Final = re.compile(r"\{(\w+)\}")
R = TypeVar("R", bound=Request)
Carries = Literal["json", "events", "file"]
# The first argument is the vault's services: a feature names those that it uses as a protocol.
Handler = Callable[[Any, "Caller", R], Json]
OpenHandler = Callable[[Any, str, R], Json]  # the second argument is the client's address


@dataclass(frozen=True)
class Verb:
    """One verb (API operation): its route, permission, request, reply and handler."""

    name: str
    method: str
    path: str  # parts of the route in {} are parameters
    # the permission that a token needs; None if the verb needs no authentication
    action: str | None
    request: type[Request]
    reply: type[Reply]
    run: Callable[[Any, Any, Any], Json]
    refusals: tuple[str, ...] = ()
    is_long: bool = False  # True: the verb may read rows, so a call waits for one of a few slots
    carries: Carries = "json"  # "events" is a stream from the server; "file" is an upload

    @cached_property
    def summary(self) -> str:
        """Return the first paragraph of the handler's docstring, for the OpenAPI document."""
        return " ".join((self.run.__doc__ or "").partition("\n\n")[0].split())

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Return the names of the URL path's parameters."""
        return tuple(_PLACE.findall(self.path))

    @cached_property
    def has_body(self) -> bool:
        """Return True if a request of this verb has a JSON body."""
        return self.method in ("POST", "PUT") and self.carries != "file"

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the request's fields that are not in the path."""
        names = (field.encode_name for field in msgspec.structs.fields(self.request))
        return tuple(name for name in names if name not in self.places)

    @cached_property
    def query(self) -> tuple[str, ...]:
        """Return the names of the query string's parameters."""
        return () if self.has_body else self.fields

    @cached_property
    def whole_numbers(self) -> frozenset[str]:
        """Return the names of the request's fields that are whole numbers."""
        kinds: Any = msgspec.inspect.type_info(self.request)  # Any: a struct's type
        return frozenset(
            one.encode_name for one in kinds.fields if isinstance(one.type, msgspec.inspect.IntType)
        )

    def read(self, body: Mapping[str, object]) -> Any:  # Any: the request's own type
        """Read a request from JSON fields; refuse a malformed request."""
        return read_request(self.request, body)


class Verbs:
    """Collects the verbs (API operations) of one feature, in the order of their declaration."""

    def __init__(self) -> None:
        self._verbs: list[Verb] = []

    def __iter__(self) -> Iterator[Verb]:
        return iter(self._verbs)

    def verb(  # noqa: PLR0913, PLR0917  # a declaration
        self,
        name: str,
        method: str,
        path: str,
        action: str,
        request: type[R],
        reply: type[Reply],
        *,
        refusals: tuple[str, ...] = (),
        is_long: bool = False,
        carries: Carries = "json",
    ) -> Callable[[Handler[R]], Handler[R]]:
        """Return a decorator that declares a verb, whose token needs the right to `action`."""

        def declare(run: Handler[R]) -> Handler[R]:
            self._verbs.append(
                Verb(name, method, path, action, request, reply, run, refusals, is_long, carries)
            )
            return run

        return declare

    def open_verb(  # noqa: PLR0913  # a declaration
        self,
        name: str,
        method: str,
        path: str,
        request: type[R],
        reply: type[Reply],
        *,
        refusals: tuple[str, ...] = (),
    ) -> Callable[[OpenHandler[R]], OpenHandler[R]]:
        """Return a decorator that declares a verb without a token.

        The verb's handler gets the client's address.
        """

        def declare(run: OpenHandler[R]) -> OpenHandler[R]:
            self._verbs.append(Verb(name, method, path, None, request, reply, run, refusals))
            return run

        return declare


def read_request(request: type[R], body: Mapping[str, object]) -> R:
    """Read a request of this type from JSON fields; refuse a malformed request."""
    nulls = {name for name in fields_with_default(request) if body.get(name, name) is None}
    try:
        return msgspec.convert({k: v for k, v in body.items() if k not in nulls}, request)
    except msgspec.ValidationError as error:
        problem = _problem(str(error))
    raise request.malformed(problem)


def stored_body(request: type[Request], body: str) -> str:
    """Return a stored request's JSON in the form in which this version would store it.

    An earlier version also stored fields with their default. JSON that can't be read is returned
    unchanged.
    """
    with contextlib.suppress(Refused):
        return json_text(read_request(request, read_json(body.encode())).as_body())
    return body


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$.*`)?", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*?)`(?: - at `.*`)?", re.DOTALL)
_WRONG: Final = re.compile(r"Expected (.+?)(?:, got .*?)?(?: - at `\$\.?(.*)`)?", re.DOTALL)
_WORDS: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def _problem(error: str) -> str:
    """Translate msgspec's error message for a malformed request into plain words."""
    if unknown := _UNKNOWN.fullmatch(error):
        return f"{unknown[1][:40]!r} is not known"
    if missing := _MISSING.fullmatch(error):
        return f"{missing[1]} is missing"
    if wrong := _WRONG.fullmatch(error):
        expected = wrong[1].replace(" | null", "")
        for kind, words in _WORDS.items():
            expected = expected.replace(f"`{kind}`", words)
        return f"{wrong[2] or 'the request'} has to be {expected}"
    return "a field has a value that is not allowed"
