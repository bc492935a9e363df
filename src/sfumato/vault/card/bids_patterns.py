"""Propose the file patterns of a data card from the names of files in a BIDS folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from sfumato.vault.card.bids import DERIVATIVES, MAX_PATTERNS, SUBJECT, is_pattern, with_sidecars
from sfumato.vault.card.bids_metadata import is_sidecar_path

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
        person, pattern = person_and_pattern(path)
        if pattern:
            people.add(person)
            found[pattern] += 1
    usual = sorted(one for one, n in found.items() if 2 * n >= len(people) and is_pattern(one))
    sidecars = {beside for one in usual for beside in with_sidecars((one,))[1:]}
    own = [one for one in usual if one not in sidecars]
    return sorted(own, key=lambda one: one.startswith(DERIVATIVES))[:MAX_PATTERNS]


def person_and_pattern(path: str) -> tuple[str, str]:
    """Return whose file this is, and its pattern; two empty texts if it is nobody's.

    Args:
        path: The path of the file, relative to the folder.
    """
    first, *rest = path.split("/")
    if first.startswith("sub-") and rest:
        return first, "/".join(rest).replace(first, SUBJECT)
    if first != DERIVATIVES or len(rest) < 2:
        return "", ""
    beside = rest[-1].partition("_")[0].partition(".")[0]
    person = next((part for part in (*rest[1:-1], beside) if part.startswith("sub-")), "")
    return (person, path.replace(person, SUBJECT)) if person else ("", "")


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

    These are the files at the top of the folder, its phenotype tables, the JSON files that describe
    derivatives, and the listed files of each person with their sidecars.

    Args:
        path: The path of the file, relative to the folder.
        patterns: The card's bids.files.
    """
    top, _, rest = path.partition("/")
    if not rest:
        return True
    _, pattern = person_and_pattern(path)
    if pattern:
        return pattern in with_sidecars(patterns)
    return top == _PHENOTYPE or (top == DERIVATIVES and is_sidecar_path(path))
