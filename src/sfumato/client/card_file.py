"""Read a data card (public facts on a data set): a mapping, or the path of a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.dp.refusal import Refused

CardOrFile: TypeAlias = "Mapping[str, object] | str | os.PathLike[str]"


def card_of(card: CardOrFile) -> Mapping[str, object]:
    """Return a data card as a mapping; read its TOML file if a path was given."""
    if isinstance(card, Mapping):
        return card
    if isinstance(card, str | os.PathLike):
        return read_toml(os.fspath(card))
    raise Refused(
        "bad-card",
        "The data card is neither a table nor a file.",
        'Write add("t", "t.csv", "t.card.toml").',
    )


def check_plain(card: Mapping[str, object]) -> None:
    """Refuse card keys on text formats for a data frame, whose values have types already."""
    shapes: list[object] = [card]
    for shape in shapes:  # the list grows by the tables and columns found
        if not isinstance(shape, Mapping):
            continue
        for key in ("tables", "columns"):
            inner = shape.get(key)
            shapes += inner.values() if isinstance(inner, Mapping) else ()
        if {"decimal", "thousands", "format", "encoding", "header"} & set(shape):
            raise Refused(
                "bad-card",
                "decimal, thousands, format, encoding and header are for text files, and the "
                "values of a frame have types already.",
                "Remove them from the data card, and give numbers and dates as such.",
            )


def read_toml(path: str) -> dict[str, Any]:
    """Parse the TOML file of a data card; refuse an unreadable or invalid one."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"), parse_float=Decimal)
    except OSError as wrong:
        what = f"cannot be read ({type(wrong).__name__})"
    except ValueError as wrong:
        is_toml = isinstance(wrong, tomllib.TOMLDecodeError)
        what = f"is not TOML: {wrong}" if is_toml else "is not TOML: not a text"
    except (ArithmeticError, RecursionError):
        what = "is not TOML: not a text"
    raise Refused(
        "bad-card",
        f"The data card {path[:200]!r} {what}.",
        "Correct it and add the data set again.",
    )
