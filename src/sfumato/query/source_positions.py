"""Where the parts of a question stand in the text that it was read from.

The text itself is thrown away; what is left of it are lines and columns, so that a refusal that
needs the card can still say which part it is about. They are no part of what is asked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COLUMNS = 1 << 16  # of a line: a text has at most 16 KB
Place = tuple[int, int]  # line and column, both from one on


@dataclass(frozen=True)
class Places:
    """The parts as they were read, those within others first, each with its place; and names."""

    parts: tuple[object, ...]
    packed: array[int]
    inner: frozenset[int]  # which of them stand in an inner SELECT
    names: Mapping[str, int]  # in small letters, where each is first named

    def __iter__(self) -> Iterator[tuple[object, Place, bool]]:
        """Yield each part, its place, and whether it stands in an inner SELECT."""
        for i, (part, at) in enumerate(zip(self.parts, self.packed, strict=True)):
            yield part, divmod(at, _COLUMNS), i in self.inner

    def first(self) -> Place | None:
        """Return where the first of all parts and names stands."""
        at = min((*self.packed, *self.names.values()), default=None)
        return None if at is None else divmod(at, _COLUMNS)

    def of_name(self, name: str) -> Place | None:
        """Return where a column, table or name is first named; without its table if need be."""
        key = name.casefold()
        at = self.names.get(key, self.names.get(key.rpartition(".")[2]))
        return None if at is None else divmod(at, _COLUMNS)


def packed(place: Place) -> int:
    """Return the place as one number."""
    return place[0] * _COLUMNS + min(place[1], _COLUMNS - 1)
