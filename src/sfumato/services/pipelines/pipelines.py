"""Hand in, approve and run programs; approving is the owner's act, once for each digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from sfumato.core.access import Caller
from sfumato.core.budget import read_epsilon
from sfumato.core.environment import read_own
from sfumato.core.expression import Json, spelled
from sfumato.core.outputs import bad_pipeline
from sfumato.core.pipeline import APPROVED, WAITING, PipelineStore, Submitted
from sfumato.core.ports import Catalogue, Clock, Dice, Listing
from sfumato.core.refusal import Refused
from sfumato.core.sandbox import SandboxStopped, SplitOrder
from sfumato.door import Asker, PipelineDoor, Release, RunOrder, no_sandbox, run_pipeline
from sfumato.plan.pipeline import BLOCKS, MEAN, MEDIAN, Program, Run, read_program, read_run
from sfumato.services.pipelines.rules import PipelineRules, by_rule
from sfumato.services.pipelines.trial import MOST_CPU_S, MOST_PEOPLE, tried

MOST_WAITING: Final = 100  # of a data set; nobody fills the owner's desk


@dataclass(frozen=True)
class Asked:
    """What somebody says of a run: which program, on how many blocks, at what price."""

    data_set: str
    digest: str
    terms: Mapping[str, object]
    op: str | None = None


@dataclass(frozen=True)
class Unsplit:
    """An engine whose rows cannot be split into blocks yet."""

    kind: str

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Refuse."""
        raise _not_on(self.kind)

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Refuse."""
        raise _not_on(self.kind)

    def room(self, table: str) -> int:
        """Return that there is none."""
        return 0


@dataclass(frozen=True)
class Pipelines:
    """The programs of one vault."""

    door: PipelineDoor
    store: PipelineStore
    catalogue: Catalogue
    clock: Clock
    dice: Dice
    rules: PipelineRules

    def submit(self, caller: Caller, data_set: str, shape: Mapping[str, object]) -> Json:
        """Hand in a program; it waits for the owner, unless it is their own or fits a rule."""
        listing, asker = self._listing(caller, data_set)
        own = read_own(shape.get("environment"))
        program = read_program(listing.card, shape, self.door.sandbox.environment(own))
