"""What the OpenAPI document says is so: for requests of every shape, as everybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from support.described_data_sets import OPERATIONS, check_described, quick_session
from support.served_vault import Service
from support.service_with_users import ROLES, peopled, strays

CASES: Final = 8  # and as many that the document does not allow
REAL: Final = {"data_set": "patients", "user": "spare"}
CALLERS: Final = ("nobody", *ROLES)
ENDING: Final = {"sign-out", "revoke-token", "revoke-tokens"}  # with a token of their own


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with somebody of every role, and a spare one whom nobody needs."""
    with peopled(tmp_path_factory.mktemp("served")) as running:
        running.user("spare", "researcher")
        yield running
        assert strays(running) == []


def _token(service: Service, caller: str) -> str:
    made = service.call("POST", "/v1/tokens", {"label": "short"}, token=service.tokens[caller])[1]
    return str(made["token"])


def _hold(service: Service, name: str, cases: int, mode: GenerationMode) -> None:
    operation = OPERATIONS[name]
    tokens: dict[str, str] = {} if name in ENDING else dict(service.tokens)
    callers = CALLERS[:2] if operation.definition.raw["security"] == [] else CALLERS

    @settings(
        max_examples=cases, deadline=None, database=None, derandomize=cases == CASES,
        phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), is_real=st.booleans())
    def hold(case: Any, is_real: bool) -> None:
        for place in set(REAL) & set(case.path_parameters or {}) if is_real else ():
            case.path_parameters[place] = REAL[place]
        for caller in callers:
            if caller != "nobody" and caller not in tokens:
                tokens[caller] = _token(service, caller)
            headers = {"Authorization": f"Bearer {tokens[caller]}"} if caller in tokens else {}
            reply = case.call(base_url=service.url, session=session, headers=headers)
            if name in ENDING and reply.status_code == 200:
                tokens.pop(caller, None)
            check_described(name, case, reply, caller)

    with quick_session() as session:
        hold()


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_reply_is_as_described(service: Service, name: str) -> None:
    for mode in _modes(name):
        _hold(service, name, CASES, mode)


def _modes(name: str) -> tuple[GenerationMode, ...]:
    """Return both modes; a route that takes nothing can be given nothing wrong."""
    raw = OPERATIONS[name].definition.raw
    takes = raw.get("parameters") or "requestBody" in raw
    return (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 2 if takes else 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_reply_is_as_described_at_length(service: Service, name: str) -> None:
    for mode in _modes(name):
        _hold(service, name, 100, mode)
