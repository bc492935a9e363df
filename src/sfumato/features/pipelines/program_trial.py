"""Try a program on synthetic people, to estimate the bias of blocks before a paid run.

The bias is the difference between the average of blocks and the result on everybody. The trial
depends on card, program and seed alone: it uses a schema twin and reads no row. Real rows can give
a larger bias, and the twin's files are empty or invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.ports import IntegerArray
from sfumato.features.pipelines.estimator_comparison import (
    RESAMPLES,
    Combination,
    best_of,
    compare,
)
from sfumato.features.pipelines.means_of_columns import (
    MeanOfColumn,
    SyntheticRows,
    means_of_columns,
)
from sfumato.features.pipelines.model import bad_run
from sfumato.features.pipelines.program_plan import (
    BLOCKS,
    GROUP,
    MAX_CPU_S,
    PARTICIPANT,
    Program,
    Run,
    inside_at,
)
from sfumato.features.pipelines.synthetic_blocks import (
    SyntheticBlocks,
    synthetic_blocks,
    undeclared_missing,
    values_of,
)
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.sandbox.block_timing import turn_s
from sfumato.sandbox.ports import MAX_KEPT, Sandbox, TrialJob, TrialResult
from sfumato.sandbox.program_environment import is_image
from sfumato.sandbox.program_outputs import (
    Output,
    Reading,
    parsed_outputs,
    read_output,
)
from sfumato.sandbox.program_traces import FileReading
from sfumato.vault.card.data_card import Card

SAMPLE: Final = 8  # the number of blocks that are tried, for each number of blocks
MAX_PEOPLE: Final = 20_000
# the most processor time of a block, in seconds: low while nobody has approved the program, because
# other users wait; higher once it is approved, and for the owner
MAX_WAITING_S, MAX_TRUSTED_S = 2, 60
# limit for all runs of a plan together, in seconds of processor time: of blocks and of people
MAX_TOGETHER_S: Final = 600
MAX_VALUES: Final = 2_000_000  # the most cells in the tables of all synthetic people together
MAX_FOLDERS: Final = 200  # the most people with folders; each folder is written for several blocks
# limit for all per-person runs of a program that nobody has approved, in seconds of processor time
MAX_ALONE_S: Final = 120
_ROWS: Final = (
    "the bias was measured on synthetic people made from the data card alone: for real people it "
    "can be larger, and no interval covers it"
)
_FILES: Final = (
    "the synthetic people's files are empty (tables such as events have invented rows), so the "
    "trial says nothing about files: only about tables, and about few people"
)
_UNDECLARED: Final = (
    "the card does not say how many values are missing in {}: the synthetic people lack {:g} % "
    "there, and real rows may have n/a or an empty cell more often"
)
_NEVER: Final = (
    "no number of blocks is proposed, because on synthetic people the program never gave a "
    "number for {}"
)
_UNKNOWN: Final = (
    "no number of blocks is proposed, because everybody together gave no number for {}"
)
_FEW: Final = (
    "no number of blocks is proposed, because more than a quarter of the blocks gave no number, "
    "though everybody together did"
)
_SILENT: Final = "everybody together gave no number for {}, so its bias is unknown"
_STOPPED: Final = (
    "The clock stopped every run of the trial before it gave a number: the machine was too busy, "
    "or the program waits for something. The trial says nothing about the program, and is not "
    "recorded. Try again when the machine is less busy."
)
_NAMED: Final = 8  # the most columns that a sentence names
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrialReport:
    """The noise and the estimated bias of each output, for one number of blocks."""

    run: Run
    bias: dict[str, float]
    within: dict[str, float]  # the 95 % margin of the bias, as it is estimated from few blocks
    # number of tried blocks that gave the middle of the range, as a failed block does
    middle: dict[str, int]
    no_number: dict[str, int]  # number of tried blocks that gave no number
    combinations: tuple[Combination, ...]  # ways to combine the blocks, with their expected errors
    cells_missing: dict[str, float]  # share of missing numbers in all tried blocks, of arrays

    def as_json(self) -> Json:
        """Return the report as one line of the plan's table."""
        noise = self.run.margins()
        line: Json = {"blocks": self.run.blocks, "noise": noise, "bias": self.bias}
        counts: Json = {"in_the_middle": self.middle, "no_number": self.no_number}
        return {
            **line, "bias_within": self.within, **counts, "tried": self.count,
            "together": self.together,
            "combinations": [one.as_json() for one in self.combinations],
            "cells_missing": self.cells_missing,
        }  # fmt: skip

    @property
    def best(self) -> Combination:
        """Return the combination of blocks with the least expected error."""
        return best_of(self.combinations)

    @property
    def count(self) -> int:
        """Return how many blocks the trial ran: all of the run's blocks, but at most 8 (SAMPLE)."""
        return min(SAMPLE, self.run.blocks)

    @property
    def is_mute(self) -> bool:
        """Return True if more than a quarter of the blocks gave no number for some output.

        Such blocks count as the middle of the range. Synthetic people are near the middle too, so
        the bias looks small and says little.
        """
        return any(4 * n > self.count for n in self.no_number.values())

    @property
    def together(self) -> float:
        """Return noise plus absolute bias of the worst output, relative to the output's range."""
        noise = self.run.margins()
        return max(
            (noise[one.name] + abs(self.bias.get(one.name, 0.0))) / float(one.upper - one.lower)
            for one in self.run.program.outputs
        )


