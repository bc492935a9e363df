"""Compute the answers of paid questions: read rows, add noise, write the answer as text.

Several counts can share one scan of the rows. Each gets the result that it would get alone.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.private_choice import PrivateChoice
from sfumato.dp.mechanisms.running_count import TreeMechanism
from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import Mechanism
from sfumato.query.expression import canonical_json
from sfumato.query.measure import Cells, Measure
from sfumato.query.partition_selection_price import PricedPartitionSelection
from sfumato.query.plan import KEYS_AT_ONCE, PEOPLE, Plan
from sfumato.query.printing.batched_counts import is_batchable
from sfumato.release.charged_reads import RowReader, note_lost_pass, read_for_charge
from sfumato.release.guarantees.central_dp import (
    BlockDraws,
    HistogramIndex,
    Keys,
    NoiseOrMechanism,
    NoisyCells,
    PartitionSelection,
    ReleasedKeys,
    TallyIndex,
    add_noise,
    add_noise_to_released_keys,
    select_partitions,
)
from sfumato.release.noise_pool import NoisePool
from sfumato.release.receipts import answer_text, key_text
from sfumato.vault.engine_port import Engine, EngineLost, EngineStopped
from sfumato.vault.ports import BatchingEngine
from sfumato.vault.sealed import Sealed

if TYPE_CHECKING:
    from sfumato.release.release_order import PaidOrder, ReleaseContext

# longest plan text, in characters, that may be batched; longer plans are read alone
MAX_PLAN_LENGTH: Final = 4_000


def draw_noise(pool: NoisePool, mechanism: Mechanism, cells: int) -> NoiseOrMechanism:
    """Draw noise for `cells` groups, or return the mechanism if it chooses a value instead."""
    if isinstance(mechanism, TreeMechanism):  # as many blocks as cells
        return BlockDraws(mechanism, pool.take(mechanism.noise, cells))
    return mechanism if isinstance(mechanism, PrivateChoice) else pool.take(mechanism, cells)


def can_batch(engine: Engine, plan: Plan) -> bool:
    """Say whether a plan is a COUNT that the engine can answer in one scan with other counts.

    The text of the plan must be short.
    """
    is_short = is_batchable(plan.measure) and plan.canonical_length() <= MAX_PLAN_LENGTH
    return is_short and isinstance(engine, BatchingEngine)


def read_rows(door: ReleaseContext, begun: PaidOrder) -> str:
    """Read the rows of one paid question; return the noisy answer as text, or refuse.

    A failure is recorded in the ledger before the refusal.
    """
    return _text(door, begun, partial(_measured, door, begun))


def read_all(door: ReleaseContext, several: Sequence[PaidOrder]) -> list[str | Exception]:
    """Read the rows of several paid counts in one scan; return each noisy answer or its error.

    If the host ends the scan, each count is read alone.
    """
    found = _batch_result(door.engine, several)
    if found is None:
        return [_each(door, one, None) for one in several]
    own = _noted(door, several, found)
    pairs = zip(several, found, strict=True)
    return [_each(door, one, _read_alone(end, one.charge.shape in own)) for one, end in pairs]


def _noted(
    door: ReleaseContext,
    several: Sequence[PaidOrder],
    found: Sequence[Sealed[Cells] | EngineStopped],
) -> frozenset[str]:
    """Record in the ledger which reads of a batch the host ended.

    Return the question shapes that count as the cause.
    """
    lost: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one, end in zip(several, found, strict=True):
        if isinstance(end, EngineLost):
            lost[one.order.card.name, end.cause].append(one.charge.shape)
    own: frozenset[str] = frozenset()
    for (data_set, cause), shapes in lost.items():
        with contextlib.suppress(Refused):  # reading each count alone meets the same refusal again
            own |= note_lost_pass(door.ledger, data_set, sorted(set(shapes)), cause)
    return own


def _read_alone(
    found: Sealed[Cells] | EngineStopped, is_own: bool
) -> Sealed[Cells] | EngineStopped | None:
    """Return a count's result from the batch; None if the count must be read alone.

    A count is read alone if the host ended the batch. If the count's own question shape is the
    cause, the result is EngineStopped.
    """
    if not isinstance(found, EngineLost):
        return found
    return EngineStopped() if is_own else None


def _batch_result(
    engine: Engine, several: Sequence[PaidOrder]
) -> Sequence[Sealed[Cells] | EngineStopped] | None:
    """Return the engine's results of a batch, one per count; None if the whole batch failed."""
    if not isinstance(engine, BatchingEngine):
        return None
    try:
        return engine.count_batch([(one.order.table, one.priced.plan.measure) for one in several])
    except Exception:  # noqa: BLE001  # then each is read alone, and gets its own error
        return None


