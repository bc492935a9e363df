"""Write data frames and lists of rows as text files, the form in which a vault adds rows."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.dp.refusal import Refused
from sfumato.system.csv_writer import NO_VALUE
from sfumato.system.optional_packages import extra_module
from sfumato.system.temporary_folders import temporary_folder
from sfumato.system.typed_rows import TypedRows, write_typed

Rows: TypeAlias = Any  # a path, or a frame; Any because its library need not be installed


def arrow_stream(columns: Mapping[str, list[object]], requested_schema: object) -> object:
    """Return columns as a capsule of Arrow's C stream, by pyarrow or else polars; or refuse."""
    if importlib.util.find_spec("pyarrow") is None and importlib.util.find_spec("polars"):
        frame: Any = extra_module("polars", "frames").DataFrame(columns, strict=False)
    else:
        frame = extra_module("pyarrow", "frames").table(columns)
    return frame.__arrow_c_stream__(requested_schema)


def is_frame(rows: object) -> bool:
    """Return True if the given rows are a data frame, False if they are a path."""
    return not isinstance(rows, str | os.PathLike)


def writer_of(frame: object) -> Callable[[Path, int], None]:
    """Return a function that writes a data frame as CSV.

    The function refuses a file of more than `room` bytes.
    """
    check_frame(frame)

    def write(path: Path, room: int) -> None:
        write_frame(frame, path)
        if path.stat().st_size > room:
            raise Refused(
                "too-large",
                f"The frame is larger than {room} bytes as CSV.",
                "Write it into a Parquet file, and add that file.",
            )

    return write


@contextmanager
def as_files(files: Mapping[str, Rows]) -> Iterator[dict[str, str | os.PathLike[str]]]:
    """Yield a path for each source; data frames are written to private files, deleted on exit."""
    with ExitStack() as held:
        paths = {}
        for name, rows in files.items():
            if not is_frame(rows):
                paths[name] = rows
                continue
            check_frame(rows)
            paths[name] = held.enter_context(temporary_folder()) / "rows.tsv"
            write_frame(rows, paths[name])
        yield paths


def check_frame(frame: Rows) -> None:
    """Refuse an object that is not a frame, and a frame whose columns are not named by text."""
    names = _names(frame)
    if names is None:
        raise Refused(
            "source-unreadable",
            f"Rows must be a file or a frame, not {type(frame).__name__!r}.",
            "Give a path, a frame of pandas, polars, pyarrow or DuckDB, or a list of dicts.",
        )
    if any(isinstance(name, tuple) for name in names):
        raise Refused(
            "source-unreadable",
            "The frame's column names have several levels.",
            "Join the levels into one name for each column.",
        )
    if not all(isinstance(name, str) for name in names):
        raise Refused(
            "no-header",
            "The names of the frame's columns are not texts, as if a file was read without a "
            "header.",
            'Name them: frame.columns = ["person", "age", …].',
        )


def write_frame(frame: Rows, path: Path) -> None:
    """Write the frame as CSV; missing values stay missing, and numbers stay exact."""
    kind = _library(frame)
    if _is_rows(frame):
        names = [str(name) for name in _names(frame) or ()]
        rows = ([row.get(name) for name in names] for row in frame)
        write_typed(TypedRows(tuple(names), rows), path)
        return
    if kind == "polars":
        frame = frame.collect() if hasattr(frame, "collect") else frame
        frame.write_csv(path, separator="\t", null_value=NO_VALUE, quote_style="non_numeric")
        return
    if kind != "pandas":
        frame = _table(frame).to_pandas(integer_object_nulls=True, date_as_object=True)
    has_names = any(name is not None for name in frame.index.names)
    frame.to_csv(
        path,
        index=has_names,  # a named index may hold the person; an unnamed one is dropped
        na_rep=NO_VALUE,
        quoting=csv.QUOTE_NONNUMERIC,
        sep="\t",
        lineterminator="\n",
        encoding="utf-8",
    )


def _names(frame: Rows) -> list[object] | None:
    """Return a data frame's column names, or None if the object is not a frame."""
    if _is_rows(frame):
        return list(dict.fromkeys(name for row in frame for name in row))
    if hasattr(frame, "collect_schema"):  # of polars, also of a lazy frame
        return list(frame.collect_schema().names())
    if _library(frame) == "pandas":
        return list(getattr(frame, "columns", ())) or None
    schema: Any = getattr(frame, "schema", None)
    if hasattr(schema, "names"):  # of pyarrow: a table, batch, reader or dataset
        return list(schema.names)
    if _library(frame) in {"duckdb", "_duckdb"} and hasattr(frame, "columns"):
        return list(frame.columns)
    return list(_table(frame).schema.names) if hasattr(frame, "__arrow_c_stream__") else None


def _is_rows(frame: Rows) -> bool:
    """Return True if the rows are a list of mappings, such as dicts."""
    is_list = isinstance(frame, Sequence) and not isinstance(frame, str | bytes)
    return is_list and bool(frame) and all(isinstance(row, Mapping) for row in frame)


def _table(frame: Rows) -> Any:
    """Return a frame of any library as a table of pyarrow."""
    arrow = extra_module("pyarrow", "frames")
    if hasattr(frame, "to_arrow_table"):  # a relation of DuckDB
        return frame.to_arrow_table()
    if hasattr(frame, "to_table"):  # a dataset of pyarrow
        return frame.to_table()
    return arrow.table(frame)


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0]
