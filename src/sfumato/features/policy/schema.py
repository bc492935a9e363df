"""Requests and replies of an owner's grants, caps and freezes, and of approvals."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sfumato.wire.schema import (
    Label,
    Name,
    NeededNumber,
    Number,
    OfDataSet,
    PrivacyBudget,
    Reply,
    Request,
    letters,
)


class GrantAccess(OfDataSet, frozen=True, kw_only=True):
    """A request to let a user query a data set, in a group."""

    user: Name
    group: Label | None = None


class RevokeGrant(OfDataSet, frozen=True, kw_only=True):
    """A request to end a user's right to query a data set."""

    user: Name


class ChangeCap(OfDataSet, frozen=True, kw_only=True):
    """A request to change a cap: of which account, to what, and why."""

    of: Annotated[str, Meta(extra_json_schema={"enum": ["people", "data-set", "group", "user"]})]
    epsilon: NeededNumber = None
    name: Annotated[Label, Meta(description="Of the group or the user.")] = ""
    delta: Annotated[Number, Meta(description="Left out: the current delta stays.")] = None
    why: Annotated[str, letters(500)] = ""


class Decide(Request, frozen=True, kw_only=True):
    """A second person's decision: approve or decline a request."""

    approval: Name
    approve: bool


class ThawQuestion(OfDataSet, frozen=True, kw_only=True):
    """A request to allow a blocked shape of query again."""

    shape: Name


class Grant(Reply):
    """A user's right to query a data set: in which group, granted by whom, and when."""

    user: Name
    group: Name
    by: Name
    at: Name


class Member(Reply):
    """A user whom the data card lets query."""

    user: Name
    group: Name


class Grants(Reply):
    """The grants on a data set, and who is enrolled in its groups."""

    grants: list[Grant]
    enrolled: list[Member]


class RevokedGrant(Reply):
    """The user whose grants were revoked."""

    revoked: Name


class SpendingAccount(Reply):
    """A privacy budget account of a data set: cap, spent and left."""

    of: Name
    name: Name
    cap: PrivacyBudget
    spent: dict[str, Any]
    left: dict[str, Any]


class ChargedQuery(Reply):
    """A query that was charged; its answer is not shown."""

    entry: int
    at: Name
    user: Name
    says: str
    epsilon: Name
    delta: Name


class Spending(Reply):
    """What was spent of a data set, and on which queries."""

    accounts: list[SpendingAccount]
    questions: list[ChargedQuery]


class CapState(Reply):
    """A budget cap, after a change or while its raise waits for a second person."""

    of: Name
    name: Name
    cap: PrivacyBudget


class Approval(Reply):
    """A request that needs a second person, and its state."""

    approval: Name
    state: Name


class Approvals(Reply):
    """The requests for a second person that the caller may see, waiting and decided."""

    approvals: list[Approval]


class FreezeState(Reply):
    """The state of a data set: whether queries on it are blocked (frozen)."""

    data_set: Name
    frozen: bool


class FrozenQuestion(Reply):
    """A blocked shape of query (a query without its constants), with its last query."""

    shape: Name
    at: Name
    user: Name
    says: str


class LostReadings(Reply):
    """A count of how often the machine ended the process that reads rows, for one cause."""

    cause: Name
    says: Name
    times: int
    last: Name


class FrozenQuestions(Reply):
    """The blocked shapes of query of a data set, and reads that the machine ended."""

    questions: list[FrozenQuestion]
    lost: list[LostReadings]


class ThawedQuestion(Reply):
    """The shape of query that may be asked again."""

    thawed: Name
