"""The verbs (API operations) of policy: grants, caps, freezes, and second persons' approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.policy.schema import (
    Approval,
    Approvals,
    CapState,
    ChangeCap,
    Decide,
    FreezeState,
    FrozenQuestions,
    Grant,
    GrantAccess,
    Grants,
    RevokedGrant,
    RevokeGrant,
    Spending,
    ThawedQuestion,
    ThawQuestion,
)
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Empty, OfDataSet
from sfumato.wire.verb import Verbs

if TYPE_CHECKING:
    from sfumato.features.policy.caps_service import Caps
    from sfumato.features.policy.confirmation_service import Confirmations
    from sfumato.features.policy.service import Policy
    from sfumato.vault.users import Caller

POLICY_VERBS: Final = Verbs()
_DATA_SET: Final = "/v1/data-sets/{data_set}"
_OWN: Final = ("unknown-data-set",)


class Services(Protocol):
    """The services that the verbs (API operations) of policy use."""

    @property
    def policy(self) -> Policy:
        """Return the service of grants and freezes."""
        ...

    @property
    def caps(self) -> Caps:
        """Return the service of budget caps."""
        ...

    @property
    def confirmations(self) -> Confirmations:
        """Return the service by which a second person confirms that people are new."""
        ...


@POLICY_VERBS.verb("grants", "GET", f"{_DATA_SET}/grants", "own", OfDataSet, Grants, refusals=_OWN)
def grants(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List who may query your data set, and in which group."""
    enrolled = services.policy.enrolled(caller, asked.data_set)
    return {"grants": services.policy.grants(caller, asked.data_set), "enrolled": enrolled}


@POLICY_VERBS.verb(
    "grant", "PUT", f"{_DATA_SET}/grants/{{user}}", "own", GrantAccess, Grant,
    refusals=(*_OWN, "unknown-user", "ledger-frozen"),
)  # fmt: skip
def grant(services: Services, caller: Caller, asked: GrantAccess) -> Json:
    """Let a user query your data set, in a group that its data card admits."""
    return services.policy.grant(caller, asked.data_set, asked.user, asked.group)


@POLICY_VERBS.verb(
    "revoke-grant", "DELETE", f"{_DATA_SET}/grants/{{user}}", "own", RevokeGrant, RevokedGrant,
    refusals=(*_OWN, "unknown-user", "ledger-frozen"),
)  # fmt: skip
def revoke_grant(services: Services, caller: Caller, asked: RevokeGrant) -> Json:
    """Revoke every grant of a user on your data set; what they spent stays spent."""
    return services.policy.revoke_grant(caller, asked.data_set, asked.user)


@POLICY_VERBS.verb(
    "spending", "GET", f"{_DATA_SET}/spending", "own", OfDataSet, Spending, refusals=_OWN
)
def spending(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Return what was spent of your data set, by whom and on which queries; never an answer."""
    return services.policy.spending(caller, asked.data_set)


@POLICY_VERBS.verb(
    "set-cap", "PUT", f"{_DATA_SET}/caps", "own", ChangeCap, CapState,
    refusals=(*_OWN, "unknown-user", "bad-budget", "ledger-frozen", "anchor-missing"),
)  # fmt: skip
def set_cap(services: Services, caller: Caller, asked: ChangeCap) -> Json:
    """Lower a cap at once; raise it, with a second person where the card or the people need one."""
    return services.caps.set(caller, asked)


@POLICY_VERBS.verb("approvals", "GET", "/v1/approvals", "any", Empty, Approvals)
def approvals(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List the requests that wait for a second person, and those that were decided."""
    found = [*services.caps.waiting(caller), *services.confirmations.waiting(caller)]
    return {"approvals": sorted(found, key=lambda one: str(one["asked_at"]), reverse=True)}


@POLICY_VERBS.verb(
    "decide", "POST", "/v1/approvals/{approval}", "any", Decide, Approval,
    refusals=("approval-unknown", "ledger-frozen", "anchor-missing"),
)  # fmt: skip
def decide(services: Services, caller: Caller, asked: Decide) -> Json:
    """Approve or decline another user's request, as its second person."""
    if services.confirmations.holds(asked.approval):
        return services.confirmations.decide(caller, asked.approval, asked.approve)
    return services.caps.decide(caller, asked.approval, asked.approve)


@POLICY_VERBS.verb(
    "freeze", "POST", f"{_DATA_SET}/freeze", "own", OfDataSet, FreezeState,
    refusals=(*_OWN, "ledger-frozen"),
)  # fmt: skip
def freeze(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Stop all queries on your data set at once."""
    return services.policy.freeze(caller, asked.data_set)


@POLICY_VERBS.verb(
    "thaw", "POST", f"{_DATA_SET}/thaw", "own", OfDataSet, FreezeState,
    refusals=(*_OWN, "ledger-frozen"),
)  # fmt: skip
def thaw(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """Allow queries on your data set again."""
    return services.policy.thaw(caller, asked.data_set)


@POLICY_VERBS.verb(
    "frozen-questions", "GET", f"{_DATA_SET}/frozen", "own", OfDataSet, FrozenQuestions,
    refusals=_OWN,
)  # fmt: skip
def frozen_questions(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List the blocked shapes of query on your data set, and reads that the machine ended."""
    questions = services.policy.frozen_questions(caller, asked.data_set)
    return {"questions": questions, "lost": services.policy.lost_readings(caller, asked.data_set)}


@POLICY_VERBS.verb(
    "thaw-question", "POST", f"{_DATA_SET}/frozen/{{shape}}", "own", ThawQuestion, ThawedQuestion,
    refusals=(*_OWN, "answer-unknown", "ledger-frozen"),
)  # fmt: skip
def thaw_question(services: Services, caller: Caller, asked: ThawQuestion) -> Json:
    """Allow a blocked shape of query again."""
    return services.policy.thaw_question(caller, asked.data_set, asked.shape)
