"""The batcher of concurrent counts: one scan of the rows serves all that wait at once.

Each is what it would be alone. Where a go fails, each of it is asked by itself, so that nobody's
question stops another's. Where the host ended its worker, each is told so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.query.measure import Cells
from sfumato.query.printing.batched_counts import CountScan, counts_of_scan
from sfumato.query.printing.expressions import LONGEST
from sfumato.query.printing.statements import Statement
from sfumato.system.group_commit import MOST, GroupCommit, Outcome
from sfumato.vault.engine_port import EngineLost, EngineStopped
from sfumato.vault.sealed import Sealed

_LONG: Final = LONGEST // 64  # letters of a condition that is looked at alone: 64 lie in one go


@dataclass(frozen=True)
class CountBatcher:
    """A look at a prepared table, which has so many rows at most."""

    table: str
    look: CountScan
    most_rows: int


class CountBatches:
    """The queue of looks of one engine; `ask` sends a statement to its worker."""

    def __init__(self, ask: Callable[[str, Statement, Layout, int], bytes | None]) -> None:
        self._ask = ask
        self._together: GroupCommit[CountBatcher, Sealed[Cells]] = GroupCommit(
            self._alone, self._several
        )

    def count(self, wanted: CountBatcher) -> Sealed[Cells]:
        """Return the counts of one look, made with those of all who wait; or `EngineStopped`."""
        if len(wanted.look.condition.sql) > _LONG:
            return self._alone(wanted)
        return self._together.done(wanted)

    def count_all(self, wanted: Sequence[CountBatcher]) -> list[Outcome[Sealed[Cells]]]:
        """Return the counts of several looks, in as few goes as hold them; or what stopped each."""
        ended: list[Outcome[Sealed[Cells]]] = []
        for some in _goes(wanted):
            ended += self._several(some)
        return ended

    def _alone(self, wanted: CountBatcher) -> Sealed[Cells]:
        found = self._counted([wanted])
        if found is None:
            raise EngineStopped
        return found[0]

    def _several(self, wanted: Sequence[CountBatcher]) -> Sequence[Outcome[Sealed[Cells]]]:
        places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, one in enumerate(wanted):
            places[one.table, one.look.rows].append(place)
        ended: dict[int, Outcome[Sealed[Cells]]] = {}
        for some in places.values():
            ended |= zip(some, self._ended([wanted[place] for place in some]), strict=True)
        return [ended[place] for place in range(len(wanted))]

    def _ended(self, wanted: Sequence[CountBatcher]) -> Sequence[Outcome[Sealed[Cells]]]:
        try:
            found = self._counted(wanted)
        except EngineLost as error:
            cause = error.cause
            return [Outcome(error=EngineLost(cause)) for _ in wanted]
        if found is None and len(wanted) > 1:
            return [self._ended([one])[0] for one in wanted]
        if found is None:
            return [Outcome(error=EngineStopped())]
        return [Outcome(cells) for cells in found]

    def _counted(self, wanted: Sequence[CountBatcher]) -> list[Sealed[Cells]] | None:
        text = counts_of_scan([one.look for one in wanted])
        total = sum(one.look.times for one in wanted)
        layout = Layout(1, 0, (0,) * total)
        statement = Statement(text.sql, text.bound, tuple(range(total)))
        most_rows = max(one.most_rows for one in wanted)
        answer = self._ask(wanted[0].table, statement, layout, most_rows)
        cells = None if answer is None else read_cells(layout, answer)
        if cells is None:
            return None
        parts = iter(cells.parts)
        return [Sealed(Cells(tuple(next(parts) for _ in range(one.look.times)))) for one in wanted]


def _goes(wanted: Sequence[CountBatcher]) -> Iterator[Sequence[CountBatcher]]:
    """Yield them in their order, as many at a time as a statement holds; what is long, alone."""
    some: list[CountBatcher] = []
    for one in wanted:
        is_long = len(one.look.condition.sql) > _LONG
        if some and (is_long or len(some) == MOST):
            yield some
            some = []
        some.append(one)
        if is_long:
            yield some
            some = []
    if some:
        yield some
