"""Our OpenAPI document as Schemathesis reads it, and the look whether a reply is as it says."""

from __future__ import annotations

from typing import Any, Final

import requests
import schemathesis
from schemathesis import APIOperation
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from sfumato.server.http.openapi import openapi

_CHECKS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
Operation = APIOperation[Any, Any, Any, Any]  # Any: what Schemathesis leaves open


def _operations() -> dict[str, Operation]:
    schema = schemathesis.openapi.from_dict(openapi("0"))
    found = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    return {str(one.definition.raw["operationId"]): one for one in found}


OPERATIONS: Final = _operations()


def check_described(name: str, case: Any, reply: Any, caller: str) -> None:
    """Fail unless the reply is one that the document tells of: its status, form and code."""
    assert reply.status_code < 500, (name, caller, reply.status_code, reply.text)
    case.validate_response(reply, checks=_CHECKS)
    if reply.status_code != 200:
        raw = OPERATIONS[name].definition.raw
        said = raw["responses"][str(reply.status_code)]["description"]
        assert f"`{reply.json()['refused']['code']}`:" in said, (name, caller, reply.text)


def quick_session() -> requests.Session:
    """Return one connection for many requests."""
    session = requests.Session()
    session.trust_env = False  # nor is the machine asked for proxies and passwords each time
    return session
