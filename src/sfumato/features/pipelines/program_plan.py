"""Plan a pipeline by sample and aggregate: an untrusted program runs on blocks of people.

All terms are fixed before any row is read: they depend on the submitted program and the card
alone. The privacy loss holds whatever the program does; see
dp/sampling/sampling_in_blocks.proof.md and median_of_blocks.proof.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.accounting.privacy_events import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    JointEvent,
    PureEvent,
)
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import read_delta
from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.median_of_blocks import MAX_STEPS, ranks_off
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import bad_run, title_of
from sfumato.features.pipelines.price_split_plan import (
    PriceSplit,
    SplitTerms,
    margin_of,
    noise_of,
    read_errors,
    read_shares,
    split_price,
)
from sfumato.features.pipelines.program_files import Modules, read_texts
from sfumato.features.pipelines.program_folder import modules_json, text_digest
from sfumato.query.expression import canonical_json
from sfumato.sandbox.block_columns import block_columns, folder_columns, folder_tables
from sfumato.sandbox.ports import BATCH, ISOLATED, SandboxLimits
from sfumato.sandbox.program_environment import is_image, own_of
from sfumato.sandbox.program_outputs import ANSWER, Output, bad_pipeline, read_outputs
from sfumato.vault.card.bids_files import data_set_files
from sfumato.vault.card.data_card import ROW, Card

KINDS: Final = ("function", "program", "bids")
_ISOLATED_SAYS: Final = "isolated: blocks start at fixed times, and no block can affect another"
_BATCH_SAYS: Final = (
    "batch: blocks run side by side, because the owner has reviewed the program; what one block "
    "can tell another through the machine they share (its load, its memory, its counters) is "
    "outside the guarantee"
)
GROUP, PARTICIPANT = "group", "participant"  # the two analysis levels of BIDS apps
MEAN, MEDIAN = "mean", "median"  # how the results of blocks are combined
AUTO: Final = "auto"  # as the program's last trial proposed; a run itself has one of the others
MAX_BLOCKS: Final = 1000
DEFAULT_BLOCKS: Final = 50  # fewer if the card declares few people
LEAST_PEOPLE: Final = 10  # of a block on average, in the default number of blocks
# processor time of all blocks, in seconds: run one by one, they still end before a job's time limit
MAX_CPU_S: Final = 7200
MAX_FILE: Final = 100  # the most letters of the name of a program's file
BLOCKS: Final = (10, 20, 50, 100, 200, 500)  # the numbers of blocks that an error table compares
_LIMITS: Final = {
    "cpu_s": (Fraction(1, 20), Fraction(600)),
    "memory_mb": (Fraction(256), Fraction(16_384)),
    "disk_mb": (Fraction(16), Fraction(4_096)),
    "job_s": (Fraction(1), Fraction(MAX_CPU_S)),
}
DISK_MB: Final = SandboxLimits.disk_mb  # the default disk space of a block, in megabytes


@dataclass(frozen=True)
class Program:
    """A submitted program with its declared outputs, which an owner approves by its digest."""

    data_set: str
    # one of KINDS; a "bids" program first runs for each person alone, then for each block
    kind: str
    source: str
    name: str  # the name of the function or of the program
    columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    # the digest of the interpreter and libraries, and the name of the program's own environment
    environment: str = ""
    # the most people with folders, as the card declares; 0 if a block is only a table
    people: int = 0
    files: tuple[str, ...] = ()  # the card's patterns for the files of a person's folder
    main: str = ""  # the path of the main file, whose text is the source; "" for a single file
    modules: Modules = ()  # the other files of a program of several
    file: str = ""  # the name of the program's file, for lists; not a part of what is approved

    @property
    def title(self) -> str:
        """Return what lists and answers call the program."""
        return title_of(self.kind, self.name, self.file, self.own_environment)

    @property
    def own_environment(self) -> str:
        """Return the name of the environment that the program brings, or an empty text."""
        return own_of(self.environment)

    @property
    def is_study(self) -> bool:
        """Return True if a block is a folder with its people's files, and not only a table."""
        return self.people > 0 and self.kind != "function"

    def as_json(self) -> Json:
        """Return the program as JSON with exact numbers, for the digest."""
        return {
            "kind": self.kind,
            "environment": self.environment,
            "data_set": self.data_set,
            "source": self.source,
            "name": self.name,
            "columns": list(self.columns),
            "outputs": [output.as_json() for output in self.outputs],
            **({"files": list(self.files)} if self.is_study else {}),
            **modules_json(self.main, self.modules),
        }

    def stored_json(self) -> Json:
        """Return the program as JSON for the store, with the name of its file."""
        return {**self.as_json(), **({"file": self.file} if self.file else {})}

    @property
    def text_digest(self) -> str:
        """Return a SHA-256 of the program's text alone, with all of its files."""
        return text_digest(self.as_json())

    @property
    def digest(self) -> str:
        """Return a SHA-256 of the program with its inputs, outputs and environment."""
        return hashlib.sha256(canonical_json(self.as_json()).encode()).hexdigest()

    def inside(self) -> dict[str, object]:
        """Return what the process in the sandbox must know: the program and its outputs' names."""
        return {
            "kind": self.kind,
            "source": self.source,
            "name": self.name,
            "outputs": [output.name for output in self.outputs],
            "paths": [output.path for output in self.outputs],
            **({"main": self.main, "modules": dict(self.modules)} if self.modules else {}),
        }


