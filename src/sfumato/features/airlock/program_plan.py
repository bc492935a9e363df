"""Parse and validate an airlock program and its declared files, before any row is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.airlock.declared_tables import DeclaredFile
from sfumato.features.airlock.file_types import MAX_FILES, bad_airlock, do_clash, is_airlock_path
from sfumato.features.pipelines.program_folder import MAX_SOURCE, with_line_feeds
from sfumato.query.expression import canonical_json
from sfumato.sandbox.block_columns import block_columns
from sfumato.sandbox.hidden_characters import declared_encoding, hidden_character
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.program_environment import is_image, own_of
from sfumato.vault.card.data_card import ROW, Card

_LIMITS: Final = {
    "cpu_s": (1, 600, 10),
    "memory_mb": (256, 16_384, 2048),
    "disk_mb": (16, 4096, 256),
}
_KEYS: Final = {"path", "by", "count", "of"}
NOTES: Final = ("reviewed-not-dp.json", "reviewers-only.txt")  # files that we add ourselves


@dataclass(frozen=True)
class AirlockProgram:
    """A program that runs once on all rows, and the files that are collected from it."""

    source: str
    columns: tuple[str, ...]
    asked: tuple[DeclaredFile, ...]
    limits: SandboxLimits
    # the digest of the interpreter and libraries, and the name of the program's own environment
    environment: str

    @property
    def own(self) -> str:
        """Return the name of the environment that the program brings, or an empty text."""
        return own_of(self.environment)

    @property
    def is_image(self) -> bool:
        """Return True if the program runs in an image, so that it may be in any language."""
        return is_image(self.environment)

    def as_json(self) -> Json:
        """Return the program as JSON, for the store and for the owner and reviewers."""
        return {
            "source": self.source,
            "columns": list(self.columns),
            "files": [
                {"path": one.path, "by": list(one.by), "count": one.count, "of": one.of}
                for one in self.asked
            ],
            "cpu_s": self.limits.cpu_s,
            "memory_mb": self.limits.memory_mb,
            "disk_mb": self.limits.disk_mb,
            "environment": self.environment,
        }

    @property
    def digest(self) -> str:
        """Return a SHA-256 that identifies the program with its files, limits and libraries."""
        return hashlib.sha256(canonical_json(self.as_json()).encode()).hexdigest()


def read_submitted(card: Card, shape: Mapping[str, object], environment: str) -> AirlockProgram:
    """Parse a program that is submitted now, whichever line ends it was sent with; or refuse it."""
    return read_airlock_program(card, with_line_feeds(shape), environment)


def read_airlock_program(
    card: Card, shape: Mapping[str, object], environment: str
) -> AirlockProgram:
    """Parse a program and check it against the data card; refuse an invalid one."""
    source = _source(shape.get("source"), least=0 if is_image(environment) else 1)
    if card.unit == ROW:
        raise bad_airlock(
            "the privacy unit of the data card is a row, but the airlock's checks need "
            "groups of people"
        )
    columns = tuple(column.name for column in block_columns(card, shape.get("columns")))
    limits = {key: _number(shape, key) for key in _LIMITS}
    return AirlockProgram(
        source,
        columns,
        _asked(shape.get("files"), columns),
        SandboxLimits(
            cpu_s=limits["cpu_s"],
            memory_mb=int(limits["memory_mb"]),
            disk_mb=int(limits["disk_mb"]),
        ),
        environment,
    )


def _source(text: object, least: int) -> str:
    """Read a program's text. An image has a program of its own, so its text may be empty."""
    if not isinstance(text, str) or not least <= len(text) <= MAX_SOURCE:
        raise _bad_size()
    if found := hidden_character(text):
        raise bad_airlock(
            f"in the program's text, {found}, which a reader does not see as it runs: take it out, "
            "or write it as an escape"
        )
    if name := declared_encoding(text):
        raise bad_airlock(f"the program's text declares the encoding {name[:40]}, and is UTF-8")
    if len(text.encode()) > MAX_SOURCE:
        raise _bad_size()
    return text


def _bad_size() -> Refused:
    return bad_airlock(
        f"a program must be 1 to {MAX_SOURCE:,} bytes of UTF-8, and only an image has a program of "
        "its own"
    )


def kept_files(said: Any) -> tuple[DeclaredFile, ...]:  # Any: what `as_json` has made
    """Return the declared files of a stored request, as accepted when it was submitted.

    They are not checked against the card again.
    """
    return tuple(
        DeclaredFile(one["path"], tuple(one["by"]), one["count"], one["of"])
        for one in said["files"]
    )


def _asked(shape: object, columns: tuple[str, ...]) -> tuple[DeclaredFile, ...]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_FILES:
        raise bad_airlock(f"name 1 to {MAX_FILES} files")
    asked = tuple(_one(one, columns) for one in shape)
    if do_clash([*(one.path for one in asked), *NOTES]):
        raise bad_airlock("two files have the same name, or one is a folder of another")
    return asked


def _one(shape: object, columns: tuple[str, ...]) -> DeclaredFile:
    if not isinstance(shape, Mapping) or not set(shape) <= _KEYS:
        raise bad_airlock("a file must have a path; it may have by, count and of")
    path, by = shape.get("path"), shape.get("by", [])
    if not isinstance(path, str) or not is_airlock_path(path) or path.casefold() in NOTES:
        raise bad_airlock(
            "a file's path must be plain, inside the output folder, and of an allowed type"
        )
    count, of = (shape.get(key, "") for key in ("count", "of"))
    if not isinstance(by, list) or not all(isinstance(name, str) for name in by):
        raise bad_airlock(f"by of {path!r} must be a list of columns")
    if not isinstance(count, str) or not isinstance(of, str) or not _is_name(count):
        raise bad_airlock(f"`count` and `of` of {path!r} must be names of columns")
    unknown = [name for name in (*by, of) if name and name not in columns]
    if unknown:
        raise bad_airlock(f"`by` and `of` of {path!r} must be columns that the program reads")
    return DeclaredFile(path, tuple(by), count, of)


def _is_name(text: str) -> bool:
    return len(text) <= 200 and text.isprintable()


def _number(shape: Mapping[str, Any], key: str) -> float:  # Any: a researcher's JSON
    least, most, usual = _LIMITS[key]
    value = shape.get(key, usual)
    is_number = isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise bad_airlock(f"{key} must be a number from {least} to {most}")
    return float(value)
