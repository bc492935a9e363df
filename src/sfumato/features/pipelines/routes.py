"""HTTP routes of pipelines: submit, approve, price, plan and run programs, and approval rules."""

from __future__ import annotations

from typing import Final

from sfumato.wire.json_schemas import (
    ANSWER,
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    Schema,
    listed,
    opened,
    shape,
    text,
)
from sfumato.wire.route import Route

_PIPELINE: Final = opened({"digest": text(), "data_set": text(), "state": text()})
_MAYBE: Final[Schema] = {"anyOf": [COUNT, {"type": "null"}]}  # null: no number is proposed
_TERMS: Final = {
    "blocks": COUNT, "trim": {"type": "integer", "minimum": 0}, "cpu_s": NUMBER,
    "memory_mb": COUNT, "disk_mb": COUNT, "delta": NUMBER, "take": text(10),
}  # fmt: skip
_OUTPUT: Final = shape(
    {"name": text(63), "lower": ANY, "upper": ANY},
    {
        "step": ANY,
        "path": text(),
        "at": listed(ANY, maxItems=8),
        "shape": listed(COUNT, maxItems=4),
    },
)
_BROUGHT: Final = shape({"name": text(80), "kind": text(10), "digest": text(64)})
_RULE: Final = opened({"rule": text(), "data_set": text()})
_NAMES: Final = listed(text(100), maxItems=200)
_RUN: Final = (
    "anchor-missing", "bad-budget", "bad-environment", "bad-pipeline", "ledger-frozen",
    "noise-out-of-range", "pipeline-unknown", "unknown-column", "unknown-data-set",
)  # fmt: skip

PIPELINE_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "pipelines", "GET", "/v1/data-sets/{data_set}/pipelines",
        "The programs of a data set: all to its owner, your own to you; and what they may bring.",
        "read", opened({"pipelines": listed(_PIPELINE), "environments": listed(_BROUGHT)}),
        refusals=("unknown-data-set",),
    ),
    Route(
        "submit-pipeline", "POST", "/v1/data-sets/{data_set}/pipelines",
        "Hand in a program with the numbers it gives and their ranges; it waits for the owner.",
        "ask", _PIPELINE,
        shape(
            {"source": text(200_000), "name": text(), "outputs": listed(_OUTPUT, maxItems=64)},
            {
                "columns": listed(text()), "epsilon": NUMBER, "kind": text(10),
                "environment": text(80),
            },
        ),
        refusals=_RUN,
    ),
    Route(
        "decide-pipeline", "POST", "/v1/data-sets/{data_set}/pipelines/{pipeline}/decision",
        "Approve a program, with its ranges, up to a price for each run; or decline it.", "own",
        _PIPELINE, shape({"state": text(10)}, {"most_epsilon": NUMBER}), refusals=_RUN,
    ),
    Route(
        "price-pipeline", "POST", "/v1/data-sets/{data_set}/pipelines/{pipeline}/price",
        "What a run costs, and how far off its noise would be; nothing is spent.", "ask",
        opened({"epsilon": {"type": "number"}, "blocks": COUNT}),
        shape({"epsilon": NUMBER}, _TERMS), refusals=_RUN,
    ),
    Route(
        "plan-pipeline", "POST", "/v1/data-sets/{data_set}/pipelines/{pipeline}/plan",
        "Noise and bias for several numbers of blocks, tried on made-up people; nothing is spent.",
        "ask", opened({"proposed": _MAYBE, "at": listed(ANY)}),
        shape({"epsilon": NUMBER}, {**_TERMS, "people": COUNT, "seed": text(100)}), is_long=True,
        refusals=(*_RUN, "sandbox-missing"),
    ),
    Route(
        "run-pipeline", "POST", "/v1/data-sets/{data_set}/pipelines/{pipeline}/runs",
        "The private average over blocks of people of what an approved program says.", "ask",
        ANSWER, shape({"epsilon": NUMBER}, {**_TERMS, "op": text(100)}), is_long=True,
        refusals=(
            *_RUN, "budget-exceeded", "data-set-frozen", "op-reused", "pipeline-waits",
            "question-failed", "question-frozen", "sandbox-missing",
        ),
    ),
    Route(
        "pipeline-rules", "GET", "/v1/data-sets/{data_set}/pipeline-rules",
        "Rules by which programs are approved: all to the owner, to you those that name you.",
        "read", opened({"rules": listed(_RULE)}), refusals=("unknown-data-set",),
    ),
    Route(
        "set-pipeline-rule", "POST", "/v1/data-sets/{data_set}/pipeline-rules",
        "Let programs that fit be approved by themselves from now on.", "own", _RULE,
        shape(
            {
                "columns": _NAMES,
                "outputs": listed(
                    shape({"name": text(63), "lower": ANY, "upper": ANY}), maxItems=200
                ),
                "most_epsilon": NUMBER,
                "most_total": NUMBER,
            },
            {
                "users": _NAMES, "groups": _NAMES, "texts": _NAMES, "most_delta": NUMBER,
                "takes_files": FLAG,
            },
        ),
        refusals=(*_RUN, "bad-card"),
    ),
    Route(
        "end-pipeline-rule", "DELETE", "/v1/data-sets/{data_set}/pipeline-rules/{rule}",
        "End a rule: it approves nothing more, and nothing runs by it.", "own", _RULE,
        refusals=_RUN,
    ),
)  # fmt: skip
