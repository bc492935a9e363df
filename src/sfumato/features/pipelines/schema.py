"""Requests and replies of pipelines: programs that run on blocks of people.

The readers of programs, runs and rules check most fields, with refusal codes of their own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct

from sfumato.wire.schema import (
    Count,
    Label,
    Name,
    NeededNumber,
    Number,
    Numbers,
    OfDataSet,
    Reply,
    Request,
    items,
    letters,
    needed,
    shaped,
)

Names = Annotated[list[Label], items(200)]
Short = Annotated[str, letters(10)]
Timing = Literal["isolated", "batch"]


class ProgramOutput(Struct, kw_only=True, forbid_unknown_fields=True):
    """An output that a program declares: its name, range and step, and where it is in a file."""

    name: Annotated[str, letters(63)]
    lower: Any
    upper: Any
    step: Any = None
    path: Name | None = None
    at: Annotated[list[Any], items(8)] | None = None
    shape: Annotated[list[Count], items(4)] | None = None
    rows: Annotated[list[Name], items(4000)] | None = None
    columns: Annotated[list[Name], items(4000)] | None = None
    key: Name | None = None


class OutputRange(Struct, kw_only=True, forbid_unknown_fields=True):
    """An output that an approval rule allows, with the widest range that it may declare."""

    name: Annotated[str, letters(63)]
    lower: Any
    upper: Any


class ProgramFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """A file of a program of several files, besides its main file."""

    path: Name
    text: Annotated[str, letters(200_000)]


class SubmitPipeline(OfDataSet, frozen=True, kw_only=True):
    """A request to submit a program for the owner's approval."""

    source: Annotated[Any, needed(Annotated[str, letters(200_000)])] = UNSET
    name: Annotated[Any, needed(Name)] = UNSET
    outputs: Annotated[Any, needed(Annotated[list[ProgramOutput], items(64)])] = UNSET
    columns: Annotated[Any, shaped(list[Name] | None)] = UNSET
    epsilon: Number = UNSET
    kind: Annotated[Any, shaped(Short | None)] = UNSET
    environment: Annotated[Any, shaped(Annotated[str, letters(80)] | None)] = UNSET
    main: Annotated[
        Any, shaped(Name | None, "The path of the file in `source`, if there are `modules`.")
    ] = UNSET
    modules: Annotated[Any, shaped(Annotated[list[ProgramFile], items(99)] | None)] = UNSET
    file: Annotated[Any, shaped(Name | None, "The name of the program's file, for lists.")] = UNSET


class OnePipeline(OfDataSet, frozen=True, kw_only=True):
    """A request about one submitted program, by its digest."""

    pipeline: Name


class DecidePipeline(OnePipeline, frozen=True, kw_only=True):
    """The owner's decision on a submitted program: approved or declined."""

    state: Literal["approved", "declined"]
    most_epsilon: Annotated[Number, Meta(description="The largest epsilon of one run.")] = None
    timing: Annotated[
        Timing, Meta(description="`batch` also allows runs in which blocks are less isolated.")
    ] = "isolated"
    checked: Annotated[
        Any, shaped(Names | None, "The ids of the checklist's questions that you confirm.")
    ] = None
    reason: Annotated[Any, shaped(Annotated[str, letters(1000)] | None)] = None


class OnePipelineRun(OfDataSet, frozen=True, kw_only=True):
    """A request about one of your own runs, by its operation id."""

    op: Name


class PipelineTerms(OnePipeline, frozen=True, kw_only=True):
    """The terms of a run: its price, and how the people are split into blocks."""

    epsilon: Annotated[
        Number, Meta(description="The price; without it, every output needs an error.")
    ] = UNSET
    split: Annotated[
        Numbers, Meta(description="Output -> the share of each of its numbers; 1 by default.")
    ] = None
    error: Annotated[Numbers, Meta(description="Output -> wanted half-width at 95 %.")] = None
    blocks: Annotated[Any, shaped(Count | None)] = UNSET
    trim: Annotated[Any, shaped(Annotated[int, Meta(ge=0)] | None)] = UNSET
    cpu_s: Number = UNSET
    memory_mb: Annotated[Any, shaped(Count | None)] = UNSET
    disk_mb: Annotated[Any, shaped(Count | None)] = UNSET
    delta: Number = UNSET
    take: Annotated[
        Any,
        shaped(Short | None, "`mean`, `median`, or `auto`: as the last trial of it proposed."),
    ] = UNSET
    timing: Annotated[Any, shaped(Short | None, "`isolated` or `batch`.")] = UNSET
    job_s: Number = UNSET


