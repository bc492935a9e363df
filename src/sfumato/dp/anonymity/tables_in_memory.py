"""Read tables in memory: data frames, arrays, tensors, and plain Python rows or columns.

This module imports no library for data frames or tensors. It recognises them by the module of
their type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np

from sfumato.dp.anonymity.coded_table import Column, Table, Value, decoded
from sfumato.dp.refusal import Refused

Tabular = Any  # a pandas, polars or pyarrow table, array, tensor, rows, or columns by name
LIBRARIES: Final = ("pandas", "polars", "pyarrow", "torch", "numpy")


def library_of(data: object) -> str | None:
    """Return the library of a data frame, array or tensor, or None for other objects."""
    roots = [base.__module__.partition(".")[0] for base in type(data).__mro__]
    return next((root for root in roots if root in LIBRARIES), None)


def array_of(data: Tabular) -> np.ndarray[Any, Any]:
    """Convert an array or tensor to a numpy array; refuse an array with masked cells."""
    if library_of(data) == "torch":
        data = data.detach().to("cpu").numpy()
    if np.ma.is_masked(data):
        raise Refused(
            "bad-request",
            "The array is masked: some of its cells have no value.",
            "Fill these cells first, for example with array.filled(...).",
        )
    return np.asarray(data)


def columns_of(data: Tabular) -> dict[str, list[Value]]:
    """Return the columns by name, as plain Python values; a missing value is None.

    Args:
        data: A pandas, polars or pyarrow table; an array or tensor of one or two dimensions, whose
            columns are named `0`, `1`, ...; a list of rows, each a mapping; or columns by name.

    Raises:
        Refused: `data` is none of these, two columns have the same name, or lengths differ.
    """
    pairs = [(str(name), [plain(v) for v in values]) for name, values in _columns(data)]
    columns = dict(pairs)
    if len(columns) < len(pairs):
        raise Refused("bad-request", "Two columns have the same name.", "Rename one of them.")
    if len({len(values) for values in columns.values()}) > 1:
        raise Refused(
            "bad-request",
            "The columns of the table differ in length.",
            "Give every column one value for each row, None if it is missing.",
        )
    return columns


def rows_of(data: Tabular) -> list[dict[str, Value]]:
    """Return the rows of an in-memory table as dicts of column name to value.

    `columns_of` says what a table may be.
    """
    columns = columns_of(data)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def coded_table(data: Tabular, names: Sequence[object] | None = None) -> Table:
    """Encode an in-memory table as if it had been read from a file; all columns, or only `names`.

    Raises:
        Refused: The table has no column of that name.
    """
    columns = columns_of(data)
    wanted = list(columns) if names is None else [str(name) for name in dict.fromkeys(names)]
    for name in wanted:
        if name not in columns:
            raise Refused(
                "unknown-column",
                f"The table has no column {name!r}.",
                f"Name some of {', '.join(columns)}.",
                column=name,
            )
    rows = len(next(iter(columns.values()), []))
    return Table({name: _coded(name, columns[name]) for name in wanted}, rows)


def plain(value: object) -> Value:
    """Convert a cell to a plain Python number, string or boolean, or to None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime) and value.tzinfo is None and value.time() == time():
        value = value.date()  # data frames store dates as midnight timestamps
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _columns(data: Tabular) -> Iterable[tuple[object, Iterable[object]]]:
    library = library_of(data)
    if library == "pandas" and hasattr(data, "to_frame") and hasattr(data, "iloc"):
        data = data.to_frame()
    if library == "pandas" and hasattr(data, "columns"):
        return _pandas_columns(data)
    if library == "polars" and hasattr(data, "get_columns"):
        return [(one.name, one.to_list()) for one in data.get_columns()]
    if library == "pyarrow" and hasattr(data, "column_names"):
        return [(n, data.column(i).to_pylist()) for i, n in enumerate(data.column_names)]
    if library in ("torch", "numpy") and hasattr(data, "shape"):
        return _array_columns(array_of(data))
    if isinstance(data, Mapping):
        return [(name, _cells(values)) for name, values in data.items()]
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return _row_columns(data)
    raise Refused(
        "bad-request",
        f"A {type(data).__name__} is not a table.",
        "Give a frame of pandas, polars or pyarrow, an array or a tensor, or a list of rows.",
    )


def _pandas_columns(frame: Tabular) -> list[tuple[object, list[object]]]:
    """Return the columns of a pandas frame; a named index counts as a column."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    found = []
    for place, name in enumerate(frame.columns):
        cells = frame.iloc[:, place]
        known = cells.notna().tolist()
        values = cells.astype(object).tolist()
        found.append((name, [v if k else None for v, k in zip(values, known, strict=True)]))
    return found


def _array_columns(array: np.ndarray[Any, Any]) -> list[tuple[object, list[object]]]:
    if array.dtype.names is not None:
        return [(name, array[name].tolist()) for name in array.dtype.names]
    if array.ndim not in (1, 2):
        raise Refused(
            "bad-request",
            f"An array of {array.ndim} dimensions is not a table.",
            "Give one row for each person.",
        )
    wide = array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)
    return [(place, wide[:, place].tolist()) for place in range(wide.shape[1])]


def _row_columns(rows: Sequence[Mapping[object, object]]) -> list[tuple[object, list[object]]]:
    names = list(rows[0]) if rows else []
    if any(set(row) != set(names) for row in rows):
        raise Refused(
            "bad-request",
            "The rows do not all have the same columns.",
            "Name all columns in each row.",
        )
    return [(name, [row[name] for row in rows]) for name in names]


def _cells(values: object) -> Iterable[object]:
    if library_of(values) == "torch" or isinstance(values, np.ndarray):
        return list(array_of(values).tolist())
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        return values
    raise Refused(
        "bad-request", "A column must be a list of values.", "Give one value for each row."
    )


def _coded(name: str, values: Sequence[Value]) -> Column:
    texts = ["" if v is None else _text(v) for v in values]
    place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    codes = np.fromiter((place[text] for text in texts), np.int64, count=len(texts))
    return decoded(name, list(place), codes)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
