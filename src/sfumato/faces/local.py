"""The face of an embedded vault: the same verbs as over HTTP, called in the same process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from sfumato.services.queries import Asked, Queries
from sfumato.wire import Json, Refused, read_ask_shape, refusal_shape


@dataclass(frozen=True)
class LocalTransport:
    """Speaks the wire's shapes to the services of one vault, on behalf of one user."""

    queries: Queries
    user: str

    def call(self, verb: str, body: Json) -> Json:
        """Return the answer's shape, or the refusal's."""
        try:
            return _CALLS[verb](self, body)
        except Refused as refused:
            shape = refusal_shape(refused)
        return shape


def _ask(transport: LocalTransport, body: Mapping[str, object]) -> Json:
    release = transport.queries.ask(transport.user, _asked(body))
    return {**release.answer, "receipt": release.receipt}


def _price(transport: LocalTransport, body: Mapping[str, object]) -> Json:
    return transport.queries.price(transport.user, _asked(body))


def _budget(transport: LocalTransport, body: Mapping[str, object]) -> Json:
    return transport.queries.budget(transport.user, str(body["data_set"]))


def _card(transport: LocalTransport, body: Mapping[str, object]) -> Json:
    return transport.queries.card(transport.user, str(body["data_set"]))


def _data_sets(transport: LocalTransport, _body: Mapping[str, object]) -> Json:
    return {"data_sets": transport.queries.data_sets(transport.user)}


def _asked(body: Mapping[str, object]) -> Asked:
    return Asked(**asdict(read_ask_shape(body)))


_CALLS: Final[Mapping[str, Callable[[LocalTransport, Mapping[str, object]], Json]]] = {
    "ask": _ask,
    "price": _price,
    "budget": _budget,
    "card": _card,
    "data-sets": _data_sets,
}