@dataclass(frozen=True)
class Run:
    """The terms of one run: program, number of blocks, trimming, epsilon, and limits.

    Blocks are disjoint groups of people. `take` is how their results are combined: mean or median.
    """

    program: Program
    blocks: int
    trim: int
    epsilon: Fraction
    limits: SandboxLimits
    take: str = MEAN
    delta: Fraction = Fraction(0)  # the most delta that the run may spend
    split: PriceSplit | None = None  # how outputs share the price; None: all numbers equally

    @property
    def numbers(self) -> int:
        """Return how many numbers the run releases, including every entry of arrays.

        These numbers share epsilon.
        """
        return sum(output.count for output in self.program.outputs)

    @property
    def person_runs(self) -> int:
        """Return how many times the program runs for a single person, before the blocks.

        Each of these runs has a new sandbox.
        """
        return self.program.people if self.program.is_study and self.program.kind == "bids" else 0

    @property
    def person_run_key(self) -> str:
        """Return the key of stored per-person results: a hash of the program and its limits."""
        limits = self.limits.cpu_s, self.limits.memory_mb, self.limits.disk_mb
        said = f"{self.program.digest} {limits!r}{' batch' if self.limits.is_batch else ''}"
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def loss(self, output: Output) -> Fraction:
        """Return the privacy loss of one number of an output, in epsilon; in rho if Gaussian."""
        if self.split is None:
            return (self.rho or self.epsilon) / self.numbers
        return self.split.losses[self.program.outputs.index(output)]

    @property
    def losses(self) -> tuple[Fraction, ...]:
        """Return the privacy loss of every released number; their sum is the price."""
        every = ([self.loss(o)] * o.count for o in self.program.outputs)
        return tuple(loss for of_output in every for loss in of_output)

    @property
    def rho(self) -> Fraction:
        """Return the rho (zCDP) of Gaussian noise on all numbers together; 0 for Laplace noise.

        In units of each range, one block changes each number by 1. So it changes a vector of n
        numbers by sqrt(n) in the L2 norm. So Gaussian noise is smaller than Laplace noise if there
        are many numbers.
        """
        if self.split is not None:
            return self.split.rho
        if self.take == MEDIAN or self.delta == 0:
            return Fraction(0)
        rho = rho_within(self.epsilon, self.delta)
        is_narrower = 4 * rho * self.numbers > self.epsilon**2  # n/2rho < 2(n/epsilon)^2
        return rho if is_narrower else Fraction(0)

    @property
    def spent_delta(self) -> Fraction:
        """Return the delta that the run spends. It is 0 unless the noise is Gaussian."""
        return self.delta if self.rho else Fraction(0)

    @property
    def event(self) -> Event:
        """Return the privacy event (mechanism and its parameters) that the ledger charges."""
        if self.take == MEDIAN:
            every = tuple(ExponentialEvent(loss) for loss in self.losses)
            return every[0] if self.numbers == 1 else JointEvent(every)
        if self.rho:
            return GaussianEvent(self.rho, self.epsilon, self.delta)
        return PureEvent(self.epsilon)

    @property
    def mechanism(self) -> str:
        """Return the name of the mechanism that releases each number of the run."""
        if self.take == MEDIAN:
            return "exponential mechanism"
        return "gaussian" if self.rho else "laplace"

    @property
    def noises(self) -> tuple[Noise, ...]:
        """Return the noise of each output's sum over blocks, in steps of its range.

        It is empty for medians, which get no added noise.
        """
        found = map(self.noise, self.program.outputs)
        return tuple(noise for noise in found if noise is not None)

    def draws(self) -> list[tuple[Noise, int]]:
        """Return each output's noise, with how many random values of it the output needs."""
        counts = (output.count for output in self.program.outputs)
        return list(zip(self.noises, counts, strict=False))

    def noise_json(self) -> list[Json]:
        """Return the mechanism and noise of each output for the ledger, with exact numbers."""
        if self.take == MEDIAN:
            shown = self.program.outputs[: 1 if self.split is None else None]
            each = (str(self.loss(output)) for output in shown)
            return [{"kind": "exponential mechanism", "epsilon_a_number": one} for one in each]
        return [noise.as_json() for noise in self.noises]

    def noise(self, output: Output) -> Noise | None:
        """Return the Laplace or Gaussian noise of each number of an output; None for a median."""
        if self.take == MEDIAN:
            return None
        return noise_of(output, self.loss(output), self.mechanism)

    @property
    def counted(self) -> int:
        """Return how many blocks count in the average: all but those that trimming leaves out.

        A block counts whether or not it gave a number.
        """
        return self.blocks - 2 * self.trim

    def margins(self) -> dict[str, float]:
        """Return the 95 % margin of the noise for each output, in the output's unit.

        For a median, the margin is a number of ranks among the blocks, because the value of a rank
        is private.
        """
        if self.take == MEDIAN:
            return {
                o.name: float(ranks_off(self.loss(o), o.steps, CONFIDENCE))
                for o in self.program.outputs
            }
        pairs = zip(self.program.outputs, self.noises, strict=True)
        return {o.name: float(margin_of(o, noise, self.counted)) for o, noise in pairs}

    def split_json(self) -> list[Json]:
        """Return how the outputs share the price: the loss of each output, with all its numbers."""
        unit = "rho" if self.rho else "epsilon"
        return [
            {"output": o.name, "numbers": o.count, unit: float(o.count * self.loss(o))}
            for o in self.program.outputs
        ]

    def as_json(self) -> Json:
        """Return the run's terms as JSON for the ledger; the source is replaced by its digest."""
        job_s = self.limits.job_s
        return {
            "digest": self.program.digest,
            "data_set": self.program.data_set,
            "name": self.program.name,
            "columns": list(self.program.columns),
            "outputs": [output.as_json() for output in self.program.outputs],
            "blocks": self.blocks,
            "trim": self.trim,
            **({} if self.take == MEAN else {"take": self.take}),
            "epsilon": str(self.epsilon),
            **({"delta": str(self.delta)} if self.rho else {}),
            **self._split_in_ledger(),
            "cpu_s": str(Fraction(repr(self.limits.cpu_s))),
            "memory_mb": self.limits.memory_mb,
            **({} if self.limits.disk_mb == DISK_MB else {"disk_mb": self.limits.disk_mb}),
            **({"timing": BATCH} if self.limits.is_batch else {}),
            **({} if job_s is None else {"job_s": str(Fraction(repr(job_s)))}),
        }

    @property
    def timing_says(self) -> str:
        """Return a text on how blocks are timed, and what the guarantee leaves out."""
        return _BATCH_SAYS if self.limits.is_batch else _ISOLATED_SAYS

    def _split_in_ledger(self) -> Json:
        if self.split is None:
            return {}
        return {"split": {o.name: str(self.loss(o)) for o in self.program.outputs}}

    def in_words(self) -> str:
        """Return a text that describes the run: the aggregate, the blocks and the program."""
        named = ", ".join(output.name for output in self.program.outputs)
        cut = f" without the {self.trim} lowest and highest" if self.trim else ""
        if self.take == MEDIAN:
            return (
                f"the median over {self.blocks} blocks of people of {named}, as the program "
                f"{self.program.title!r} ({self.program.digest[:12]}) computes it in each block"
            )
        return (
            f"the average over {self.blocks} blocks of people{cut} of {named}, as the program "
            f"{self.program.title!r} ({self.program.digest[:12]}) computes it in each block"
        )


