"""Price a training run over several sites: all rounds at once, before the first.

The plan depends only on the task, the card, the agreement and the price. So every site computes the
same noise. Proofs: dp/learning/exact_arithmetic.proof.md and
dp/accounting/poisson_subsampling.proof.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Final

from sfumato.dp.accounting.privacy_events import ApproximateEvent
from sfumato.dp.json_values import Json
from sfumato.dp.learning.integer_network import Network
from sfumato.dp.learning.poisson_sampling import PoissonSample, most_below
from sfumato.dp.learning.training_task import (
    CLASSES,
    MAX_SIZE,
    MAX_WIDTH,
    TrainingTask,
    bad_lesson,
)
from sfumato.dp.mechanisms import skellam
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum, noisy_sum_for
from sfumato.dp.secure_aggregation.dithered_rounding import MAX_UNITS, UNIT_BITS, DitheredGrid
from sfumato.dp.secure_aggregation.round_terms import MAX_BITS
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid
from sfumato.features.federated.agreement import Agreement
from sfumato.query.expression import canonical_json
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card
from sfumato.vault.training_port import Field, LearnOrder

FORMAT: Final = "training-at-sites/1"
FINE: Final = 1 << 20  # the largest noise variance in grid steps; above it coarser steps are tried
FAILS: Final = 100  # delta / FAILS pays for dithers; noisy_sum_for takes more of delta for overflow


@dataclass(frozen=True)
class TrainPlan:
    """A priced training run over the sites of an agreement; built without reading rows."""

    card: Card
    lesson: TrainingTask
    agreement: Agreement
    epsilon: Fraction
    delta: Fraction
    features: tuple[Field, ...]
    target: Field
    network: Network
    sum: NoisySum

    @property
    def size(self) -> int:
        """Return the number of integers that each site sends: one per network parameter."""
        return self.network.size

    @property
    def bits(self) -> int:
        """Return how many bits each integer of the masked sum gets; delta covers rare overflow."""
        return self.sum.bits

    @property
    def event(self) -> ApproximateEvent:
        """Return the privacy event that each site pays once, for all rounds."""
        return ApproximateEvent(self.epsilon, self.delta)

    @property
    def row_clip(self) -> float:
        """Return the clipping norm of one row, so that all rows of a person stay below `clip`."""
        return float(self.lesson.clip / self.lesson.max_rows)

    @property
    def unit(self) -> float:
        """Return how much one integer step of the noisy sum is worth as a real number."""
        return float(self.lesson.clip / self.sum.grid.steps)

    @cached_property
    def about(self) -> str:
        """Return the hash of settings, card bounds, price and noise; it is equal at all sites."""
        fields = [[f.lower, f.upper] for f in (*self.features, self.target)]
        said: Json = {
            "format": FORMAT,
            "data_set": self.card.name,
            "by_person": self.card.by_person,
            "lesson": self.lesson.as_json(),
            "fields": fields,
            "agreement": self.agreement.digest,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "variance": str(self.sum.variance),
            "steps": str(self.sum.grid.steps),
        }
        return f"{FORMAT} {hashlib.sha256(canonical_json(said).encode()).hexdigest()}"

    def about_round(self, number: int, weights: bytes) -> str:
        """Return the text that identifies one round: its number and its initial weights."""
        return f"{self.about} {number} {hashlib.sha256(weights).hexdigest()}"

    def coins(self, dice: RandomSource) -> PoissonSample | None:
        """Draw a fresh Poisson sample of people for a round; None if the sampling rate is 1."""
        return None if self.lesson.sample == 1 else PoissonSample.fresh(self.lesson.sample, dice)

    def order(self, table: str, weights: bytes, coins: PoissonSample | None = None) -> LearnOrder:
        """Return what the engine computes in one round: columns, weights, clipping and sample."""
        lesson = self.lesson
        wanted = None if lesson.sample == 1 else most_below(lesson.sample)
        if wanted != (None if coins is None else coins.below):
            raise Bug("who is in a round is drawn with the lesson's own chance")
        clip = float(lesson.clip) if lesson.local else self.row_clip
        return LearnOrder(
            table, self.features, self.target, lesson.loss, lesson.hidden, lesson.activation,
            weights, lesson.max_rows if self.card.by_person else None, self.card.limits.rows,
            0.0 if lesson.is_of_sites else clip,
            lesson.local, float(lesson.rate), float(lesson.proximal), coins, self.network.front,
        )  # fmt: skip


@lru_cache(maxsize=64)
def plan_training(
    card: Card, lesson: TrainingTask, agreement: Agreement, epsilon: Fraction, delta: Fraction
) -> TrainPlan:
    """Plan and price a training task over the agreement's sites, or refuse; reads no rows."""
    if delta == 0:
        raise Refused(
            "bad-budget",
            "Noise that several sites make together (as in a secure sum) needs a delta above 0.",
            "Give a delta such as 1e-6.",
        )
    if card.tables or (lesson.max_rows > card.max_rows and card.by_person):
        raise Refused(
            "not-in-language",
            "A training task takes a data set of one table, and max_rows must not exceed the "
            "data card's max_rows.",
            "Use a data set of one table, and leave max_rows out. The owner can also raise "
            "max_rows on the card.",
        )
    unknown = dict(lesson.weights).keys() - {member.name for member in agreement.members}
    if unknown:
        raise bad_lesson(f"{sorted(unknown)[0]!r} is not a site of the agreement")
    tables = lesson.opening.columns
    features = tuple(
        _entry(card, name) if name in tables else _feature(card, name) for name in lesson.features
    )
    target, outs = _target(card, lesson)
    counts = [one.upper - one.lower + 1 for one in features]
    front = lesson.opening.front(lesson.features, counts)
    ins = len(features) if front is None else front.outs
    network = Network((ins, *lesson.hidden, outs), lesson.activation, lesson.loss, front)
    if network.size > MAX_SIZE:
        raise Refused(
            "question-too-large",
            f"The model has {network.size:,} numbers, and at most {MAX_SIZE:,} are allowed.",
            "Leave out layers, make them narrower, or use fewer columns as features.",
        )
    sum_ = _sum(card, lesson, agreement, network.size, epsilon, delta)
    return TrainPlan(card, lesson, agreement, epsilon, delta, features, target, network, sum_)


