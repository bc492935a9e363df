"""HTTP routes of twins (synthetic data)."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import (
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

_TWIN: Final = opened({"name": text(), "stamp": OBJECT, "files": OBJECT})
_SEED: Final[dict[str, Schema]] = {
    "rows": {**COUNT, "maximum": 10**6},
    "seed": text(100, description="The same seed gives the same twin."),
}
_QUESTION: Final = (
    "bad-sql", "keys-needed", "no-aggregate", "no-bounds", "noise-out-of-range", "not-in-language",
    "numbers-too-large", "question-too-large", "type-mismatch", "unknown-column",
    "unknown-data-set",
)  # fmt: skip

_DP: Final[dict[str, Schema]] = {
    "delta": NUMBER,
    "method": {"type": "string", "enum": ["independent", "mst", "aim"]},
    "private_bins": listed(
        text(300), maxItems=100, description="Columns of numbers whose bins are measured too."
    ),
    "error_epsilon": {**NUMBER, "description": "Paid besides: for how far the twin is off."},
}
_PAID: Final = (
    "bad-budget", "not-in-language", "twin-not-possible", "unknown-column", "unknown-data-set",
)  # fmt: skip

TWIN_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "twin", "POST", "/v1/data-sets/{data_set}/twin",
        "A look-alike made from the card alone; free, and no row is read.", "read", _TWIN,
        shape({}, {"sql": text(16_384), "question": OBJECT, **_SEED}),
        refusals=(*_QUESTION, "twin-not-possible"),
    ),
    Route(
        "dp-twin-price", "POST", "/v1/data-sets/{data_set}/dp-twin/price",
        "What a synthetic data set would cost and which columns it would have measured; free.",
        "read", opened({"epsilon": {"type": "number"}, "fits": FLAG}),
        shape({"epsilon": NUMBER}, _DP), refusals=_PAID,
    ),
    Route(
        "dp-twin", "POST", "/v1/data-sets/{data_set}/dp-twin",
        "A synthetic data set from privately measured marginals; each is charged before it is "
        "read, and the same op again is free.", "ask", _TWIN,
        shape({"epsilon": NUMBER}, {**_DP, **_SEED, "op": text(60)}),
        refusals=(
            *_PAID, "anchor-missing", "budget-exceeded", "ledger-frozen", "op-reused",
            "question-failed", "question-frozen", "data-set-frozen", "noise-out-of-range",
            "question-too-large",
        ),
        is_long=True,
    ),
)  # fmt: skip
