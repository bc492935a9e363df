"""The table of all verbs (API operations), as the features declare them.

The server makes its routes and its OpenAPI document from it, and the client makes its requests.
Tests use it to try every route with every role, and with other users' objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.features.access.verbs import ACCESS_VERBS
from sfumato.features.airlock.verbs import AIRLOCK_VERBS
from sfumato.features.audit.verbs import AUDIT_VERBS
from sfumato.features.data_sets.verbs import DATA_SET_VERBS
from sfumato.features.federated.verbs import SITE_VERBS
from sfumato.features.health.verbs import HEALTH_VERBS
from sfumato.features.jobs.verbs import JOB_VERBS
from sfumato.features.pipelines.verbs import PIPELINE_VERBS
from sfumato.features.policy.verbs import POLICY_VERBS
from sfumato.features.queries.verbs import QUERY_VERBS
from sfumato.features.streams.verbs import STREAM_VERBS
from sfumato.features.surveys.verbs import SURVEY_VERBS
from sfumato.features.synthetic.verbs import TWIN_VERBS
from sfumato.wire.verb import Verb

# refusal codes that every verb may give
COMMON: Final = (
    "anchor-missing", "bad-request", "fault", "ledger-busy", "ledger-frozen", "ledger-unavailable",
    "not-allowed", "not-signed-in", "service-down", "too-large", "too-many",
)  # fmt: skip
VERBS: Final[tuple[Verb, ...]] = (
    *HEALTH_VERBS,
    *ACCESS_VERBS,
    *QUERY_VERBS,
    *POLICY_VERBS,
    *JOB_VERBS,
    *DATA_SET_VERBS,
    *STREAM_VERBS,
    *SURVEY_VERBS,
    *SITE_VERBS,
    *TWIN_VERBS,
    *PIPELINE_VERBS,
    *AIRLOCK_VERBS,
    *AUDIT_VERBS,
)
BY_NAME: Final[Mapping[str, Verb]] = {verb.name: verb for verb in VERBS}