def _each(
    door: ReleaseContext, begun: PaidOrder, found: Sealed[Cells] | EngineStopped | None
) -> str | Exception:
    """Return the noisy answer of one question of a batch; an error is returned, not raised.

    So the error of one question doesn't stop the batch.
    """
    make = partial(_measured, door, begun)
    if found is not None:
        make = partial(_made_of, door, begun, found)
    try:
        return _text(door, begun, make)
    except Exception as error:  # noqa: BLE001  # raised to whoever asked for it
        return error


def _made_of(
    door: ReleaseContext, begun: PaidOrder, found: Sealed[Cells] | EngineStopped, _reader: RowReader
) -> NoisyCells:
    if isinstance(found, EngineStopped):
        raise found
    return _noisy(door, begun, found)


def _text(door: ReleaseContext, begun: PaidOrder, make: Callable[[RowReader], NoisyCells]) -> str:
    """Read rows, add noise and return the answer as text; every error becomes one refusal code."""

    def look(reader: RowReader) -> str:
        return answer_text(begun.priced, make(reader))

    return read_for_charge(door.ledger, begun.charge, look)


def _measured(door: ReleaseContext, begun: PaidOrder, reader: RowReader) -> NoisyCells:
    selection = begun.priced.selection
    if selection is not None:
        return _selected(door, begun, selection, reader)
    measure = begun.priced.plan.measure
    return _noisy(door, begun, _read(door, begun, reader, measure))


def _read(
    door: ReleaseContext, begun: PaidOrder, reader: RowReader, measure: Measure
) -> Sealed[Cells]:
    return reader.read(lambda: door.engine.measure(begun.order.table, measure))


def _noisy(door: ReleaseContext, begun: PaidOrder, sealed: Sealed[Cells]) -> NoisyCells:
    plan, earlier = begun.priced.plan, begun.priced.earlier
    tallies = [plan.tally_of(place) for place in range(len(plan.parts))]
    if earlier is not None and earlier.keys is not None:
        return add_noise_to_released_keys(
            sealed, tallies, begun.noise, _released_keys(door, plan, earlier.keys)
        )
    return add_noise(sealed, tallies, begun.noise, door.pool.dice)


def _selected(
    door: ReleaseContext, begun: PaidOrder, selection: PricedPartitionSelection, reader: RowReader
) -> NoisyCells:
    """Select which private keys may be shown; return these keys with their noisy aggregates.

    Histograms are read for the selected keys alone, `KEYS_AT_ONCE` at a time. So the number of
    reads depends only on how many keys are released. Selection runs once, even if a read is
    retried.
    """
    plan = begun.priced.plan
    counted = plan.measure.without_histograms

    def further(keys: Keys) -> Iterator[Sealed[Cells]]:
        wanted = [plan.key_constants(key) for key in keys] if plan.has_histograms else []
        for start in range(0, len(wanted), KEYS_AT_ONCE):
            block = tuple(wanted[start : start + KEYS_AT_ONCE])
            yield _read(door, begun, reader, plan.measure.histograms_of(block))

    def draw(part: int, count: int) -> NoiseOrMechanism:
        return draw_noise(door.pool, begun.priced.noises[part], count)

    people = counted.tallies.index(PEOPLE)
    choosing = PartitionSelection(people, selection, draw, door.pool.dice, further)
    sealed = _read(door, begun, reader, counted)
    return select_partitions(sealed, _tally_indexes(plan), choosing)


def _tally_indexes(plan: Plan) -> list[TallyIndex]:
    """Return where each aggregate's tally is: its index among the sums or among the histograms."""
    counted, lists = plan.measure.without_histograms.tallies, plan.measure.histograms_of(()).tallies
    tallies = [bounded.part.tally for bounded in plan.parts]
    return [
        HistogramIndex(lists.index(tally)) if tally in lists else counted.index(tally)
        for tally in tallies
    ]


def _released_keys(
    door: ReleaseContext, plan: Plan, keys: Sequence[Sequence[Json]]
) -> ReleasedKeys:
    return ReleasedKeys(
        [canonical_json(list(key)) for key in keys], partial(key_text, plan), door.pool.dice
    )
