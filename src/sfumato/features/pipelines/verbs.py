"""The verbs of pipelines: submit, approve, price, plan and run programs; and approval rules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sfumato.features.pipelines.schema import (
    DecideImageRequest,
    DecidePipeline,
    ImageRequest,
    ImageRequests,
    OnePipeline,
    OnePipelineRule,
    OnePipelineRun,
    Pipeline,
    PipelinePlan,
    PipelinePrice,
    PipelineReview,
    PipelineRule,
    PipelineRules,
    PipelineRuns,
    Pipelines,
    PipelineTerms,
    PlanPipeline,
    RequestImage,
    RunPipeline,
    SetPipelineRule,
    SubmitPipeline,
)
from sfumato.wire.json_text import json_text
from sfumato.wire.query_json import Json
from sfumato.wire.schema import Answer, Empty, Job, OfDataSet
from sfumato.wire.verb import Verbs, stored_body

if TYPE_CHECKING:
    from sfumato.features.jobs.service import Jobs
    from sfumato.features.pipelines import service
    from sfumato.vault.users import Caller

PIPELINE_VERBS: Final = Verbs()
_PIPELINES: Final = "/v1/data-sets/{data_set}/pipelines"
_RUN: Final = "run"  # the kind of the jobs (features/jobs/model.py)
_RULES: Final = "/v1/data-sets/{data_set}/pipeline-rules"
_RUNS: Final = "/v1/data-sets/{data_set}/pipeline-runs"
_IMAGES: Final = "/v1/image-requests"
_REFUSALS: Final = (
    "anchor-missing", "bad-budget", "bad-environment", "bad-pipeline", "ledger-frozen",
    "noise-out-of-range", "pipeline-unknown", "unknown-column", "unknown-data-set",
)  # fmt: skip


class Services(Protocol):
    """The interface of the services that the pipeline verbs use."""

    @property
    def jobs(self) -> Jobs:
        """Return the job service of the vault."""
        ...

    @property
    def pipelines(self) -> service.Pipelines:
        """Return the pipeline service of the vault."""
        ...


@PIPELINE_VERBS.verb(
    "pipelines", "GET", _PIPELINES, "read", OfDataSet, Pipelines, refusals=("unknown-data-set",)
)
def pipelines(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List a data set's submitted programs, all to its owner, your own to you; and environments."""
    return services.pipelines.all(caller, asked.data_set)


@PIPELINE_VERBS.verb(
    "pipeline", "GET", f"{_PIPELINES}/{{pipeline}}", "read", OnePipeline, PipelineReview,
    refusals=("pipeline-unknown", "unknown-data-set"),
)  # fmt: skip
def pipeline(services: Services, caller: Caller, asked: OnePipeline) -> Json:
    """Return one program with what its review needs, to its author and to the data's owner."""
    return services.pipelines.one(caller, asked)


@PIPELINE_VERBS.verb(
    "submit-pipeline", "POST", _PIPELINES, "ask", SubmitPipeline, Pipeline, refusals=_REFUSALS
)
def submit_pipeline(services: Services, caller: Caller, asked: SubmitPipeline) -> Json:
    """Submit a program with its outputs and their ranges, for the owner's approval.

    It waits for the owner, unless the owner submits it or it matches an approval rule.
    """
    return services.pipelines.submit(caller, asked.data_set, asked.as_body("data_set"))


@PIPELINE_VERBS.verb(
    "decide-pipeline", "POST", f"{_PIPELINES}/{{pipeline}}/decision", "own", DecidePipeline,
    Pipeline,
    refusals=_REFUSALS,
)  # fmt: skip
def decide_pipeline(services: Services, caller: Caller, asked: DecidePipeline) -> Json:
    """Approve a program and its ranges up to an epsilon for each run; or decline the program."""
    return services.pipelines.decide(caller, asked)


@PIPELINE_VERBS.verb(
    "price-pipeline", "POST", f"{_PIPELINES}/{{pipeline}}/price", "ask", PipelineTerms,
    PipelinePrice,
    refusals=_REFUSALS,
)  # fmt: skip
def price_pipeline(services: Services, caller: Caller, asked: PipelineTerms) -> Json:
    """Return the price of a run and the error of its noise; nothing is spent."""
    return services.pipelines.price(caller, asked)


@PIPELINE_VERBS.verb(
    "plan-pipeline", "POST", f"{_PIPELINES}/{{pipeline}}/plan", "ask", PlanPipeline, PipelinePlan,
    refusals=(*_REFUSALS, "sandbox-missing", "too-many"),
    is_long=True,
)  # fmt: skip
def plan_pipeline(services: Services, caller: Caller, asked: PlanPipeline) -> Json:
    """Return a program's noise and bias for several block counts, on synthetic people; free."""
    return services.pipelines.plan(caller, asked)