@dataclass(frozen=True)
class Shown:
    """One trial run to show: how it ended, what it printed, and which outputs could be read."""

    of: str  # whose run it was: everybody's, one block's or one person's
    people: int
    result: TrialResult
    read: tuple[Reading, ...]
    files: Sequence[FileReading]

    def as_json(self) -> Json:
        """Return the trial run as JSON for the plan."""
        return {
            "of": self.of,
            "people": self.people,
            "ended": self.result.ending,
            "cpu_s": round(self.result.use.cpu_s, 3),
            "wall_s": round(self.result.use.wall_s, 3),
            "memory_mb": -(-self.result.use.memory >> 20),
            "processes": self.result.use.processes,
            "printed": self.result.printed.decode("utf-8", "replace"),
            "read": [one.as_json() for one in self.read],
            **self.result.traces.as_json(self.files),
        }

    @property
    def is_whole(self) -> bool:
        """Return True if every output of the run was a number."""
        return all(one.is_number for one in self.read)


@dataclass(frozen=True)
class Table:
    """The result of a plan: a report for each number of blocks, sample runs, and silent outputs.

    A silent output gave no number in the run on all synthetic people.
    """

    lines: tuple[TrialReport, ...]
    trials: tuple[Shown, ...]  # one per-person run, everybody, and one block per number of blocks
    silent: tuple[str, ...]  # outputs that gave no number in the run on everybody
    means: tuple[MeanOfColumn, ...]  # outputs that were the mean of a column on every block
    took_s: float  # how long all runs held a processor, by the clock, each until its end
    missing_note: str = ""  # a sentence on columns whose card says nothing of missing values
    is_stopped: bool = False  # True if the clock stopped every run, so nothing is known

    @property
    def never(self) -> tuple[str, ...]:
        """Return the outputs that gave no number in any trial run."""
        lines = [line for line in self.lines if line.count]
        return tuple(n for n in self.silent if all(one.no_number[n] == one.count for one in lines))

    @property
    def proposed(self) -> int | None:
        """Return the number of blocks of the first choice, or None if there is no choice."""
        return self.choices[0].run.blocks if self.choices else None

    @property
    def choices(self) -> tuple[TrialReport, ...]:
        """Return the lines that propose how to combine blocks, the least error first.

        A line whose blocks often gave no number is left out: those count as the middle of the
        range, so a small error would be chance. There are no choices if the run on everybody gave
        no number for an output: then nobody knows what the blocks should come near to.
        """
        told = [] if self.silent else [line for line in self.lines if not line.is_mute]
        return tuple(sorted(told, key=lambda line: line.best.relative))

    @property
    def likely(self) -> Run:
        """Return the mean with the proposed number of blocks, or with the most if none is."""
        runs = {line.run.blocks: line.run for line in self.lines}
        return runs[self.proposed or max(runs)]

    def warnings(self) -> list[str]:
        """Return the warnings to show before the table."""
        if self.is_stopped:
            return [_STOPPED]
        if self.never:
            return [_sentence(_NEVER.format(", ".join(self.never)))]
        if self.silent:
            return [_sentence(_UNKNOWN.format(", ".join(self.silent)))]
        return [] if self.proposed is not None else [_sentence(_FEW)]

    def says(self) -> str:
        """Return a text that says what the table can and cannot show."""
        files = [_FILES] if self.lines[0].run.program.is_study else []
        silent = [_SILENT.format(", ".join(self.silent))] if self.silent else []
        missing = [self.missing_note] if self.missing_note else []
        return "; ".join((_ROWS, *files, *silent, *missing))