def read_program(card: Card, shape: Mapping[str, object], environment: str) -> Program:
    """Parse a submitted program that runs in the given environment; refuse an invalid one."""
    name, kind = shape.get("name"), shape.get("kind", "function")
    # an image has a program of its own
    source, main, modules = read_texts(shape, least=0 if is_image(environment) else 1)
    if not isinstance(name, str) or not name.isidentifier():
        raise bad_pipeline("the function has no name")
    if not isinstance(kind, str) or kind not in KINDS:
        raise bad_pipeline(f"its kind must be one of {', '.join(KINDS)}")
    if modules and kind == "function":
        raise bad_pipeline("a function is one text, and only a program has several files")
    if card.unit == ROW:
        raise bad_pipeline(
            "the privacy unit of the data card is a row, but the blocks of a program are "
            "made of people"
        )
    people = 0 if card.folders is None else card.folders.people
    columns = _columns(card, kind, shape.get("columns"))
    outputs = read_outputs(shape.get("outputs"))
    if not all(_is_placed(output, kind) for output in outputs):
        raise bad_pipeline(
            "the outputs of a program must name files, and those of a function must not"
        )
    if is_image(environment) and (kind == "function" or (kind == "bids" and not people)):
        raise bad_pipeline(
            "an image needs a program that runs over a folder, and people's own runs need files"
        )
    files = card.bids or ()
    file = _file_name(shape.get("file"))
    return Program(
        card.name,
        kind,
        source,
        name,
        columns,
        outputs,
        environment,
        people,
        files,
        main,
        modules,
        file,
    )


