"""Read a file of SPSS, Stata or SAS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sfumato.engines.ingest.source_errors import unreadable
from sfumato.system.optional_packages import extra_module
from sfumato.system.typed_rows import TypedRows

_READERS: Final[Mapping[str, str]] = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
_ROWS: Final = 200_000  # rows of one piece in memory


def statistics_file(source: str) -> TypedRows:
    """Return the rows; labelled values stay the numbers that the file stores (1, not 'female')."""
    library = extra_module("pyreadstat", "files")
    read = getattr(library, _READERS[Path(source).suffix.casefold()])
    _, head = _read(library, read, source, {"metadataonly": True})
    names = tuple(str(name) for name in head.column_names)
    return TypedRows(names, _rows(library, read, source, names))


def _rows(library: Any, read: Any, source: str, names: Sequence[str]) -> Iterator[Sequence[object]]:
    begin = 0
    while True:
        piece, _ = _read(library, read, source, {"row_offset": begin, "row_limit": _ROWS})
        columns = [piece.get(name, []) for name in names]
        count = len(columns[0]) if columns else 0
        yield from zip(*columns, strict=True)
        if count < _ROWS:
            return
        begin += count


def _read(library: Any, read: Any, source: str, options: Mapping[str, object]) -> Any:
    try:
        return read(source, output_format="dict", **options)
    except (library.ReadstatError, library.PyreadstatError, UnicodeDecodeError, ValueError):
        raise unreadable(
            "The file is damaged, or is not of the program that its name says.",
            "Save it again, or export it as CSV.",
        ) from None
