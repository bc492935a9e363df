"""The file names of rows: which suffixes a vault reads, and what they stand for."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Final

TEXT: Final = (".csv", ".tsv", ".txt")
LINES: Final = (".jsonl", ".ndjson")
PARQUET: Final = (".parquet", ".pq")
ARROW: Final = (".arrow", ".feather", ".ipc")
DUCKDB: Final = (".duckdb", ".ddb")
SQLITE: Final = (".sqlite", ".sqlite3", ".db3")
SHARED: Final = (".db",)  # DuckDB or SQLite; the first bytes of the file say which
SHEETS: Final = (".xlsx", ".xlsm", ".xls", ".ods")
STATISTICS: Final = (".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt")
ZIPPED: Final = (".zip",)  # of one or several files of the other formats
COMPRESSED: Final = (".gz", ".zst")  # after the suffix of a text file: `visits.csv.gz`

PLAIN: Final = (
    *TEXT, *LINES, *PARQUET, *ARROW, *DUCKDB, *SQLITE, *SHARED, *SHEETS, *STATISTICS, *ZIPPED,
)  # fmt: skip
KINDS: Final = (
    "CSV, TSV or JSON lines (also .gz or .zst), Parquet, Arrow, Excel, SQLite, DuckDB, SPSS, "
    "Stata or SAS, or a .zip of such files"
)

SUFFIXES: Final = (*PLAIN, *(end + packed for end in (*TEXT, *LINES) for packed in COMPRESSED))
# a file that may have several tables, so that one file can serve several tables of a card
OF_TABLES: Final = (*DUCKDB, *SHARED, *SQLITE, *SHEETS, *ZIPPED)


def parquet_files(source: str) -> tuple[str, ...]:
    """Return the Parquet files of a folder, or those that a pattern such as `a/*.parquet` matches.

    They are sorted by name. It is empty for anything else, such as a BIDS folder. As Spark and Hive
    do, it leaves out what begins with `_` or `.`.
    """
    if Path(source).is_dir():
        if (Path(source) / "participants.tsv").is_file():
            return ()
        below = sorted(Path(source).rglob("*"))
        return tuple(str(one) for one in below if _is_parquet(one, one.relative_to(source)))
    if not glob.has_magic(source) or Path(source).exists():
        return ()
    return tuple(one for one in sorted(glob.glob(source, recursive=True)) if _is_parquet(Path(one)))


def is_source(source: str) -> bool:
    """Return True if there are rows at a path: a file, or the Parquet files of a folder."""
    return Path(source).is_file() or bool(parquet_files(source))


def _is_parquet(path: Path, inside: Path | None = None) -> bool:
    parts = (inside or Path(path.name)).parts
    is_hidden = any(part.startswith(("_", ".")) for part in parts)
    return not is_hidden and path.suffix.casefold() in PARQUET and path.is_file()


def row_suffix(name: str) -> str | None:
    """Return the suffix of a file of rows, such as `.xlsx` or `.csv.gz`; None for another file."""
    lower = name.casefold()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), None)
