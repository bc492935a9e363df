"""The table of all verbs (API operations): route, permission, request and answer of each.

The server makes its routes and its OpenAPI document from it, and the client makes its requests.
Tests use it to try every route with every role, and with other users' objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.features.airlock.routes import AIRLOCK_ROUTES
from sfumato.features.audit.routes import AUDIT_ROUTES
from sfumato.features.data_sets.routes import UPLOAD_ROUTES
from sfumato.features.federated.routes import SITE_ROUTES
from sfumato.features.jobs.routes import job_routes
from sfumato.features.pipelines.routes import PIPELINE_ROUTES
from sfumato.features.policy.routes import OWNER_ROUTES
from sfumato.features.streams.routes import STREAM_ROUTES
from sfumato.features.surveys.routes import SURVEY_ROUTES
from sfumato.features.synthetic.routes import TWIN_ROUTES
from sfumato.wire.json_schemas import (
    ACCOUNT,
    ANSWER,
    ASK_TERMS,
    CARD,
    COUNT,
    FLAG,
    OBJECT,
    PRICE,
    PRICE_TERMS,
    TOKEN,
    USER,
    listed,
    opened,
    shape,
    text,
)
from sfumato.wire.route import Route

WIRE: Final = 1  # increased by a change that old clients would not understand
VERSION: Final = "0.1.0"  # of the package
_QUESTION: Final = (
    "answer-unknown", "bad-budget", "bad-sql", "error-needs-size", "error-out-of-reach",
    "keys-needed", "no-aggregate", "no-bounds", "noise-out-of-range", "not-in-language",
    "numbers-too-large", "question-too-large", "top-up-impossible", "top-up-unknown",
    "type-mismatch", "unknown-column", "unknown-data-set", "unknown-user",
)  # fmt: skip
# refusal codes that every verb may give
COMMON: Final = (
    "anchor-missing", "bad-request", "fault", "ledger-busy", "ledger-frozen", "ledger-unavailable",
    "not-allowed", "not-signed-in", "service-down", "too-large", "too-many",
)  # fmt: skip


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "hello", "GET", "/v1/hello", "The wire's version, and the package's.", None,
        opened({"wire": COUNT, "version": text()}),
    ),
    Route(
        "ready", "GET", "/v1/ready", "Whether it can charge and read, and what is missing.", None,
        opened({"ready": FLAG, "missing": listed(text())}),
    ),
    Route(
        "sign-in", "POST", "/v1/sign-in", "A session of twelve hours for a name and a password.",
        None, TOKEN,
        shape(
            {"user": text(), "password": text(400)},
            {"device": text(64, description="What your last session here gave as `device`.")},
        ),
    ),
    Route(
        "take-up", "POST", "/v1/invitations",
        "Take up an invitation: set a password and be signed in.", None, TOKEN,
        shape({"invitation": text(), "password": text(400)}),
    ),
    Route(
        "sign-out", "POST", "/v1/sign-out", "Revoke the token that you came in with.", "any",
        opened({"signed_out": FLAG}), shape({}),
    ),
    Route(
        "me", "GET", "/v1/me", "Who you are and what your token opens.", "any",
        opened({"user": text(), "roles": listed(text()), "actions": listed(text())}),
    ),
    Route(
        "tokens", "GET", "/v1/tokens",
        "Your own tokens, never their secrets; and who has invited you when.", "any",
        opened({"tokens": listed(TOKEN)}),
    ),
    Route(
        "make-token", "POST", "/v1/tokens", "A new token that opens no more than your own.", "any",
        TOKEN,
        shape(
            {"label": text(100)},
            {
                "actions": listed(text(), maxItems=10),
                "data_sets": listed(text(), maxItems=1000),
                "days": {"type": "integer", "minimum": 1, "maximum": 90},
            },
        ),
    ),
    Route(
        "revoke-token", "DELETE", "/v1/tokens/{token}", "Let a token open nothing any more.",
        "any", opened({"revoked": text()}), refusals=("unknown-token",),
    ),
    Route(
        "users", "GET", "/v1/users", "Everybody who may sign in, and their roles.", "operate",
        opened({"users": listed(USER)}),
    ),
    Route(
        "invite", "POST", "/v1/users", "Add a user, or invite a known one anew.", "operate",
        opened({"user": text(), "invitation": text(), "expires": text()}),
        shape({"user": text(100), "roles": listed(text(), maxItems=10)}),
        refusals=("unknown-user", "ledger-frozen"),
    ),
    Route(
        "change-user", "PUT", "/v1/users/{user}", "Change a user's roles, or block them.",
        "operate", USER, shape({"roles": listed(text(), maxItems=10), "blocked": FLAG}),
        refusals=("unknown-user",),
    ),
    Route(
        "revoke-tokens", "DELETE", "/v1/users/{user}/tokens",
        "Let none of a user's tokens open anything any more.", "any",
        opened({"revoked": text()}), refusals=("unknown-user",),
    ),
    Route(
        "metrics", "GET", "/v1/metrics", "How many calls of each verb ended how.", "watch",
        opened({"began": {"type": "number"}, "calls": listed(OBJECT)}),
    ),
    Route(
        "data-sets", "GET", "/v1/data-sets", "The cards of the data sets that you may ask.",
        "read", opened({"data_sets": listed(CARD)}),
    ),
    Route(
        "card", "GET", "/v1/data-sets/{data_set}", "What the owner declared of a data set.",
        "read", CARD, refusals=("unknown-data-set",),
    ),
    Route(
        "budget", "GET", "/v1/data-sets/{data_set}/budget", "Cap, spent and left.", "read",
        {**ACCOUNT, "description": "of the data set, its people and yourself"},
        refusals=("unknown-data-set",),
    ),
    Route(
        "price", "POST", "/v1/data-sets/{data_set}/price",
        "What a question would cost and how far off it would be; nothing is spent.", "read",
        PRICE, shape({}, PRICE_TERMS), refusals=_QUESTION,
    ),
    Route(
        "ask", "POST", "/v1/data-sets/{data_set}/ask",
        "A private answer, charged before a row is read; asking the same again is free.", "ask",
        ANSWER, shape({}, ASK_TERMS),
        refusals=(
            *_QUESTION, "anchor-missing", "budget-exceeded", "ledger-frozen", "op-reused",
            "question-failed", "question-frozen", "data-set-frozen",
        ),
        is_long=True,
    ),
    *OWNER_ROUTES,
    *job_routes(_QUESTION),
    *UPLOAD_ROUTES,
    *STREAM_ROUTES,
    *SURVEY_ROUTES,
    *SITE_ROUTES,
    *TWIN_ROUTES,
    *PIPELINE_ROUTES,
    *AIRLOCK_ROUTES,
    *AUDIT_ROUTES,
)  # fmt: skip
BY_VERB: Final[Mapping[str, Route]] = {route.verb: route for route in ROUTES}
