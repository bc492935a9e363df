"""The base of all API requests and replies, and the replies that several features give.

A request or a reply is one msgspec struct. The service reads requests by it, and the OpenAPI
document is made from both. A reply may have more fields than its struct says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

from msgspec import NODEFAULT, UNSET, Meta, Struct, field, structs

from sfumato.dp.refusal import Refused
from sfumato.wire.json_text import bad_request
from sfumato.wire.query_json import read_number

_EXACT: Final = {"exact": True}
_NUMBER: Final[dict[str, object]] = {
    "anyOf": [
        {"type": "number"},
        {"type": "string", "maxLength": 200, "pattern": "^[0-9]{1,90}/[1-9][0-9]{0,90}$"},
    ]
}


def letters(most: int, description: str = "") -> Meta:
    """Return an annotation that states a text's greatest length in the OpenAPI document.

    The services refuse longer texts, with codes of their own.
    """
    return Meta(extra_json_schema={"maxLength": most}, description=description or None)


def items(most: int) -> Meta:
    """Return an annotation that states a list's greatest length in the OpenAPI document.

    The services refuse longer lists, with codes of their own.
    """
    return Meta(extra_json_schema={"maxItems": most})


Name = Annotated[str, letters(200)]
Text = Annotated[str, letters(10_000)]
Label = Annotated[str, letters(100)]
# A longer text is refused by the SQL reader, with a code of its own.
Sql = Annotated[str, letters(16_384, "The query in SQL.")]
QueryShape = Annotated[
    Any,
    Meta(
        description="The query as the client's builder sends it.",
        extra_json_schema={"type": ["object", "null"]},
    ),
]
Count = Annotated[int, Meta(ge=1, le=10**10)]
Position = Annotated[int, Meta(ge=0, le=10**17)]
# A number is read exactly. A fraction that is no decimal is written as a text, such as "1/3".
Number = Annotated[
    Any,
    Meta(
        description="A number; a fraction that is no decimal is a text, such as '1/3'.",
        extra_json_schema=_NUMBER,
        extra=_EXACT,
    ),
]
# a required field: the service refuses a request without it
NeededNumber = Annotated[Number, Meta(extra={"needed": True})]
Numbers = Annotated[
    dict[str, Any] | None,
    Meta(
        extra_json_schema={
            "anyOf": [{"type": "object", "additionalProperties": _NUMBER}, {"type": "null"}]
        },
        extra=_EXACT,
    ),
]


def shaped(of: object, description: str = "") -> Meta:
    """Return an annotation that documents a field as the type `of` in the OpenAPI document.

    The field itself is `Any`, and the service reads its value.
    """
    return Meta(extra={"shape": of}, description=description or None)


def needed(of: object, description: str = "") -> Meta:
    """Return an annotation like `shaped`, for a field that is also documented as required.

    The service's own reader refuses a request without the field.
    """
    return Meta(extra={"shape": of, "needed": True}, description=description or None)


class Request(Struct, frozen=True, kw_only=True):
    """The base of API requests: fields of the URL's path and query string, and of the body.

    Unknown fields are ignored, as earlier versions did, unless a request forbids them.
    """

    def __post_init__(self) -> None:
        """Convert those fields that are exact numbers, such as "1/3", to fractions."""
        for name in exact_fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, dict):
                structs.force_setattr(self, name, {k: read_number(v) for k, v in value.items()})
            elif isinstance(value, str):
                structs.force_setattr(self, name, read_number(value))

    @staticmethod
    def malformed(what: str) -> Refused:
        """Return the refusal of a request that doesn't fit this struct."""
        return bad_request(what)

    def as_body(self, *without: str) -> dict[str, object]:
        """Return the request's fields that differ from their default, in alphabetical order.

        Fields that `without` names are left out.
        """
        return {name: value for name, value in sorted(_given(self)) if name not in without}


@cache
def fields_with_default(request: type[Request]) -> frozenset[str]:
    """Return the names of the fields for which null in a request means their default.

    These are the fields with a default other than null.
    """
    return frozenset(
        one.encode_name
        for one in structs.fields(request)
        if not one.required and one.default not in (None, UNSET)
    )


def _given(request: Request) -> Iterator[tuple[str, object]]:
    for one in structs.fields(request):
        value = getattr(request, one.name)
        is_made = one.default is NODEFAULT and one.default_factory is not NODEFAULT
        usual = one.default_factory() if is_made else one.default
        if one.required or value != usual:
            yield one.encode_name, value


@cache
def exact_fields(request: type[Request]) -> tuple[str, ...]:
    """Return the names of a request's fields that are read as exact numbers, such as "1/3"."""
    return tuple(one.name for one in structs.fields(request) if _extra(one.type).get("exact"))


def shape_of_field(of: object) -> object:
    """Return the type by which the OpenAPI document describes a field."""
    return _extra(of).get("shape", of)


def is_needed(of: object) -> bool:
    """Return True for a field without which the service's own reader refuses a request."""
    return bool(_extra(of).get("needed"))


def _extra(of: object) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for meta in getattr(of, "__metadata__", ()):
        if isinstance(meta, Meta):
            found |= meta.extra or {}
    return found


class Empty(Request, frozen=True, kw_only=True):
    """A request without fields."""


class Reply(Struct, kw_only=True):
    """A reply of the API; a newer version may add fields."""


class OfDataSet(Request, frozen=True, kw_only=True):
    """A request about one data set."""

    data_set: Name


# --- what several features reply


class PrivacyBudget(Reply):
    """An amount of privacy budget."""

    epsilon: float
    delta: float
    rho: float | None = None  # in zero-concentrated differential privacy


