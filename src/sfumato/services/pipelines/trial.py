"""A program tried on made-up people: how far few people's results lie from everybody's.

Everything here is a function of card, program and seed: the people are a schema twin's, and no row
is read. What it says is of that twin; the real rows can be less kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.card import Card
from sfumato.core.expression import Json
from sfumato.core.outputs import Output
from sfumato.core.ports import IntegerArray
from sfumato.core.sandbox import Sandbox, TrialJob
from sfumato.core.twins.schema import TwinTable, most_rows, schema_tables
from sfumato.core.twins.seeded import Seeded
from sfumato.core.twins.written import NOT_AVAILABLE, written
from sfumato.plan.pipeline import Run

SAMPLE: Final = 8  # blocks of each size that are tried
MOST_PEOPLE: Final = 20_000
MOST_CPU_S: Final = 2  # of a block: nobody has approved the program, and others wait meanwhile
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """What a number of blocks does: how the noise and the bias of each output come out."""

    run: Run
    bias: dict[str, float]
    within: dict[str, float]  # how far off the bias itself is, at 95 %: it is of few blocks

    def as_json(self) -> Json:
        """Return it as a line of a table."""
        noise = self.run.margins()
        line: Json = {"blocks": self.run.blocks, "noise": noise, "bias": self.bias}
        return {**line, "bias_within": self.within, "together": self.together}

    @property
    def together(self) -> float:
        """Return noise and bias of the worst output, as a share of its range."""
        noise = self.run.margins()
        return max(
            (noise[one.name] + abs(self.bias.get(one.name, 0.0))) / float(one.upper - one.lower)
            for one in self.run.program.outputs
        )


def tried(sandbox: Sandbox, card: Card, runs: Sequence[Run], people: int, seed: str) -> list[Tried]:
    """Return what each run's number of blocks does on so many made-up people."""
    table = _twin(card, people, seed)
    persons = list(dict.fromkeys(str(row[0]) for row in table.rows))
    texts = [_text(card, runs[0], table, set(persons))]
    for run in runs:
        dealt = Seeded(seed, f"blocks {run.blocks}").integers(run.blocks, len(persons))
        for block in range(min(SAMPLE, run.blocks)):
            mine = {name for name, own in zip(persons, dealt, strict=True) if own == block}
            texts.append(_text(card, run, table, mine))
    program = runs[0].program
    job = TrialJob(program.inside(), tuple(texts), program.outputs, runs[0].limits, program.own)
    whole, *rest = _in_units(sandbox.try_out(job), program.outputs)
    found, place = [], 0
    for run in runs:
        count = min(SAMPLE, run.blocks)
        found.append(_compared(run, whole, rest[place : place + count]))
        place += count
    return found


def _compared(run: Run, whole: Floats, blocks: Sequence[Floats]) -> Tried:
    """Return how far blocks' average lies from everybody's, for the worst number of each output."""
    apart = np.stack(blocks).mean(axis=0) - whole
    spread = 1.96 * np.stack(blocks).std(axis=0, ddof=1) / np.sqrt(len(blocks))
    bias, within, place = {}, {}, 0
    for output in run.program.outputs:
        own = slice(place, place + output.count)
        worst = place + int(np.abs(apart[own]).argmax())
        bias[output.name], within[output.name] = float(apart[worst]), float(spread[worst])
        place += output.count
    return Tried(run, bias, within)


def _in_units(steps: IntegerArray, outputs: Sequence[Output]) -> list[Floats]:
    """Return what each block said, in the outputs' own units."""
    lowers = np.array([float(o.lower) for o in outputs for _ in range(o.count)])
    sizes = np.array([float(o.step) for o in outputs for _ in range(o.count)])
    return [lowers + sizes * line for line in steps]


def _twin(card: Card, people: int, seed: str) -> TwinTable:
    rows = people * (1 + most_rows(card.every_table[0])) // 2
    return schema_tables(card, max(1, rows), seed)[0]


def _text(card: Card, run: Run, table: TwinTable, people: set[str]) -> bytes:
    """Return rows as a block has them (engines/splitting.py)."""
    places = [table.columns.index(name) for name in run.program.columns]
    lines = ["\t".join((card.unit, *run.program.columns))]
    for row in table.rows:
        if str(row[0]) in people:
            cells = (NOT_AVAILABLE if row[p] is None else written(row[p]) for p in places)
            lines.append("\t".join((str(row[0]), *(_plain(cell) for cell in cells))))
    return ("\n".join(lines) + "\n").encode()


def _plain(text: str) -> str:
    return " ".join(text.split()) if not text.isprintable() else text
