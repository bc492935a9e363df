"""Refusals and results about a source that a preparing worker reports to the owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sfumato.dp.refusal import Bug, Refused
from sfumato.vault.engine_port import Described, FolderDraft

UNREADABLE: Final = "The file does not match its name's ending or the data card, or it is damaged."
_SHOWN: Final = 20  # how many tables the text of a refusal names
_CHOICES: Final = 1000  # how many a page lets the owner choose from
AS_TEXT: Final = (
    "CSV and TSV need one header line and the same number of cells in every line. They must be "
    "UTF-8 unless the card names another encoding."
)


def items(value: object) -> list[object]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def read_described(said: Mapping[str, object]) -> Described:
    """Parse a worker's description of a source: column names, types, formats and encoding."""
    found = [items(one) for one in items(said["columns"])]
    formats = {
        str(name): {str(key): _format(value) for key, value in of.items()}
        for name, _, of in found
        if isinstance(of, dict) and of
    }
    columns = tuple((str(name), str(kind)) for name, kind, _ in found)
    markers = {
        str(name): {str(word): int(count) for word, count in of.items()}
        for name, of in map(items, items(said.get("markers")))
        if isinstance(of, dict)
    }
    return Described(columns, formats, str(said["encoding"]), markers)


def _format(value: object) -> str | list[str]:
    return [str(word) for word in value] if isinstance(value, list) else str(value)


def read_folder_draft(said: Mapping[str, object]) -> FolderDraft:
    """Parse a worker's draft of what a card can publish of a BIDS folder."""
    match said:
        case {
            "own": dict(own),
            "tables": dict(tables),
            "files": list(files),
            "description": dict(description),
            "texts": dict(texts),
            "sidecars": dict(sidecars),
            "notes": list(notes),
        }:
            pairs = [items(one) for one in notes]
            return FolderDraft(
                read_described(own),
                {str(name): read_described(told) for name, told in tables.items()},
                tuple(map(str, files)),
                description,
                texts,
                sidecars,
                tuple((str(where), str(why)) for where, why in pairs),
            )
        case _:
            raise Bug("a draft of a folder that is none")


def source_missing(path: str) -> Refused:
    """Return the refusal of a source whose file doesn't exist."""
    return Refused(
        "source-unreadable",
        f"There is no file {path!r}.",
        "Check the path, and give that of an existing file.",
    )


def stopped() -> Refused:
    """Return the refusal of a preparation that hit the worker's memory or time limit."""
    return Refused(
        "source-too-large",
        "Preparing the rows needed more memory or time than the vault's engine allows.",
        "Split the file or table into smaller ones, or give the engine more memory and time.",
    )


def unreadable(cause: str = UNREADABLE, next_step: str = AS_TEXT) -> Refused:
    """Return the refusal of a source that can't be read; it quotes no part of the source."""
    return Refused("source-unreadable", cause, next_step)


def table_not_found(kind: str, names: Sequence[str], wanted: str | None) -> Refused:
    """Return the refusal of a file in which it is not clear which table or sheet to read.

    Args:
        kind: "table" or "sheet".
        names: Those that the file has.
        wanted: The name that the owner gave, or None.
    """
    if not names:
        return unreadable(f"The file has no {kind} with rows.", "Give the file with your rows.")
    return not_one(
        f"The file has {len(names)} {kind}s."
        if wanted is None
        else f"The file has no {kind} of that name.",
        [repr(name) if kind == "sheet" else name for name in names],
        names,
    )


def not_one(cause: str, shown: Sequence[str], names: Sequence[str]) -> Refused:
    """Return a refusal that lists the tables of a file, of which the owner has to name one.

    Args:
        cause: What happened.
        shown: The names as the text shows them.
        names: The names as the owner gives them.
    """
    listed = ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
    return Refused(
        "source-unreadable",
        cause,
        f"Name one of them with --table, or inner_table in Python: {listed}.",
        choices=list(names[:_CHOICES]),
    )


def two_spellings() -> Refused:
    """Return the refusal of persons of whom some are written as 7 and others as 7.0."""
    return Refused(
        "source-unreadable",
        "Persons are written as 7.0 in some of the rows, and as 7 in others, so one person "
        "would count as two.",
        "Write the person column in one way in all rows and tables, and as the data set has it "
        "already. A column of a pandas frame becomes 7.0 if one of its cells is empty: drop that "
        "row, or use the type Int64.",
    )


def mixed_column(name: str) -> Refused:
    """Return the refusal of a column of numbers and texts, for which the card has a format."""
    return Refused(
        "source-unreadable",
        f"The column {name!r} has numbers and also texts with digits, and the data card has a "
        "format for it, which is for texts alone.",
        "Make all of its cells numbers, and remove decimal and thousands from the card. Or make "
        "all of them texts.",
    )


def reported(refused: Refused) -> list[object]:
    """Return a refusal as a worker reports it: code, cause, next step, and names to choose from."""
    return [refused.code, refused.cause, refused.next_step, refused.facts.get("choices", [])]


def refused_by_worker(said: object) -> Refused:
    """Return the refusal that a worker reports; its texts name tables at most, never a value."""
    code, cause, next_step, *more = items(said)
    choices = [str(name) for one in more for name in items(one)]
    facts = {"choices": choices} if choices else {}
    return Refused(str(code), str(cause), str(next_step), **facts)