class BudgetLeft(Reply):
    """What is left of a privacy budget, and the largest epsilon of the next query."""

    epsilon: float
    delta: float
    next_epsilon: Annotated[
        float | None, Meta(description="The largest epsilon that the next query can have.")
    ] = None
    tests: Annotated[Any, Meta(description="What is left by each test of the privacy filter.")] = (
        None
    )


class BudgetWindow(Reply):
    """A privacy budget that renews each window, and what was spent over all windows."""

    per: Name
    now: Name
    lifetime: PrivacyBudget
    says: Text


class BudgetAccount(Reply):
    """A privacy budget account: its cap, and what is spent and left of it."""

    cap: PrivacyBudget
    spent: PrivacyBudget
    left: BudgetLeft


class PeopleAccount(BudgetAccount):
    """The privacy budget account of the people, which all data sets about them share."""

    domain: Name


class Budget(BudgetAccount):
    """The privacy budget of a data set, of its people, and of the caller."""

    next_epsilon: float
    people: PeopleAccount
    yours: dict[str, BudgetAccount]
    window: BudgetWindow | None = None


class CardColumn(Reply):
    """A column of a data card."""

    name: Name
    type: Name
    lower: Any
    upper: Any
    step: Any
    keys: list[Any] | None
    missing: float | None = None


class CardTable(Reply):
    """A further table of a data card."""

    name: Name
    public: bool
    unit: str | None
    key: str | None
    max_rows: int | None
    columns: list[CardColumn]


class CardCaps(Reply):
    """The caps of each user and each group, and who may raise them."""

    user: PrivacyBudget | None
    group: PrivacyBudget | None
    raised_by: Annotated[str, Meta(description="`owner`, or who else has to agree.")] = field(
        name="raise"
    )


class Card(Reply):
    """A data card: what the owner declares about a data set."""

    name: Name
    unit: Annotated[str, Meta(description="The privacy unit: a column of persons, or `row`.")]
    people: Name
    version: Name
    budget: PrivacyBudget
    caps: CardCaps
    who: list[Name]
    max_groups: int | None
    max_rows: int | None
    size: int | None
    delta_per_request: float
    columns: list[CardColumn]
    tables: list[CardTable]
    frozen: bool | None = None
    window: str | None = None
    not_dp: Text | None = None


class Receipt(Reply):
    """The signed receipt of a release."""

    epsilon: float
    delta: float
    op: str
    seq: Annotated[int, Meta(description="The number of the ledger entry that charged it.")]
    free: bool
    charged: Annotated[
        dict[str, float], Meta(description="The epsilon that each account was charged.")
    ]
    left: BudgetLeft
    says: str
    data_set: str
    version: str
    guarantee: str
    signed: Annotated[Any, Meta(description="What the service signed.")] = None
    signature: str | None = None
    question: Any = None
    people: str | None = None
    unit: Annotated[str | None, Meta(description="The privacy unit, in words.")] = None
    relation: str | None = None
    bounding: Annotated[str | None, Meta(description="The contribution bounds, in words.")] = None
    mechanism: str | None = None
    odds: str | None = None
    interval: str | None = None
    advice: list[str] | None = None
    split: Any = None
    window: BudgetWindow | None = None
    not_dp: str | None = None


class OpenInterval(Reply):
    """A confidence interval without an end on one side; null is the open side."""

    row: int
    column: int
    low: float | None
    high: float | None


class Answer(Reply):
    """A private answer: a table, the error of each number, and the receipt."""

    columns: list[str]
    rows: list[list[Any]]
    std: list[list[float | None]]
    interval: Annotated[
        list[list[list[float] | None]],
        Meta(description="95 % intervals; null for a key, and for those in `open_intervals`."),
    ]
    guarantee: str
    receipt: Receipt
    open_intervals: list[OpenInterval] | None = None


class PriceAt(Reply):
    """The error of a query at another epsilon, and how sure an attacker can then be, in percent."""

    epsilon: float
    error: dict[str, float | None]
    sure: float


class Price(Reply):
    """What a query costs, and how large its error is."""

    epsilon: float
    delta: float
    error: Annotated[
        dict[str, float | None], Meta(description="Column -> half-width of its 95 % interval.")
    ]
    error_by_people: Annotated[
        dict[str, list[tuple[float, float]]],
        Meta(description="Column -> pairs of a group's size and the error, if size matters."),
    ]
    at: list[PriceAt]
    spent: bool
    fits: Annotated[bool, Meta(description="Whether the budgets suffice.")]
    free: Annotated[bool, Meta(description="Whether the caller has paid for this answer.")]
    left: BudgetLeft
    says: Text
    bounding: str
    advice: list[str] | str | None
    cells: int
    mechanism: str
    odds: str
    assumed_people: int | None
    rank_error: Any = None
    split: Any = None


class Job(Reply):
    """A background job; only its elapsed time shows how far it is."""

    job: Name
    kind: Name
    data_set: Name
    op: Name
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    begun: Name
    seconds: int | None
    running: Annotated[
        int | None, Meta(description="The seconds since it began to run; null if it does not run.")
    ]
    failed: Annotated[Any, Meta(description="The refusal with which it failed, or null.")]


class Token(Reply):
    """An access token, without its secret."""

    id: Name
    kind: Name
    label: Name
    actions: list[Name]
    created: Name
    expires: Name


class User(Reply):
    """A user with their roles."""

    user: Name
    roles: list[Name]
    blocked: bool


class Refusal(Reply):
    """The content of a refusal: its code, its cause and the next step."""

    code: Name
    cause: Text
    next: Text


class RefusalReply(Reply):
    """The reply to a refused request."""

    refused: Refusal