def _file_name(file: object) -> str:
    """Return the name of a program's file, or "" if none is given."""
    if file is None:
        return ""
    if not isinstance(file, str) or not 1 <= len(file) <= MAX_FILE or not file.isprintable():
        raise bad_pipeline(f"the name of its file must be 1 to {MAX_FILE} printable letters")
    return file


def inside_at(program: Program, card: Card, level: str) -> dict[str, object]:
    """Return what the process in the sandbox must know for a run at one level.

    The level is "group" (a block of people) or "participant" (one person).
    """
    told = program.inside()
    if not program.is_study:
        is_folder = card.bids is not None and program.kind != "function"
        return {**told, "study": data_set_files(card, ())} if is_folder else told
    _, *beside = folder_tables(card, program.columns)
    said = data_set_files(card, {table.name for table in beside})
    return {**told, "kind": "study", "level": level, "study": said}


def _columns(card: Card, kind: str, wanted: object) -> tuple[str, ...]:
    """Return the columns that a program sees. A function sees only the card's main table."""
    if kind == "function" or card.folders is None:
        return tuple(column.name for column in block_columns(card, wanted))
    return folder_columns(card, wanted)


def _is_placed(output: Output, kind: str) -> bool:
    """Return True if an output's result file has a path that the program's kind allows.

    A function has a default path for each output. A program must name a file.
    """
    if kind == "function":
        return output.path == (f"{output.name}.npy" if output.shape else ANSWER)
    return output.path != ANSWER


