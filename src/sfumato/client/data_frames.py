"""Write pandas, polars or pyarrow frames as CSV files, the form in which a vault adds rows."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sfumato.dp.refusal import Refused
from sfumato.system.csv_writer import NO_VALUE
from sfumato.system.optional_packages import extra_module
from sfumato.system.temporary_folders import temporary_folder

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
            paths[name] = held.enter_context(temporary_folder()) / "rows.csv"
            write_frame(rows, paths[name])
        yield paths


def check_frame(frame: Rows) -> None:
    """Refuse an object that is not a frame, and a frame whose columns are not named by text."""
    names = _names(frame)
    if names is None:
        raise Refused(
            "source-unreadable",
            f"Rows must be a file or a frame, not {type(frame).__name__!r}.",
            "Give a path, or a frame of pandas, polars or pyarrow.",
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
    if kind == "polars":
        frame.write_csv(path, null_value=NO_VALUE, quote_style="non_numeric")
        return
    if kind == "pyarrow":
        frame = frame.to_pandas(integer_object_nulls=True, date_as_object=True)
    has_names = any(name is not None for name in frame.index.names)
    frame.to_csv(
        path,
        index=has_names,  # a named index may hold the person; an unnamed one is dropped
        na_rep=NO_VALUE,
        quoting=csv.QUOTE_NONNUMERIC,
        lineterminator="\n",
        encoding="utf-8",
    )


def _names(frame: Rows) -> list[object] | None:
    """Return a data frame's column names, or None if the object is not a frame."""
    attribute = {"pandas": "columns", "polars": "columns", "pyarrow": "column_names"}
    found = getattr(frame, attribute.get(_library(frame), ""), None)
    return None if found is None else list(found)


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0]
