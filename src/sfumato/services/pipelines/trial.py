"""A program tried on made-up people: how far few people's results lie from everybody's.

Everything here is a function of card, program and seed: the people are a schema twin's, and no row
is read. What it says is of that twin; the real rows can be less kind, and the twin's files are
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.card import Card
from sfumato.core.expression import Json
from sfumato.core.outputs import Output, bad_pipeline, read_said
from sfumato.core.ports import IntegerArray
from sfumato.core.sandbox import MOST_KEPT, Sandbox, TrialJob
from sfumato.core.twins.seeded import Seeded
from sfumato.plan.pipeline import GROUP, PARTICIPANT, Run, inside_at
from sfumato.services.pipelines.made_up import MadeUp, made_up, values_of

SAMPLE: Final = 8  # blocks of each size that are tried
MOST_PEOPLE: Final = 20_000
MOST_CPU_S: Final = 2  # of a block: nobody has approved the program, and others wait meanwhile
MOST_VALUES: Final = 2_000_000  # of all made-up people together
MOST_FOLDERS: Final = 200  # people with folders, each of which is laid out in several blocks
MOST_ALONE_S: Final = 120  # processor seconds of all people's own runs
_ROWS: Final = (
    "bias is of made-up people, whom the card alone describes: of the real ones it can be larger, "
    "and no interval covers it"
)
_FILES: Final = (
    "their files are empty, so nothing is told of what the program makes of files: only of what it "
    "makes of tables, and of few people"
)
_SILENT: Final = (
    "of {}, everybody together gave the middle of the range, which stands for no result too: if it "
    "is none, neither bias nor the proposed number says anything"
)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """What a number of blocks does: how the noise and the bias of each output come out."""

    run: Run
    bias: dict[str, float]
    within: dict[str, float]  # how far off the bias itself is, at 95 %: it is of few blocks
    middle: dict[str, int]  # of the blocks tried, how many gave but the middle, as who fails does

    def as_json(self) -> Json:
        """Return it as a line of a table."""
        noise = self.run.margins()
        line: Json = {"blocks": self.run.blocks, "noise": noise, "bias": self.bias}
        middle: Json = {"in_the_middle": self.middle, "tried": self.count}
        return {**line, "bias_within": self.within, **middle, "together": self.together}

    @property
    def count(self) -> int:
        """Return how many blocks were tried."""
        return min(SAMPLE, self.run.blocks)

    def is_mute(self, silent: Sequence[str]) -> bool:
        """Return whether most blocks gave but the middle, and everybody together did not."""
        return any(2 * n > self.count for name, n in self.middle.items() if name not in silent)

    @property
    def together(self) -> float:
        """Return noise and bias of the worst output, as a share of its range."""
        noise = self.run.margins()
        return max(
            (noise[one.name] + abs(self.bias.get(one.name, 0.0))) / float(one.upper - one.lower)
            for one in self.run.program.outputs
        )


@dataclass(frozen=True)
class Table:
    """What every number of blocks does, and what is to be known of it."""

    lines: tuple[Tried, ...]
    silent: tuple[str, ...]  # outputs of which everybody together gave but the middle

    @property
    def proposed(self) -> int:
        """Return the number of blocks at which noise and bias together are least.

        Where most blocks failed, the bias is that of the middle, and may be small by chance.
        """
        told = [line for line in self.lines if not line.is_mute(self.silent)]
        return min(told or self.lines, key=lambda line: line.together).run.blocks

    def says(self) -> str:
        """Return, in words, what the table can tell and what it cannot."""
        files = [_FILES] if self.lines[0].run.program.is_study else []
        silent = [_SILENT.format(", ".join(self.silent))] if self.silent else []
        return "; ".join((_ROWS, *files, *silent))


def check_trial(run: Run, card: Card, people: int) -> None:
    """Refuse what would keep others waiting for long."""
    if values_of(card, people) > MOST_VALUES:
        raise bad_pipeline(f"a plan makes up {MOST_VALUES:,} values at most; say fewer people")
    if run.limits.cpu_s > MOST_CPU_S:
        raise bad_pipeline(f"a plan gives a block {MOST_CPU_S} processor seconds at most")
    most = min(MOST_FOLDERS, run.program.people)
    if run.program.is_study and people > most:
        raise bad_pipeline(f"a plan makes up folders of {most} people of this card at most")
    if run.turns and people * run.limits.cpu_s > MOST_ALONE_S:
        raise bad_pipeline(
            f"a plan gives people's own runs {MOST_ALONE_S} processor seconds together, so say "
            f"fewer people than {people}, or less time for each"
        )


def tried(sandbox: Sandbox, card: Card, runs: Sequence[Run], people: int, seed: str) -> Table:
    """Return what each run's number of blocks does on so many made-up people."""
    run, program = runs[0], runs[0].program
    made = made_up(card, program, people, seed)
    left = _left_alone(sandbox, made, run) if run.turns else {}
    texts = [made.block(made.people, left)]
    for one in runs:
        dealt = Seeded(seed, f"blocks {one.blocks}").integers(one.blocks, len(made.people))
        for block in range(min(SAMPLE, one.blocks)):
            mine = [name for name, own in zip(made.people, dealt, strict=True) if own == block]
            texts.append(made.block(mine, left))
    job = TrialJob(inside_at(program, card, GROUP), tuple(texts), run.limits, program.own)
    said = [read_said(text, program.outputs) for text in sandbox.try_out(job)]
    whole, *rest = np.array(said, dtype=np.int64)
    found, place = [], 0
    for one in runs:
        count = min(SAMPLE, one.blocks)
        found.append(_compared(one, whole, np.stack(rest[place : place + count])))
        place += count
    return Table(tuple(found), _silent(program.outputs, whole))


