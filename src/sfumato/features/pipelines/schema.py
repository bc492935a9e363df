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
    OfDataSet,
    Reply,
    items,
    letters,
    needed,
    shaped,
)

Names = Annotated[list[Label], items(200)]
Short = Annotated[str, letters(10)]


class ProgramOutput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A number that a program gives, and its range."""

    name: Annotated[str, letters(63)]
    lower: Any
    upper: Any
    step: Any = None
    path: Name | None = None
    at: Annotated[list[Any], items(8)] | None = None
    shape: Annotated[list[Count], items(4)] | None = None


class OutputRange(Struct, kw_only=True, forbid_unknown_fields=True):
    """A number that an approved program may give, and the widest range."""

    name: Annotated[str, letters(63)]
    lower: Any
    upper: Any


class SubmitPipeline(OfDataSet, frozen=True, kw_only=True):
    """A program to approve."""

    source: Annotated[Any, needed(Annotated[str, letters(200_000)])] = UNSET
    name: Annotated[Any, needed(Name)] = UNSET
    outputs: Annotated[Any, needed(Annotated[list[ProgramOutput], items(64)])] = UNSET
    columns: Annotated[Any, shaped(list[Name] | None)] = UNSET
    epsilon: Number = UNSET
    kind: Annotated[Any, shaped(Short | None)] = UNSET
    environment: Annotated[Any, shaped(Annotated[str, letters(80)] | None)] = UNSET


class OnePipeline(OfDataSet, frozen=True, kw_only=True):
    """A program, by its digest."""

    pipeline: Name


class DecidePipeline(OnePipeline, frozen=True, kw_only=True):
    """An owner's decision on a program."""

    state: Literal["approved", "declined"]
    most_epsilon: Annotated[Number, Meta(description="The largest epsilon of one run.")] = None


class PipelineTerms(OnePipeline, frozen=True, kw_only=True):
    """The price of a run, and how the people are split into blocks."""

    epsilon: NeededNumber = UNSET
    blocks: Annotated[Any, shaped(Count | None)] = UNSET
    trim: Annotated[Any, shaped(Annotated[int, Meta(ge=0)] | None)] = UNSET
    cpu_s: Number = UNSET
    memory_mb: Annotated[Any, shaped(Count | None)] = UNSET
    disk_mb: Annotated[Any, shaped(Count | None)] = UNSET
    delta: Number = UNSET
    take: Annotated[Any, shaped(Short | None, "`mean` or `median`.")] = UNSET


class PlanPipeline(PipelineTerms, frozen=True, kw_only=True):
    """The terms of a run to plan, and the synthetic people on which it is tried."""

    people: Annotated[Any, shaped(Count | None)] = None
    seed: Annotated[Any, shaped(Label | None)] = None


class RunPipeline(PipelineTerms, frozen=True, kw_only=True):
    """The terms of a run, and its operation id."""

    op: Label | None = None

    def __post_init__(self) -> None:
        """Read the exact numbers; refuse an unusable operation id."""
        super().__post_init__()
        if self.op is not None and not (1 <= len(self.op) <= 100 and self.op.isprintable()):
            raise self.malformed("op has to be 1 to 100 printable letters")


class SetPipelineRule(OfDataSet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that approves programs: who, on which columns, for which numbers and prices."""

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
    """A rule, by its id."""

    rule: Name


class Pipeline(Reply):
    """A submitted program and its state."""

    digest: Name
    data_set: Name
    state: Name


class ProgramEnvironment(Reply):
    """An environment in which programs of this data set may run."""

    name: Annotated[str, letters(80)]
    kind: Short
    digest: Annotated[str, letters(64)]


class Pipelines(Reply):
    """The programs of a data set, and the environments that they may use."""

    pipelines: list[Pipeline]
    environments: list[ProgramEnvironment]


class PipelinePrice(Reply):
    """The price of a run, and the error of its noise."""

    epsilon: float
    blocks: int


class PipelinePlan(Reply):
    """The noise and the bias for several numbers of blocks."""

    proposed: Annotated[
        int | None, Meta(description="The proposed number of blocks; null: none is proposed.")
    ]
    at: list[Any]


class PipelineRule(Reply):
    """A rule that approves programs."""

    rule: Name
    data_set: Name


class PipelineRules(Reply):
    """The rules of a data set."""

    rules: list[PipelineRule]
