"""Find participants' ids and values of few people in texts that an owner is about to publish.

Only the owner sees what is found (soundness rule 30).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.engines.ingest.csv_layout import MISSING_MARKERS, guessed_encoding, text_layout
from sfumato.vault.card.bids import DERIVATIVES, PERSON
from sfumato.vault.card.cell_formats import UTF8

FEW: Final = 5  # a value is rare if fewer people have it
_SHORTEST: Final = 3  # letters of a value that is looked for in running text
_SHORTEST_LABEL: Final = 4  # the same for a participant's label, as in sub-LABEL
_SHOWN: Final = 60  # letters of a value that a note shows
_CALLED: Final = r"(?:sub|subj|subject|participant|patient|proband|person)s?[\s_.:#-]*0*"
_START, _END = r"(?<![^\W_])", r"(?![^\W_])"


@dataclass(frozen=True)
class ValuesOfFew:
    """Participants' ids, and the values of text columns that fewer than five people have."""

    ids: frozenset[str]
    # (path of the table, column) -> value in lower case -> the value as it is in the table
    rare: Mapping[tuple[str, str], Mapping[str, str]]

    def within(self, text: str) -> ValuesOfFew:
        """Return only those ids and values that may be in the text, so that its parts go fast."""
        plain = _plain(text)
        ids = frozenset(one for one in self.ids if _bare(one) in plain)
        rare = {
            column: {value: shown for value, shown in values.items() if value in plain}
            for column, values in self.rare.items()
        }
        return ValuesOfFew(ids, rare)

    def why_not(self, text: str) -> str | None:
        """Return why the text must not be published, or None if nothing of few people is in it."""
        return next(self._found(_plain(text)), None)

    def _found(self, text: str) -> Iterator[str]:
        for one in self.ids:
            if _names(one, text):
                yield f"it names the participant {one!r}"
        for (table, column), values in self.rare.items():
            for value, shown in values.items():
                if len(value) < _SHORTEST or value not in text:
                    continue
                if re.search(_START + re.escape(value) + _END, text):
                    yield (
                        f"it has the value {shown[:_SHOWN]!r} of {column!r} in {table}, "
                        f"which fewer than {FEW} people have"
                    )


def _names(person: str, text: str) -> bool:
    """Say whether a text names a participant, by the whole id or by its label alone."""
    bare = _bare(person)
    if bare not in text:
        return False
    whole = _plain(person)
    label = whole.removeprefix("sub-")
    if whole != label and whole in text:
        return True
    if len(label) >= _SHORTEST_LABEL and re.search(_START + re.escape(label) + _END, text):
        return True
    return re.search(_START + _CALLED + re.escape(bare) + _END, text) is not None


def _bare(person: str) -> str:
    """Return the label of a participant without zeros in front, as people write it in texts."""
    label = _plain(person).removeprefix("sub-")
    return label.lstrip("0") or label


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def people_of(folder: Path, tables: Iterable[Path]) -> frozenset[str]:
    """Return the ids of all participants: in the tables, and as names of folders."""
    found = {path.name for path in folder.glob("sub-*")}
    found |= {path.name for path in folder.glob(f"{DERIVATIVES}/*/sub-*") if path.is_dir()}
    for table in tables:
        names, rows = _read(table)
        if PERSON in names:
            found |= {row[names.index(PERSON)] for row in rows}
    return frozenset(one for one in found if one and one.casefold() not in MISSING_MARKERS)


def values_of_few(
    folder: Path, types: Mapping[str, Mapping[str, str]], ids: frozenset[str]
) -> ValuesOfFew:
    """Return the ids and the rare values of a BIDS folder's tables.

    Args:
        folder: The folder.
        types: The path of each table, with the type of each of its columns.
        ids: The ids of all participants.
    """
    rare = {}
    for path, found in types.items():
        kinds = {name.strip(): kind for name, kind in found.items()}
        names, rows = _read(folder / path)
        person = names.index(PERSON) if PERSON in names else None
        for place, name in enumerate(names):
            if place == person:
                continue
            people: dict[str, set[str]] = defaultdict(set)
            for number, row in enumerate(rows):
                value = row[place]
                if value and value.casefold() not in MISSING_MARKERS:
                    people[value].add(str(number) if person is None else row[person])
            if kinds.get(name) == "text" or _is_identifier(people):
                few = {_plain(value): value for value, of in people.items() if len(of) < FEW}
                rare[path, name] = few
    return ValuesOfFew(ids, rare)


def _is_identifier(people: Mapping[str, set[str]]) -> bool:
    """Say whether every person has a value of their own, of at least five letters."""
    is_own = all(len(of) == 1 and len(value) >= _SHORTEST_LABEL + 1 for value, of in people.items())
    return is_own and len(people) > 1


def _read(table: Path) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of a table as trimmed texts.

    Quotation marks are no borders of cells here, so no row is hidden by an odd one.
    """
    encoding = guessed_encoding(str(table))
    layout = text_layout(str(table), UTF8, encoding)
    names = [name.strip() for name in layout.names]
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    with table.open(encoding=codec, newline=None) as file:
        rows = [line.rstrip("\n").split(layout.separator) for line in file if line.strip("\n")]
    missing = [""] * len(names)
    cells = [[cell.strip().strip('"').strip() for cell in row] for row in rows[1:]]
    return names, [(row + missing)[: len(names)] for row in cells]