def read_run(program: Program, shape: Mapping[str, object], delta: Fraction) -> Run:
    """Parse the terms of a run of the program; refuse invalid ones. `delta` is the default."""
    blocks = _whole(shape.get("blocks", DEFAULT_BLOCKS), "blocks", 2, MAX_BLOCKS)
    trim = _whole(shape.get("trim", 0), "trim", 0, MAX_BLOCKS)
    if 2 * trim >= blocks:
        raise bad_run(f"trim {trim} leaves out {trim} at each end, and there are {blocks} blocks")
    limits = SandboxLimits(
        cpu_s=float(_within(shape.get("cpu_s", 1), "cpu_s")),
        memory_mb=int(_within(shape.get("memory_mb", 2048), "memory_mb")),
        disk_mb=int(_within(shape.get("disk_mb", DISK_MB), "disk_mb")),
        timing=_timing(shape.get("timing", ISOLATED)),
        job_s=None if shape.get("job_s") is None else float(_within(shape["job_s"], "job_s")),
    )
    if limits.job_s is not None and not limits.is_batch:
        raise bad_run("job_s is the time of a batch, and the timing is isolated")
    take = shape.get("take", MEAN)
    if take not in (MEAN, MEDIAN) or not isinstance(take, str):
        raise bad_run(f"take must be {MEAN}, {MEDIAN} or {AUTO}")
    _check_median(program, take, trim)
    asked = delta if shape.get("delta") is None else read_delta(shape["delta"])
    shares = read_shares(program.outputs, shape.get("split"))
    errors = read_errors(program.outputs, shape.get("error"), shares)
    counted, most = blocks - 2 * trim, Fraction(0) if take == MEDIAN else asked
    terms = SplitTerms(program.outputs, shares, errors, counted, most, take == MEDIAN)
    split = split_price(terms, shape.get("epsilon"))
    run = _split_run(Run(program, blocks, trim, split.epsilon, limits, take, asked), split)
    timed = blocks if limits.job_s is None else 0  # the declared time of a batch has its own limit
    if (timed + run.person_runs) * limits.cpu_s > MAX_CPU_S:
        of = "blocks and people's turns" if run.person_runs else "blocks"
        needed = (timed + run.person_runs) * limits.cpu_s
        raise bad_run(
            f"all {of} together need {needed:,g} processor seconds, and a run may have "
            f"{MAX_CPU_S:,} at most",
            "Give fewer blocks, or less processor time for each (cpu_s).",
        )
    if not all(noise.is_drawable() for noise in run.noises):
        raise Refused(
            "noise-out-of-range",
            "The noise of this epsilon is too wide to be drawn exactly.",
            "Choose a larger epsilon, or declare a coarser step.",
        )
    return run


def _timing(value: object) -> str:
    if value not in (ISOLATED, BATCH) or not isinstance(value, str):
        raise bad_run(f"timing must be {ISOLATED} or {BATCH}")
    return value


def _split_run(run: Run, split: PriceSplit) -> Run:
    """Return a run with this split of its price; without one, if the numbers share it equally.

    So a run that asks for equal shares is the same question as one that asks for none.
    """
    made = replace(run, split=split)
    is_equal = (made.rho, made.losses) == (run.rho, run.losses)
    return run if is_equal else made


def _check_median(program: Program, take: str, trim: int) -> None:
    if take == MEAN:
        return
    if trim:
        raise bad_run("a median takes no trim")
    if any(output.steps > MAX_STEPS for output in program.outputs):
        raise bad_run(
            f"a median needs outputs with at most {MAX_STEPS:,} steps in their range",
            "Combine the blocks by their mean, or submit the program with a coarser step.",
        )


def _whole(value: object, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise bad_run(f"{name} must be a whole number from {least} to {most}")
    return value


def _within(value: Any, name: str) -> Fraction:  # Any: a researcher's JSON, checked here
    least, most = _LIMITS[name]
    is_number = isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise bad_run(f"{name} must be a number from {float(least):g} to {float(most):g}")
    return Fraction(value)