def blocks_to_try(people: int) -> tuple[int, ...]:
    """Return the numbers of blocks to try, never more blocks than people."""
    few = () if people >= 2 * BLOCKS[0] else (2, 5)
    return tuple(blocks for blocks in (*few, *BLOCKS) if blocks <= people)


def blocks_of_plan(people: int, wanted: object) -> tuple[int, ...]:
    """Return the numbers of blocks that a plan tries: the wanted one alone, or all."""
    if wanted is None:
        return blocks_to_try(people)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 2 <= wanted <= people:
        raise bad_run(f"a plan on {people:,} synthetic people tries 2 to {people:,} blocks")
    return (wanted,)


def can_run(first: Run, blocks: int) -> bool:
    """Return True if a run with the limits of `first` may have that many blocks."""
    limits = first.limits
    turns = blocks + first.person_runs
    return limits.job_s is not None or turns * limits.cpu_s <= MAX_CPU_S


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def check_trial(runs: Sequence[Run], card: Card, people: int, *, is_trusted: bool) -> None:
    """Refuse a trial that would take so long that others have to wait.

    `is_trusted` is True if the owner has approved the program, or tries it themselves.
    """
    run = runs[0]
    if values_of(card, people) > MAX_VALUES:
        raise bad_run(f"a plan makes {MAX_VALUES:,} synthetic values at most; choose fewer people")
    most = min(MAX_FOLDERS, run.program.people)
    if run.program.is_study and people > most:
        raise bad_run(f"a plan makes folders of at most {most} synthetic people for this card")
    if is_trusted:
        _check_together(runs, people)
        return
    if run.limits.cpu_s > MAX_WAITING_S:
        raise bad_run(
            f"a plan of a program that is not approved gives a block {MAX_WAITING_S} processor "
            "seconds at most",
            f"Give less processor time (cpu_s). Once the program is approved, a plan may give "
            f"{MAX_TRUSTED_S}; the owner may try it so before.",
        )
    if run.person_runs and people * run.limits.cpu_s > MAX_ALONE_S:
        raise bad_run(
            f"a plan gives people's own runs {MAX_ALONE_S} processor seconds together; choose "
            f"fewer people than {people}, or less time for each"
        )


def _check_together(runs: Sequence[Run], people: int) -> None:
    """Refuse a trial whose runs, of blocks and of people, are too much together."""
    if runs[0].limits.cpu_s > MAX_TRUSTED_S:
        raise bad_run(f"a plan gives a block {MAX_TRUSTED_S} processor seconds at most")
    needed = trial_s(runs, people)
    if needed > MAX_TOGETHER_S:
        raise bad_run(
            f"all runs of this plan together need {needed:,g} processor seconds, and a plan may "
            f"have {MAX_TOGETHER_S} at most",
            "Try one number of blocks alone (blocks), choose fewer synthetic people, or give less "
            "processor time (cpu_s).",
        )


