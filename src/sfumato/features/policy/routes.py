"""HTTP routes of policy: an owner's grants, caps and freezes, and a second person's approvals."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import (
    BUDGET,
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    Schema,
    listed,
    opened,
    shape,
    text,
)
from sfumato.wire.route import Route

_AT: Final = "/v1/data-sets/{data_set}"
_OWN: Final = ("unknown-data-set",)
_GRANT: Final = opened({"user": text(), "group": text(), "by": text(), "at": text()})
_MEMBER: Final = opened({"user": text(), "group": text()})
_ACCOUNT: Final = opened(
    {"of": text(), "name": text(), "cap": BUDGET, "spent": OBJECT, "left": OBJECT}
)
_CHARGED: Final = opened(
    {"entry": {"type": "integer"}, "at": text(), "user": text(), "says": text(10_000),
     "epsilon": text(), "delta": text()}
)  # fmt: skip
_FROZEN: Final = opened({"data_set": text(), "frozen": FLAG})
_WAITS: Final = opened({"shape": text(), "at": text(), "user": text(), "says": text(10_000)})
_LOST: Final = opened({"cause": text(), "says": text(), "times": COUNT, "last": text()})
_APPROVAL: Final = opened({"approval": text(), "state": text()})
_OF: Final[Schema] = {"type": "string", "enum": ["people", "data-set", "group", "user"]}

OWNER_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "grants", "GET", f"{_AT}/grants", "Who was let ask your data set, and in which group.",
        "own", opened({"grants": listed(_GRANT), "enrolled": listed(_MEMBER)}), refusals=_OWN,
    ),
    Route(
        "grant", "PUT", f"{_AT}/grants/{{user}}",
        "Let a user ask your data set, in a group that its card lets ask.", "own", _GRANT,
        shape({}, {"group": text(100)}), refusals=(*_OWN, "unknown-user", "ledger-frozen"),
    ),
    Route(
        "revoke-grant", "DELETE", f"{_AT}/grants/{{user}}",
        "Take every grant on your data set from a user; what they spent stays spent.", "own",
        opened({"revoked": text()}), refusals=(*_OWN, "unknown-user", "ledger-frozen"),
    ),
    Route(
        "spending", "GET", f"{_AT}/spending",
        "What was spent of your data set, by whom, and on which questions; never an answer.",
        "own", opened({"accounts": listed(_ACCOUNT), "questions": listed(_CHARGED)}),
        refusals=_OWN,
    ),
    Route(
        "set-cap", "PUT", f"{_AT}/caps",
        "Lower a cap at once; raise it, with a second person where the card or the people need "
        "one.", "own", opened({"of": text(), "name": text(), "cap": BUDGET}),
        shape(
            {"of": _OF, "epsilon": NUMBER},
            {"name": text(100), "delta": NUMBER, "why": text(500)},
        ),
        refusals=(*_OWN, "unknown-user", "bad-budget", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "approvals", "GET", "/v1/approvals", "What waits for a second person, and what did.",
        "any", opened({"approvals": listed(_APPROVAL)}),
    ),
    Route(
        "decide", "POST", "/v1/approvals/{approval}",
        "Agree to what somebody else has asked for, or decline it.", "any", _APPROVAL,
        shape({"approve": FLAG}), refusals=("approval-unknown", "ledger-frozen", "anchor-missing"),
    ),
    Route(
        "freeze", "POST", f"{_AT}/freeze", "Let nobody ask your data set, at once.", "own",
        _FROZEN, shape({}), refusals=(*_OWN, "ledger-frozen"),
    ),
    Route(
        "thaw", "POST", f"{_AT}/thaw", "Let your data set be asked again.", "own", _FROZEN,
        shape({}), refusals=(*_OWN, "ledger-frozen"),
    ),
    Route(
        "frozen-questions", "GET", f"{_AT}/frozen",
        "The shapes of question about your data set that were stopped and wait for you; and how"
        " often of late the host ended the process that reads rows.", "own",
        opened({"questions": listed(_WAITS), "lost": listed(_LOST)}), refusals=_OWN,
    ),
    Route(
        "thaw-question", "POST", f"{_AT}/frozen/{{shape}}",
        "Let a stopped shape of question be asked again.", "own", opened({"thawed": text()}),
        shape({}), refusals=(*_OWN, "answer-unknown", "ledger-frozen"),
    ),
)  # fmt: skip