@PIPELINE_VERBS.verb(
    "run-pipeline", "POST", f"{_PIPELINES}/{{pipeline}}/runs", "ask", RunPipeline, Answer,
    refusals=(
        *_REFUSALS, "budget-exceeded", "data-set-frozen", "op-reused", "pipeline-waits",
        "question-failed", "question-frozen", "sandbox-missing",
    ),
    is_long=True,
)  # fmt: skip
def run_pipeline(services: Services, caller: Caller, asked: RunPipeline) -> Json:
    """Run an approved program on blocks of people, and return its private averages or medians."""
    return services.pipelines.run(caller, asked).as_json()


@PIPELINE_VERBS.verb(
    "begin-pipeline-run", "POST", f"{_PIPELINES}/{{pipeline}}/jobs", "ask", RunPipeline, Job,
    refusals=(*_REFUSALS, "data-set-frozen", "op-reused", "pipeline-waits"),
)  # fmt: skip
def begin_pipeline_run(services: Services, caller: Caller, asked: RunPipeline) -> Json:
    """Queue a run of an approved program as a job: it needs no waiting client, and pays once."""
    services.pipelines.check_run(caller, asked)
    job = services.jobs.begin(
        caller,
        _RUN,
        asked.data_set,
        json_text(asked.as_body()),
        asked.op,
        as_stored=partial(stored_body, RunPipeline),
    )
    return services.jobs.shown(job)


@PIPELINE_VERBS.verb(
    "pipeline-runs", "GET", _RUNS, "read", OfDataSet, PipelineRuns, refusals=("unknown-data-set",)
)
def pipeline_runs(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List your own last runs of programs on a data set, with their prices."""
    return services.pipelines.runs(caller, asked.data_set)


@PIPELINE_VERBS.verb(
    "pipeline-answer", "GET", f"{_RUNS}/{{op}}", "read", OnePipelineRun, Answer,
    refusals=("answer-unknown", "unknown-data-set"),
)  # fmt: skip
def pipeline_answer(services: Services, caller: Caller, asked: OnePipelineRun) -> Json:
    """Return the stored answer of one of your runs again; nothing is charged."""
    return services.pipelines.answer(caller, asked).as_json()


@PIPELINE_VERBS.verb(
    "pipeline-rules", "GET", _RULES, "read", OfDataSet, PipelineRules,
    refusals=("unknown-data-set",),
)  # fmt: skip
def pipeline_rules(services: Services, caller: Caller, asked: OfDataSet) -> Json:
    """List the rules that approve programs: all to the owner, to you those that name you."""
    return services.pipelines.all_rules(caller, asked.data_set)


@PIPELINE_VERBS.verb(
    "set-pipeline-rule", "POST", _RULES, "own", SetPipelineRule, PipelineRule,
    refusals=(*_REFUSALS, "bad-card"),
)  # fmt: skip
def set_pipeline_rule(services: Services, caller: Caller, asked: SetPipelineRule) -> Json:
    """Create a rule that approves matching programs automatically from now on."""
    return services.pipelines.set_rule(caller, asked.data_set, asked.as_body("data_set"))


@PIPELINE_VERBS.verb(
    "end-pipeline-rule", "DELETE", f"{_RULES}/{{rule}}", "own", OnePipelineRule, PipelineRule,
    refusals=_REFUSALS,
)  # fmt: skip
def end_pipeline_rule(services: Services, caller: Caller, asked: OnePipelineRule) -> Json:
    """End an approval rule: it approves nothing more, and no program runs by it."""
    return services.pipelines.end_rule(caller, asked.data_set, asked.rule)


@PIPELINE_VERBS.verb(
    "request-image", "POST", _IMAGES, "ask", RequestImage, ImageRequest,
    refusals=("image-not-pulled", "too-many"),
)  # fmt: skip
def request_image(services: Services, caller: Caller, asked: RequestImage) -> Json:
    """Ask the operator for an image at an allowed registry, by its digest; nothing is pulled."""
    return services.pipelines.images.ask(caller, asked.image, asked.why)


@PIPELINE_VERBS.verb("image-requests", "GET", _IMAGES, "any", Empty, ImageRequests)
def image_requests(services: Services, caller: Caller, _asked: Empty) -> Json:
    """List requests for images: all to an operator, to anybody else their own."""
    return services.pipelines.images.all(caller)


@PIPELINE_VERBS.verb(
    "decide-image-request", "POST", f"{_IMAGES}/{{request}}/decision", "operate",
    DecideImageRequest, ImageRequest,
)  # fmt: skip
def decide_image_request(services: Services, caller: Caller, asked: DecideImageRequest) -> Json:
    """Accept or decline a request for an image; nothing is pulled."""
    return services.pipelines.images.decide(caller, asked.request, asked.state, asked.reason)