def trial_s(runs: Sequence[Run], people: int) -> float:
    """Return the processor seconds that a trial's runs, of blocks and of people, may have."""
    return _count(runs, people) * runs[0].limits.cpu_s


def held_s(runs: Sequence[Run], people: int) -> float:
    """Return how long a trial's runs, of blocks and of people, hold a processor at least.

    It is the time by the clock that as many blocks of a paid run have.
    """
    run = runs[0]
    return _count(runs, people) * turn_s(run.limits, is_tree=is_image(run.program.environment))


def _count(runs: Sequence[Run], people: int) -> int:
    """Return how many runs, of blocks and of people, a trial has."""
    alone = people if runs[0].person_runs else 0
    return 1 + alone + sum(min(SAMPLE, run.blocks) for run in runs)


def run_trial(sandbox: Sandbox, card: Card, runs: Sequence[Run], people: int, seed: str) -> Table:
    """Run the program on synthetic people; report noise and bias for each run's blocks."""
    run, program = runs[0], runs[0].program
    made = synthetic_blocks(card, program, people, seed)
    alone = try_alone(sandbox, _job_alone(made, run), made.people) if run.person_runs else {}
    left = {name: one.output for name, one in alone.items()}
    groups = [("everybody together", made.people), *_dealt(made, runs, seed)]
    texts = tuple(made.block(mine, left) for _, mine in groups)
    job = TrialJob(inside_at(program, card, GROUP), texts, run.limits, program.own_environment)
    results = sandbox.try_out(job)
    shown = [
        _shown(of, len(mine), one, program) for (of, mine), one in zip(groups, results, strict=True)
    ]
    numbers = np.array([read_output(one.output, program.outputs) for one in results], np.int64)
    whole, *rest = numbers
    whose = [mine for _, mine in groups]
    means = means_of_columns(card, program.outputs, _rows(made), whose, numbers)
    silent = tuple(one.name for one in shown[0].read if not one.is_number)
    found, trials, place = [], [*_own_run(alone), shown[0]], 0
    for one in runs:
        own = slice(place, place + min(SAMPLE, one.blocks))
        drawn = Seeded(seed, f"resamples {one.blocks}").integers(
            min(SAMPLE, one.blocks), RESAMPLES * one.blocks
        )
        tried = Tried(whole, np.stack(rest[own]), drawn.reshape(RESAMPLES, one.blocks))
        found.append(_compared(one, tried, shown[1:][own]))
        # show a failed run if there is one
        trials.append(min(shown[1:][own], key=lambda block: block.is_whole))
        place = own.stop
    took = sum(one.use.wall_s for one in (*alone.values(), *results))
    is_stopped = all(one.ended == "stalled" for one in results)
    note = _missing_note(card, program.columns)
    return Table(tuple(found), tuple(trials), silent, means, took, note, is_stopped)


def _shown(of: str, people: int, result: TrialResult, program: Program) -> Shown:
    """Return a run on a block as it is shown; what a function writes into a file is no result."""
    paths = () if program.kind == "function" else [one.path for one in program.outputs]
    read = tuple(parsed_outputs(result.output, program.outputs))
    return Shown(of, people, result, read, result.block_files(paths))


def _missing_note(card: Card, columns: Sequence[str]) -> str:
    """Return a sentence on the columns whose card says nothing of missing values."""
    names, share = undeclared_missing(card, columns)
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return _UNDECLARED.format(shown, 100 * share) if names else ""


def _rows(made: SyntheticBlocks) -> SyntheticRows:
    """Return the rows of the main table for all synthetic people."""
    table = made.tables[0]
    lines = [(name, line) for name in made.people for line in table.of.get(name, ())]
    cells = tuple(tuple(line.rstrip("\n").split("\t")) for _, line in lines)
    columns = tuple(table.head.rstrip("\n").split("\t"))
    return SyntheticRows(columns, tuple(name for name, _ in lines), cells)