def _feature(card: Card, name: str) -> Field:
    place, column = card.index(name), card.column(name)
    if column.type == "boolean":
        return Field(f"k{place}", 0, 1)
    return _number(place, column)


def _entry(card: Card, name: str) -> Field:
    """Return a column as the index of an entry in an embedding table.

    The index is the number of the column's key, or the integer itself if it has no keys.
    """
    place, column = card.index(name), card.column(name)
    if column.keys is None:
        return _feature(card, name)
    return Field(f"k{place}", 0, len(column.keys) - 1)


def _number(place: int, column: Column) -> Field:
    if not column.is_numeric:
        raise Refused(
            "type-mismatch",
            f"{column.name!r} is {column.type}, but a network takes numbers and booleans.",
            "Choose columns of numbers with bounds.",
            column=column.name,
        )
    return Field(f"v{place}", *column.bounds())


def _target(card: Card, lesson: TrainingTask) -> tuple[Field, int]:
    """Return the target column, and the number of outputs that the network has for it."""
    place, column = card.index(lesson.target), card.column(lesson.target)
    if lesson.loss != CLASSES:
        return _number(place, column), 1
    if column.keys is not None:
        field = Field(f"k{place}", 0, len(column.keys) - 1)
    else:
        field = _number(place, column)
    count = field.upper - field.lower + 1
    if not 2 <= count <= MAX_WIDTH:
        raise bad_lesson(f"classes must be 2 to {MAX_WIDTH}, but {column.name!r} has {count:,}")
    return field, count


def _sum(  # noqa: PLR0913, PLR0917  # inputs of the noise
    card: Card,
    lesson: TrainingTask,
    agreement: Agreement,
    size: int,
    epsilon: Fraction,
    delta: Fraction,
) -> NoisySum:
    """Return the noisy sum of each round.

    Of a few rounding grids, it has the finest whose noise is cheap to draw exactly.
    """
    grid_at, moves = _grids(card, lesson, size, delta / (FAILS * lesson.rounds), epsilon)
    root = math.isqrt(size - 1) + 1
    shift = max(0, math.floor(math.log2(lesson.clip * (1 << UNIT_BITS) / (8 * root))))
    found = None
    for coarser in range(5):
        is_last = coarser == 4
        grid = grid_at(min(shift + coarser, UNIT_BITS))
        try:
            found = noisy_sum_for(
                grid,
                sites=len(agreement.members),
                floor=agreement.floor,
                colluders=agreement.colluders,
                epsilon=epsilon,
                delta=delta * (FAILS - 1) / FAILS,
                rounds=lesson.rounds,
                moves=moves,
                chance=lesson.sample,
                most=skellam.MAX_VARIANCE if is_last else Fraction(FINE),
            )
        except Refused:
            if is_last:
                raise
            continue
        break
    if found is None or not _fits(found):
        raise too_wide()
    return found


def _grids(
    card: Card, lesson: TrainingTask, size: int, chance: Fraction, epsilon: Fraction
) -> tuple[Callable[[int], Grid | DitheredGrid], int]:
    """Return a function from a shift to a rounding grid, and the sensitivity of a sum on the grid.

    A shift larger by one makes a grid step twice as wide. The sensitivity is a multiple of the
    clipping norm: 2 if a site's whole update is protected, else 1.
    """
    if lesson.is_of_sites:
        steps = lesson.clip * (1 << UNIT_BITS)
        return lambda shift: Grid(lesson.clip, max(1, int(steps / (1 << shift))), size), 2
    people = card.limits.rows if lesson.local else -(-card.limits.rows // lesson.max_rows)
    if lesson.clip * people * (1 << UNIT_BITS) >= MAX_UNITS:
        raise Refused(
            "numbers-too-large",
            "The gradients of as many rows as the data card allows do not fit into 62 bits.",
            "Choose a smaller clip, or ask the owner for smaller limits.rows on the card.",
        )
    rare = chance / 3 ** math.ceil(epsilon)
    return lambda shift: DitheredGrid(lesson.clip, shift, size, people, rare), 1


def _fits(sum_: NoisySum) -> bool:
    far = skellam.noise_bound(sum_.share, sum_.failure / (sum_.sites * sum_.grid.size))
    need = sum_.sites * (sum_.grid.most_each + far) + 1
    return need.bit_length() + 1 <= MAX_BITS


def too_wide() -> Refused:
    """Return the refusal for noise that is too wide to draw exactly."""
    return Refused(
        "noise-out-of-range",
        "The noise of this training task is too wide to be drawn exactly.",
        "Choose a larger epsilon or delta, fewer rounds, or a smaller model.",
    )
