"""The verbs (API operations) that show the state of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.health.schema import Hello, Metrics, Ready
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty
from sfumato.wire.verb import Verbs
from sfumato.wire.version import VERSION, WIRE

if TYPE_CHECKING:
    from sfumato.features.health.service import Readiness
    from sfumato.vault.users import Caller

HEALTH_VERBS: Final = Verbs()


class Services(Protocol):
    """The service that the verbs (API operations) of health use."""

    @property
    def health(self) -> Readiness:
        """Return the service of readiness and metrics."""
        ...


@HEALTH_VERBS.open_verb("hello", "GET", "/v1/hello", Empty, Hello)
def hello(_services: Services, _address: str, _asked: Empty) -> Json:
    """Return the version of the wire format and of the package."""
    return {"wire": WIRE, "version": VERSION}


@HEALTH_VERBS.open_verb("ready", "GET", "/v1/ready", Empty, Ready)
def ready(services: Services, _address: str, _asked: Empty) -> Json:
    """Return whether the service can charge and read, and what it lacks."""
    missing = services.health.missing()
    return {"ready": not missing, "missing": list(missing)}


@HEALTH_VERBS.verb("metrics", "GET", "/v1/metrics", "watch", Empty, Metrics)
def metrics(_services: Services, _caller: Caller, _asked: Empty) -> Json:
    """Return how many calls of each verb ended how; an embedded vault counts no calls."""
    return {"began": 0.0, "calls": []}