def _dealt(
    made: SyntheticBlocks, runs: Sequence[Run], seed: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Deal synthetic people to blocks at random, for each number of blocks of a plan.

    Yield a label and the people of each block that is tried.
    """
    for one in runs:
        dealt = Seeded(seed, f"blocks {one.blocks}").integers(one.blocks, len(made.people))
        for block in range(min(SAMPLE, one.blocks)):
            pairs = zip(made.people, dealt, strict=True)
            yield f"one of {one.blocks} blocks", tuple(name for name, own in pairs if own == block)


def try_alone(sandbox: Sandbox, job: TrialJob, people: Sequence[str]) -> dict[str, TrialResult]:
    """Run a program for each person alone; return the results by the person's name.

    Args:
        sandbox: What runs it.
        job: The program, with the input of each person, in the order of `people`.
        people: The names of the people.
    """
    kept = replace(job, limits=replace(job.limits, most_bytes=MAX_KEPT))
    return dict(zip(people, sandbox.try_out(kept), strict=True))


def _job_alone(made: SyntheticBlocks, run: Run) -> TrialJob:
    """Return the order to run the program for each synthetic person alone."""
    inputs = tuple(made.block([person], {}) for person in made.people)
    told = inside_at(run.program, made.card, PARTICIPANT)
    return TrialJob(told, inputs, run.limits, run.program.own_environment)


def _own_run(alone: Mapping[str, TrialResult]) -> list[Shown]:
    """Return one per-person run to show: a failed run if there is one, else the first."""
    if not alone:
        return []
    one = min(alone.values(), key=lambda result: result.ending == "exit status 0")
    return [Shown("somebody's own run", 1, one, (), one.person_files())]


@dataclass(frozen=True)
class Tried:
    """The numbers of a trial in steps: of everybody together, and of each tried block."""

    whole: IntegerArray
    blocks: IntegerArray
    resamples: IntegerArray  # places of tried blocks; each row stands for all blocks of a run


def _compared(run: Run, tried: Tried, shown: Sequence[Shown]) -> TrialReport:
    """Estimate the bias: compare the average of the blocks with the result on all synthetic people.

    An output with several numbers is represented by the number with the largest bias.
    """
    whole, blocks, sizes = tried.whole, tried.blocks, _sizes(run.program.outputs)
    apart = (blocks.mean(axis=0) - whole) * sizes
    spread = 1.96 * blocks.std(axis=0, ddof=1) * sizes / np.sqrt(len(blocks))
    bias, within, middle, no_number = {}, {}, {}, {}
    for place, (output, own) in enumerate(_places(run.program.outputs)):
        worst = own.start + int(np.abs(apart[own]).argmax())
        bias[output.name], within[output.name] = float(apart[worst]), float(spread[worst])
        middle[output.name] = int((blocks[:, own] == output.middle).all(axis=1).sum())
        no_number[output.name] = sum(not one.read[place].is_number for one in shown)
    combinations = compare(run, whole, blocks, tried.resamples)
    missing = _cells_missing(run.program.outputs, shown)
    return TrialReport(run, bias, within, middle, no_number, combinations, missing)


def _cells_missing(outputs: Sequence[Output], shown: Sequence[Shown]) -> dict[str, float]:
    """Return for each array or table which share of its numbers the tried blocks did not give."""
    shares = {}
    for place, output in enumerate(outputs):
        if output.shape and shown:
            read = [one.read[place] for one in shown]
            lacks = sum(one.lacks if one.is_number else output.count for one in read)
            shares[output.name] = lacks / (output.count * len(shown))
    return shares


def _places(outputs: Sequence[Output]) -> list[tuple[Output, slice]]:
    """Pair each output with the slice of its numbers in the array of all numbers."""
    ends = np.cumsum([output.count for output in outputs]).tolist()
    return [(o, slice(end - o.count, end)) for o, end in zip(outputs, ends, strict=True)]


def _sizes(outputs: Sequence[Output]) -> Floats:
    """Return for each number how large one step of it is, in the number's own unit."""
    return np.array([float(o.step) for o in outputs for _ in range(o.count)])