def _left_alone(sandbox: Sandbox, made: MadeUp, run: Run) -> dict[str, bytes]:
    """Return what everybody's own run has left, of each made-up person by name."""
    job = TrialJob(
        inside_at(run.program, made.card, PARTICIPANT),
        tuple(made.block([person], {}) for person in made.people),
        replace(run.limits, most_bytes=MOST_KEPT),
        run.program.own,
    )
    return dict(zip(made.people, sandbox.try_out(job), strict=True))


def _compared(run: Run, whole: IntegerArray, blocks: IntegerArray) -> Tried:
    """Return how far blocks' average lies from everybody's, for the worst number of each output."""
    sizes = _sizes(run.program.outputs)
    apart = (blocks.mean(axis=0) - whole) * sizes
    spread = 1.96 * blocks.std(axis=0, ddof=1) * sizes / np.sqrt(len(blocks))
    bias, within, middle = {}, {}, {}
    for output, own in _places(run.program.outputs):
        worst = own.start + int(np.abs(apart[own]).argmax())
        bias[output.name], within[output.name] = float(apart[worst]), float(spread[worst])
        middle[output.name] = int((blocks[:, own] == output.middle).all(axis=1).sum())
    return Tried(run, bias, within, middle)


def _silent(outputs: Sequence[Output], whole: IntegerArray) -> tuple[str, ...]:
    """Return the outputs of which everybody together gave but the middle."""
    return tuple(o.name for o, own in _places(outputs) if (whole[own] == o.middle).all())


def _places(outputs: Sequence[Output]) -> list[tuple[Output, slice]]:
    """Return where the numbers of each output lie among all."""
    ends = np.cumsum([output.count for output in outputs]).tolist()
    return [(o, slice(end - o.count, end)) for o, end in zip(outputs, ends, strict=True)]


def _sizes(outputs: Sequence[Output]) -> Floats:
    """Return what a step of each number is worth, in its own units."""
    return np.array([float(o.step) for o in outputs for _ in range(o.count)])