class PlanPipeline(PipelineTerms, frozen=True, kw_only=True):
    """The terms of a run to plan, and the synthetic people on which it is tried."""

    people: Annotated[Any, shaped(Count | None)] = None
    seed: Annotated[Any, shaped(Label | None)] = None


class RunPipeline(PipelineTerms, frozen=True, kw_only=True):
    """The terms of a run of a program, and its operation id."""

    op: Label | None = None

    def __post_init__(self) -> None:
        """Read the request's exact numbers; refuse an unusable operation id."""
        super().__post_init__()
        if self.op is not None and not (1 <= len(self.op) <= 100 and self.op.isprintable()):
            raise self.malformed("op has to be 1 to 100 printable letters")


class SetPipelineRule(OfDataSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for an approval rule: who, on which columns, for which outputs and prices."""

    columns: Annotated[Any, needed(Names)] = UNSET
    outputs: Annotated[Any, needed(Annotated[list[OutputRange], items(200)])] = UNSET
    most_epsilon: NeededNumber = UNSET
    most_total: NeededNumber = UNSET
    users: Annotated[Any, shaped(Names | None)] = UNSET
    groups: Annotated[Any, shaped(Names | None)] = UNSET
    texts: Annotated[Any, shaped(Names | None)] = UNSET
    most_delta: Number = UNSET
    takes_files: Annotated[Any, shaped(bool | None)] = UNSET


class OnePipelineRule(OfDataSet, frozen=True, kw_only=True):
    """A request about one approval rule, by its id."""

    rule: Name


class Pipeline(Reply):
    """A submitted program with its digest and state (waiting, approved or declined)."""

    digest: Name
    data_set: Name
    state: Name


class PipelineReview(Pipeline):
    """A program with what its review needs: warnings, changes, the last trial, a checklist."""

    may_decide: bool
    warnings: list[str]
    changes: Annotated[
        Any, Meta(description="The changes since the author's last approved program, or null.")
    ]
    trial: Annotated[Any, Meta(description="The last trial on synthetic people, or null.")]
    checklist: list[Any]


class PipelineRun(Reply):
    """One of your runs of a program, as the ledger has it."""

    op: Name
    state: Name
    pipeline: Name


class PipelineRuns(Reply):
    """Your own runs of programs on a data set, newest first."""

    runs: list[PipelineRun]


class RequestImage(Request, frozen=True, kw_only=True):
    """A request for an image at a registry that the vault's operator allows."""

    image: Annotated[str, letters(335, "REGISTRY/NAME@sha256:DIGEST")]
    why: Annotated[Any, shaped(Annotated[str, letters(1000)] | None)] = None


class DecideImageRequest(Request, frozen=True, kw_only=True):
    """An operator's decision on a request for an image. It pulls nothing."""

    request: Name
    state: Literal["accepted", "declined"]
    reason: Annotated[Any, shaped(Annotated[str, letters(1000)] | None)] = None


class ImageRequest(Reply):
    """A request for an image, with the operator's decision; `there` if it is on the machine."""

    request: Name
    by: Name
    image: Annotated[str, letters(335)]
    environment: Annotated[str, letters(80)]
    why: Annotated[str, letters(1000)]
    state: Literal["waiting", "accepted", "declined", "there"]
    reason: Annotated[str, letters(1000)]


class ImageRequests(Reply):
    """Requests for images: all to an operator, to anybody else their own."""

    requests: list[ImageRequest]


class ProgramEnvironment(Reply):
    """An environment in which programs of this data set may run."""

    name: Annotated[str, letters(80)]
    kind: Short
    digest: Annotated[str, letters(64)]
    source: Annotated[str, letters(335, "The registry and name of a pulled image.")] = ""


class Pipelines(Reply):
    """The programs of a data set that the caller may see, and the environments for them."""

    pipelines: list[Pipeline]
    environments: list[ProgramEnvironment]
    may_decide: bool


class PipelinePrice(Reply):
    """The price of a run of a program, and the error of its noise."""

    epsilon: float
    blocks: int
    seconds: Annotated[
        int | None, Meta(description="How long the run takes, whatever the program does.")
    ] = None


class TrialCommand(Reply):
    """A command that the processes of a program in an image ran, and how often."""

    command: Annotated[
        str, Meta(description="As a shell quotes it. Of a long command, only the start is there.")
    ]
    times: int


class TrialFile(Reply):
    """A file that a program left in its output folder, and what became of it."""

    path: str
    size: Annotated[int, Meta(description="In bytes.")]
    is_taken: bool
    says: str


class ProgramTrial(Reply):
    """One run of a program on synthetic people: what it did, printed, used and returned."""

    of: Annotated[str, Meta(description="Whose run it was: everybody's, a block's or a person's.")]
    people: int
    ended: str
    cpu_s: float
    wall_s: float
    memory_mb: int
    processes: Annotated[int, Meta(description="The most processes at once.")]
    printed: Annotated[str, Meta(description="The end of standard output and standard error.")]
    read: Annotated[list[Any], Meta(description="What was read for each output.")]
    commands: Annotated[
        list[TrialCommand], Meta(description="In the order in which they first ran.")
    ]
    more_commands: Annotated[int, Meta(description="How often commands ran that are not listed.")]
    files: Annotated[
        list[TrialFile], Meta(description="Files of declared outputs first, then by name.")
    ]
    more_files: Annotated[int, Meta(description="How many files are not listed.")]


class PlanCombination(Reply):
    """A way to combine blocks, with the expected error: noise, bias and spread together."""

    take: str
    trim: int
    error: dict[str, float]
    relative: Annotated[
        float, Meta(description="The largest error, as a part of the output's range.")
    ]


class PlanLine(Reply):
    """Noise, bias and missing numbers for one number of blocks; each by the output's name."""

    blocks: int
    noise: dict[str, float]
    bias: dict[str, float]
    bias_within: Annotated[dict[str, float], Meta(description="The margin of the bias at 95 %.")]
    in_the_middle: Annotated[
        dict[str, int], Meta(description="How many tried blocks gave the middle of the range.")
    ]
    no_number: Annotated[dict[str, int], Meta(description="How many tried blocks gave no number.")]
    tried: int
    together: Annotated[
        float, Meta(description="Noise and bias of the worst output, as a part of its range.")
    ]
    combinations: list[PlanCombination]


class PlanChoice(Reply):
    """The proposed number of blocks, and how to combine them."""

    blocks: int
    take: str
    trim: int
    says: str


class SqlOffer(Reply):
    """A SQL query that gives the same mean as an output, with less error at the same price."""

    output: str
    sql: str
    error: float
    error_of_program: float
    times: float
    people: int
    says: str


class PipelinePlan(Reply):
    """The noise and bias of a program's run, for several numbers of blocks of people."""

    warnings: list[str]
    epsilon: float
    people: Annotated[int, Meta(description="How many synthetic people the program was tried on.")]
    seed: str
    at: list[PlanLine]
    trials: list[ProgramTrial]
    choice: Annotated[
        PlanChoice | None,
        Meta(description="The choice with the least expected error; null: none is proposed."),
    ]
    proposed: Annotated[int | None, Meta(description="The number of blocks of `choice`, or null.")]
    in_sql: list[SqlOffer]
    silent: Annotated[
        list[str], Meta(description="Outputs without a number in the run on everybody.")
    ]
    never: Annotated[list[str], Meta(description="Outputs without a number in any run.")]
    says: str
    spent: bool


class PipelineRule(Reply):
    """A rule that approves matching programs automatically."""

    rule: Name
    data_set: Name


class PipelineRules(Reply):
    """The approval rules of a data set."""

    rules: list[PipelineRule]
