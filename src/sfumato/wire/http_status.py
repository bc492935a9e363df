"""The HTTP status of each refusal code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.dp.refusal import CODES

REFUSED: Final = 422  # the caller can change the request
_OTHERS: Final[Mapping[str, int]] = {
    "bad-request": 400,
    "not-signed-in": 401,
    "not-allowed": 403,
    "airlock-unknown": 404,
    "answer-unknown": 404,
    "approval-unknown": 404,
    "connection-unknown": 404,
    "federation-unknown": 404,
    "invitation-unknown": 404,
    "job-unknown": 404,
    "survey-unknown": 404,
    "pipeline-unknown": 404,
    "unknown-data-set": 404,
    "unknown-page": 404,
    "unknown-token": 404,
    "unknown-user": 404,
    "upload-unknown": 404,
    "airlock-changed": 409,
    "airlock-waits": 409,
    "data-set-exists": 409,
    "data-set-frozen": 409,
    "ballot-spent": 409,
    "invitation-used": 409,
    "job-begun": 409,
    "survey-not-open": 409,
    "op-reused": 409,
    "pipeline-waits": 409,
    "question-frozen": 409,
    "same-people": 409,
    "second-person-needed": 409,
    "source-too-large": 413,
    "too-large": 413,
    "too-many": 429,
    "fault": 500,
    "anchor-missing": 503,
    "engine-unavailable": 503,
    "engine-unsafe": 503,
    "ledger-busy": 503,
    "ledger-frozen": 503,
    "ledger-unavailable": 503,
    "sandbox-missing": 503,
    "service-down": 503,
}
STATUS: Final[Mapping[str, int]] = {code: _OTHERS.get(code, REFUSED) for code in CODES}
RETRY_AFTER_S: Final[Mapping[int, int]] = {429: 5, 503: 5}
