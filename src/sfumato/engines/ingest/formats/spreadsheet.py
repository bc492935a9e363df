"""Read one sheet of an Excel or OpenDocument file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from sfumato.engines.ingest.source_errors import table_not_found, unreadable
from sfumato.system.optional_packages import extra_module
from sfumato.system.typed_rows import TypedRows, spell


def spreadsheet(source: str, sheet: str | None) -> TypedRows:
    """Return the rows of a sheet; its first row that is not empty has the names.

    Without `sheet`, the file must have one sheet with cells.
    """
    calamine = extra_module("python_calamine", "files")
    book: Any = None
    try:
        book = calamine.CalamineWorkbook.from_path(source)
    except calamine.PasswordError:
        raise unreadable("The file is protected by a password.", "Save it without one.") from None
    except (calamine.CalamineError, OSError):
        raise unreadable(
            "The file is no Excel or OpenDocument file that can be read.",
            "Open it in your spreadsheet program, and save it as .xlsx or as CSV.",
        ) from None
    rows = _rows(_one_sheet(book, sheet))
    first = next((row for row in rows if any(map(_is_there, row))), ())
    texts = tuple(spell(name) if _is_there(name) else "" for name in first)
    while texts and not texts[-1].strip():
        texts = texts[:-1]
    below = (row for row in rows if any(map(_is_there, row)))
    return TypedRows(texts, below, has_schema=False, first=first)


def _one_sheet(book: Any, wanted: str | None) -> Any:
    sheets = {name: _sheet(book, name) for name in book.sheet_names if wanted in (None, name)}
    filled = [name for name, one in sheets.items() if one is None or one.total_height > 0]
    fitting = filled if wanted is None else list(sheets)
    if len(fitting) != 1:
        raise table_not_found("sheet", filled or book.sheet_names, wanted)
    found = sheets[fitting[0]]
    if found is None:
        raise unreadable(
            "The sheet has a cell that cannot be read, such as a number that is none.",
            "Open the file in your spreadsheet program, and save the sheet as .xlsx or as CSV.",
        )
    return found


def _sheet(book: Any, name: str) -> Any:
    """Return a sheet, or None if a cell of it cannot be read: others can be read all the same."""
    calamine = extra_module("python_calamine", "files")
    with contextlib.suppress(calamine.CalamineError):
        return book.get_sheet_by_name(name)
    return None


def _rows(sheet: Any) -> Iterator[Sequence[object]]:
    for row in sheet.iter_rows():
        # an empty cell is an empty text
        yield [None if cell == "" else cell for cell in row]


def _is_there(cell: object) -> bool:
    return cell is not None and (not isinstance(cell, str) or bool(cell.strip()))
