"""Source positions: where the parts of a query are in its SQL text.

The text is discarded, but the lines and columns of its parts are kept. So a refusal that needs the
card can still say which part it is about. Positions don't belong to the meaning of a query.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COLUMNS = 1 << 16  # more than the length of any line, because a text has at most 16 KB
Place = tuple[int, int]  # line and column, both counted from 1


@dataclass(frozen=True)
class Places:
    """The positions, in its SQL text, of the parts of a query (inner parts first) and of names."""

    parts: tuple[object, ...]
    packed: array[int]
    inner: frozenset[int]  # indexes of the parts in an inner SELECT
    names: Mapping[str, int]  # lower-case name -> its first position

    def __iter__(self) -> Iterator[tuple[object, Place, bool]]:
        """Yield each part of the query, its position, and whether it is in an inner SELECT."""
        for i, (part, at) in enumerate(zip(self.parts, self.packed, strict=True)):
            yield part, divmod(at, _COLUMNS), i in self.inner

    def first(self) -> Place | None:
        """Return the first position of any part or name."""
        at = min((*self.packed, *self.names.values()), default=None)
        return None if at is None else divmod(at, _COLUMNS)

    def of_name(self, name: str) -> Place | None:
        """Return the first position of a name; if only the bare name is known, of the bare name."""
        key = name.casefold()
        at = self.names.get(key, self.names.get(key.rpartition(".")[2]))
        return None if at is None else divmod(at, _COLUMNS)


def packed(place: Place) -> int:
    """Pack a position (line and column) into one number, because a number takes less memory."""
    return place[0] * _COLUMNS + min(place[1], _COLUMNS - 1)
