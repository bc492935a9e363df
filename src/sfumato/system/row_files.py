"""The file names of rows: which suffixes a vault reads, and what they stand for."""

from __future__ import annotations

from typing import Final

TEXT: Final = (".csv", ".tsv")
LINES: Final = (".jsonl", ".ndjson")
PARQUET: Final = (".parquet", ".pq")
ARROW: Final = (".arrow", ".feather", ".ipc")
DUCKDB: Final = (".duckdb", ".ddb")
SQLITE: Final = (".sqlite", ".sqlite3", ".db3")
SHARED: Final = (".db",)  # DuckDB or SQLite; the first bytes of the file say which
SHEETS: Final = (".xlsx", ".xlsm", ".xls", ".ods")
STATISTICS: Final = (".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt")
COMPRESSED: Final = (".gz", ".zst")  # after the suffix of a text file: `visits.csv.gz`

PLAIN: Final = (
    *TEXT, *LINES, *PARQUET, *ARROW, *DUCKDB, *SQLITE, *SHARED, *SHEETS, *STATISTICS,
)  # fmt: skip
KINDS: Final = (
    "CSV, TSV or JSON lines (also .gz or .zst), Parquet, Arrow, Excel, SQLite, DuckDB, SPSS, "
    "Stata or SAS"
)

SUFFIXES: Final = (*PLAIN, *(end + packed for end in (*TEXT, *LINES) for packed in COMPRESSED))
# a file that may have several tables, so that one file can serve several tables of a card
OF_TABLES: Final = (*DUCKDB, *SHARED, *SQLITE, *SHEETS)


def row_suffix(name: str) -> str | None:
    """Return the suffix of a file of rows, such as `.xlsx` or `.csv.gz`; None for another file."""
    lower = name.casefold()
    return next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), None)
