"""Propose the file patterns of a data card from the names of files in a BIDS folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.card.bids import MAX_PATTERNS, PERSON, SUBJECT, read_bids, with_sidecars

_PHENOTYPE: Final = "phenotype"


def file_patterns(paths: Iterable[str]) -> list[str]:
    """Return the patterns of the files that at least half of the people have.

    A file that few people have is not proposed: a card is public, and its patterns must not tell
    that somebody has such a file. A JSON sidecar is published with its image.

    Args:
        paths: The paths of files, relative to the folder.
    """
    found: Counter[str] = Counter()
    people = set()
    for path in paths:
        person, _, rest = path.partition("/")
        if person.startswith("sub-") and rest:
            people.add(person)
            found[rest.replace(person, SUBJECT)] += 1
    usual = sorted(one for one, n in found.items() if 2 * n >= len(people) and _is_pattern(one))
    sidecars = {beside for one in usual for beside in with_sidecars((one,))[1:]}
    return [one for one in usual if one not in sidecars][:MAX_PATTERNS]


def listed_patterns(card: Mapping[str, object]) -> tuple[str, ...]:
    """Return the file patterns of a data card that is not yet read; () if it has none.

    Args:
        card: The data card, as its TOML file has it.
    """
    bids = card.get("bids")
    files = bids.get("files") if isinstance(bids, Mapping) else None
    return tuple(map(str, files)) if isinstance(files, list | tuple) else ()


def is_listed(path: str, patterns: tuple[str, ...]) -> bool:
    """Return True if a data card with these file patterns publishes a file of a BIDS folder.

    These are the files at the top of the folder, its phenotype tables, and the listed files of each
    person with their sidecars.

    Args:
        path: The path of the file, relative to the folder.
        patterns: The card's bids.files.
    """
    top, _, rest = path.partition("/")
    if not rest:
        return True
    if top.startswith("sub-"):
        return rest.replace(top, SUBJECT) in with_sidecars(patterns)
    return top == _PHENOTYPE


def _is_pattern(text: str) -> bool:
    try:
        read_bids({"files": [text]}, PERSON)
    except Refused:
        return False
    return True
