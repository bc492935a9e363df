"""Declare and parse the outputs of untrusted programs: numbers with a declared range and step.

Every output of a block is untrusted, and our parsers never fail on one. A missing, malformed or
non-finite value counts as the middle of the range, so a failure reveals nothing (soundness rules 26
to 28).
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Final  # Any: untrusted JSON

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.sandbox.file_formats.matlab import read_matlab
from sfumato.sandbox.file_formats.nifti import read_nifti, read_packed_nifti
from sfumato.sandbox.file_formats.numpy_array import NumpyFile, read_npy
from sfumato.sandbox.file_formats.workbook import place_of, read_workbook

MAX_OUTPUTS: Final = 64
MAX_CELLS: Final = 4000  # most numbers of all arrays together; they fit in a block's output
MAX_TABLES: Final = 8  # most tables of one file; it limits the time to read them
MAX_RECORDS: Final = 1000  # most objects of a list that is a table, for the same reason
MAX_STEPS: Final = 2**40  # most steps of a range; a sum over a thousand blocks cannot overflow
ANSWER: Final = "answer.json"  # result file with the numbers that a function returns
_MAX_DIGITS: Final = 40  # most characters of a number in a result; a longer one is invalid
_FAILURES: Final = (
    ValueError, LookupError, RecursionError, ArithmeticError, TypeError, struct.error,
    csv.Error,
)  # fmt: skip
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?"
)
_RATIO: Final = re.compile(r"-?[0-9]{1,40}/[1-9][0-9]{0,39}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_CELL_NAME: Final = re.compile(r"[A-Z]{1,3}[1-9][0-9]{0,6}")
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}")
_SUFFIXES: Final = ("tsv", "csv", "txt", "json", "npy", "nii", "nii.gz", "mat", "xlsx")
_ARRAYS: Final = ("npy", "nii", "nii.gz", "mat")
_TABLES: Final = ("tsv", "csv", "xlsx")  # files with named rows and columns
_PICTURES: Final = ("png", "svg", "jpg", "jpeg", "pdf")
_MATLAB: Final = "mat"
_MAT_4: Final = 20  # bytes of the header of a `.mat` file of version 4
_JSON: Final = "json"
_WORKBOOK: Final = "xlsx"


@dataclass(frozen=True)
class Output:
    """A declared output of a program: a number, an array, or a table with named cells.

    It has a name, a range, a step, and a place in a result file.
    """

    name: str
    lower: Fraction
    upper: Fraction
    step: Fraction
    path: str = ANSWER
    at: tuple[str | int, ...] = ()  # place in the file: JSON keys, or row and column
    shape: tuple[int, ...] = ()  # shape of an array; all its numbers have the same range
    # names of a table's rows and columns; they come from the declaration, never from the results
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    key: str = ""  # the column with the names of the rows; by default the first column

    @property
    def count(self) -> int:
        """Return how many numbers the output has; an array has several."""
        return math.prod(self.shape)

    @property
    def steps(self) -> int:
        """Return the number of steps in the range: the sensitivity of a sum to one block."""
        return int((self.upper - self.lower) / self.step)

    @property
    def middle(self) -> int:
        """Return the middle of the range, which replaces an invalid result, in steps from below."""
        return self.steps // 2

    def snapped(self, value: object) -> int:
        """Convert a program's value to steps above the lower end of the range, exactly.

        The value is clamped to the range first, then rounded half up.
        """
        exact = _exact(value)
        if exact is None:
            return self.middle
        inside = min(max(exact, self.lower), self.upper)
        return min(self.steps, math.floor((inside - self.lower) / self.step + Fraction(1, 2)))

    def snapped_all(self, array: NumpyFile) -> list[int]:
        """Convert all numbers of an array to steps of the range, like `snapped` but in floats."""
        if array.shape != self.shape:
            raise ValueError
        return self.snapped_floats(array.numbers())

    def snapped_floats(self, values: NDArray[np.float64]) -> list[int]:
        """Convert numbers to steps of the range; those that are not finite become the middle."""
        lower, upper, step = (float(one) for one in (self.lower, self.upper, self.step))
        places = np.floor((np.clip(values, lower, upper) - lower) / step + 0.5)
        steps = np.where(np.isfinite(values), np.clip(places, 0, self.steps), self.middle)
        return [int(one) for one in steps.tolist()]

    def as_json(self) -> dict[str, object]:
        """Return the output's declaration as exact JSON for the ledger."""
        shape = {"shape": list(self.shape)} if self.shape else {}
        return {
            **shape,
            "name": self.name,
            "lower": str(self.lower),
            "upper": str(self.upper),
            "step": str(self.step),
            "path": self.path,
            "at": list(self.at),
            **({"rows": list(self.rows), "columns": list(self.columns)} if self.rows else {}),
            **({"key": self.key} if self.key else {}),
        }


def _exact(value: object) -> Fraction | None:
    """Return a value as an exact fraction, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal) and (not value.is_finite() or abs(value.adjusted()) > 400):
        return None
    return Fraction(value)


# --- declaring ------------------------------------------------------------------------------------


def read_outputs(shape: object) -> tuple[Output, ...]:
    """Parse the outputs that a program declares, or refuse."""
    if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_OUTPUTS:
        raise bad_pipeline(f"declare 1 to {MAX_OUTPUTS} outputs")
    outputs = tuple(_read_output(one) for one in shape)
    if len({one.name.casefold() for one in outputs}) < len(outputs):
        raise bad_pipeline("two outputs have the same name")
    if sum(one.count for one in outputs if one.shape) > MAX_CELLS:
        raise bad_pipeline(f"all arrays together may have at most {MAX_CELLS:,} numbers")
    for path in {one.path for one in outputs}:
        _check_tables([one for one in outputs if one.path == path and one.rows])
    return outputs


def _check_tables(tables: Sequence[Output]) -> None:
    """Refuse tables on one file that would take long to read: too many, or with several keys."""
    if len(tables) > MAX_TABLES or len({one.key for one in tables}) > 1:
        raise bad_pipeline(
            f"one file may have at most {MAX_TABLES} tables, and they must have the same key column"
        )


def _read_output(shape: object) -> Output:
    if not isinstance(shape, Mapping) or not set(shape) <= {
        "name", "lower", "upper", "step", "path", "at", "shape", "rows", "columns", "key"
    }:  # fmt: skip
        raise bad_pipeline(
            "an output must have name, lower and upper; it may have step, path, at, shape, rows, "
            "columns and key"
        )
    name = shape.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_pipeline(
            "an output's name may have letters, digits and _, and must not begin with a digit"
        )
    lower, upper = (bound_of(shape.get(end), name, end) for end in ("lower", "upper"))
    if lower >= upper:
        raise bad_pipeline(f"lower of output {name!r} is not below its upper")
    step = _step(shape.get("step"), name, lower, upper)
    named = _read_names(shape, name)
    dims = _read_dims(shape.get("shape", []), name) or tuple(len(names) for names in named[:2])
    path = shape.get("path", f"{name}.npy" if dims else ANSWER)
    at = _read_at(shape.get("at", []), name)
    if not isinstance(path, str) or not is_result_path(path):
        raise _bad_path(path, name)
    _check_place(name, path, at, (dims, *named))
    at = at or ((name,) if path == ANSWER else ())
    return Output(name, lower, upper, step, path, at, dims, *named)


Names = tuple[str, ...]


def _read_names(shape: Mapping[str, Any], name: str) -> tuple[Names, Names, str] | tuple[()]:
    """Parse a table's row and column names and its key column; empty if it is no table."""
    if not {"rows", "columns", "key"} & set(shape):
        return ()
    rows, columns = (_read_labels(shape.get(of), name, of) for of in ("rows", "columns"))
    if len(rows) * len(columns) > MAX_CELLS:
        raise bad_pipeline(f"all arrays together may have at most {MAX_CELLS:,} numbers")
    key = shape.get("key", "")
    if not _is_label(key) and key != "":
        raise bad_pipeline(f"key of output {name!r} must be the name of a column")
    return rows, columns, key


def _read_labels(shape: object, name: str, of: str) -> Names:
    if not isinstance(shape, list) or not shape or not all(map(_is_label, shape)):
        raise bad_pipeline(
            f"{of} of the table {name!r} must be a list of names, without spaces at their ends"
        )
    if len(set(shape)) < len(shape):
        raise bad_pipeline(f"two {of} of the table {name!r} have the same name")
    return tuple(shape)


def _is_label(one: object) -> bool:
    return (
        isinstance(one, str) and 1 <= len(one) <= 200 and one.isprintable() and one == one.strip()
    )


def _check_place(
    name: str, path: str, at: tuple[str | int, ...], declared: tuple[object, ...]
) -> None:
    """Refuse an array or a table that the format of its file can't have."""
    dims, *named = declared
    suffix = _suffix(path)
    if named and dims != tuple(len(names) for names in named[:2]):  # type: ignore[arg-type]  # names
        raise bad_pipeline(f"the shape of the table {name!r} must be its rows and columns")
    if named and suffix in (*_TABLES, _JSON):
        most = {_JSON: 8, _WORKBOOK: 1}.get(suffix, 0)
        if len(at) > most:
            raise bad_pipeline(
                f"the table {name!r} needs no place in its file; in a workbook it may have a sheet"
            )
        return
    is_named = suffix == _MATLAB and len(at) == 1 and isinstance(at[0], str)
    if dims and (suffix not in _ARRAYS or (at and not is_named)):
        raise bad_pipeline(
            f"the array {name!r} must be a whole .npy or .nii file, or be named in a .mat; a table "
            "with named rows and columns may also be in a .tsv, .csv, .json or .xlsx"
        )
    if suffix == _WORKBOOK and not _is_in_workbook(at):
        raise bad_pipeline(
            f"the place of output {name!r} must be a cell such as B3 or SHEET!B3, or "
            "[SHEET,]ROW,COLUMN"
        )


def _is_in_workbook(at: tuple[str | int, ...]) -> bool:
    if len(at) == 1 and isinstance(at[0], str):
        return _CELL_NAME.fullmatch(at[0].rpartition("!")[2]) is not None
    return 2 <= len(at) <= 3 and isinstance(at[-2], int)


def _bad_path(path: object, name: str) -> Refused:
    if isinstance(path, str) and _suffix(path) in _PICTURES:
        return Refused(
            "bad-pipeline",
            f"The output {name!r} is a picture ({path}), and noise can't make a picture private.",
            "Submit the program with `sfumato airlock submit`: pictures leave only through output "
            "checking by a person (docs/how-to/airlock.md). Or declare the numbers in it.",
        )
    if isinstance(path, str) and path.startswith("/"):
        return bad_pipeline(
            f"the path {path} of output {name!r} begins with /, and it must begin in the output "
            f"folder, as in {path.lstrip('/')}"
        )
    return bad_pipeline(
        f"output {name!r} must come from a file of the output folder that ends in "
        f"{', '.join('.' + one for one in _SUFFIXES)}"
    )


def _read_dims(shape: object, name: str) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > 4:
        raise bad_pipeline(
            f"the shape of output {name!r} must be a list of up to four whole numbers"
        )
    for one in shape:
        if isinstance(one, bool) or not isinstance(one, int) or not 1 <= one <= MAX_CELLS:
            raise bad_pipeline(f"the shape of output {name!r} must have numbers up to {MAX_CELLS}")
    return tuple(shape)


def is_result_path(path: str) -> bool:
    """Return True if a path may be a result file: in the output folder, with a known suffix."""
    return len(path) <= 200 and _PATH.fullmatch(path) is not None and _suffix(path) in _SUFFIXES


def _suffix(path: str) -> str:
    """Return a result file's format by its suffix, such as "npy" or "nii.gz"."""
    lower = path.lower()
    return "nii.gz" if lower.endswith(".nii.gz") else lower.rsplit(".", 1)[-1]


def bound_of(value: object, name: str, end: str) -> Fraction:
    """Parse one end of an output's range to the exact written number, or refuse."""
    exact = _ratio(value) if isinstance(value, str) else _exact(value)
    if isinstance(value, float) and exact is not None:
        exact = Fraction(repr(value))  # 0.1 is 1/10, not the nearest double
    if exact is None or abs(exact) > 10**15:
        raise bad_pipeline(f"{end} of output {name!r} must be a number up to 1e15")
    return exact


def _ratio(text: str) -> Fraction | None:
    """Parse a decimal such as "0.5", or a ratio such as "1/2" from the ledger, to a fraction."""
    return Fraction(text) if _RATIO.fullmatch(text) else _text_number(text)


def _step(value: object, name: str, lower: Fraction, upper: Fraction) -> Fraction:
    step = (upper - lower) / 10_000 if value is None else bound_of(value, name, "step")
    if step <= 0 or ((upper - lower) / step).denominator != 1 or upper - lower > step * MAX_STEPS:
        raise bad_pipeline(f"the range of output {name!r} is not a whole number of steps")
    return step


def _read_at(shape: object, name: str) -> tuple[str | int, ...]:
    if not isinstance(shape, list) or len(shape) > 8:
        raise bad_pipeline(f"at of output {name!r} must be a short list of names and positions")
    for one in shape:
        is_place = isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 10**6
        if not is_place and not (isinstance(one, str) and one.isprintable() and len(one) <= 200):
            raise bad_pipeline(f"at of output {name!r} must be a short list of names and positions")
    return tuple(shape)


def bad_pipeline(cause: str) -> Refused:
    """Return the refusal of an invalid declaration of a program."""
    return Refused(
        "bad-pipeline",
        f"The program's declaration is not valid: {cause}.",
        "Correct the declaration, and submit the program again.",
    )


def _text_number(text: str) -> Fraction | None:
    """Parse a decimal number in a text; None if it is invalid or too long to parse quickly."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        return _exact(Decimal(text.strip()))
    except ArithmeticError:
        return None


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How one output of a trial on synthetic rows was parsed; real rows never have one."""

    name: str
    is_number: bool  # False if the output counts as the middle of the range
    says: str
    lacks: int = 0  # how many numbers of a table or an array count as the middle of the range

    def as_json(self) -> dict[str, object]:
        """Return how the trial's output was parsed, as JSON for a plan."""
        return {"output": self.name, "is_number": self.is_number, "says": self.says}


def parsed_outputs(output: bytes, outputs: tuple[Output, ...]) -> list[Reading]:
    """Explain how each output of a trial on synthetic rows was parsed, and why if it is invalid.

    `read_output` parses the same bytes to the same numbers (a test compares them).
    """
    try:
        with np.errstate(all="ignore"):
            files = _files(output)
            return [_reading(files, output) for output in outputs]
    except Exception:  # noqa: BLE001  # as in `read_output`
        return [
            Reading(one.name, False, "no number: the results cannot be read") for one in outputs
        ]


def _reading(files: Mapping[str, bytes], output: Output) -> Reading:
    path, found = output.path, files.get(output.path)
    if found is None:
        return Reading(output.name, False, f"no number: there is no result {path}")
    parsed = _parsed(found, path)
    if parsed is None:
        why = _why_unread(found) if _suffix(path) == _MATLAB else ""
        says = f"no number: {path} cannot be read as {_suffix(path)}{why}"
        return Reading(output.name, False, says)
    try:
        return _array_reading(parsed, output) if output.shape else _number_reading(parsed, output)
    except _FAILURES:
        place = f" at {', '.join(map(str, output.at))}" if output.at else ""
        there = _there(parsed, path)
        return Reading(output.name, False, f"no number: {path} has nothing{place}{there}")


def _why_unread(found: bytes) -> str:
    """Return which other format a trial's `.mat` file has and what to do, or "" if unknown."""
    if found[:19] == b"MATLAB 7.3 MAT-file" or found[:8] == b"\x89HDF\r\n\x1a\n":
        saved = "version 7.3 (HDF5)"
    elif found.startswith((b"# Created by Octave", b"Octave-1-")):
        saved = "Octave's own format"
    elif len(found) >= _MAT_4 and b"\x00" in found[:4]:  # version 5 begins with a text
        saved = "version 4"
    else:
        return ""
    return f": it was saved as {saved}, so save it with -v7"


def _there(parsed: Any, path: str) -> str:
    """Return what a trial's result file has instead of a declared place: its keys or columns."""
    if isinstance(parsed, Mapping) and _suffix(path) == _JSON:
        return f"; its keys are {_few(parsed)}" if parsed else "; it is empty"
    if isinstance(parsed, _Book):
        return f"; its sheets are {_few(parsed.names)}"
    if not isinstance(parsed, _Table):
        return ""
    heads = sorted(parsed.heads, key=parsed.heads.__getitem__)
    split = ";" in "".join(heads) and _suffix(path) == "csv"
    comma = ", and a .csv needs commas between its cells" if split else ""
    return f"; its first line is {_few(heads)}{comma}"


def _few(names: Iterable[object]) -> str:
    """Return up to eight names of a trial's results, as harmless text."""
    first = [ascii(str(one)[:40])[1:-1] for one in islice(names, 9)]
    return ", ".join([*first[:8], "..."] if len(first) > 8 else first)


def _number_reading(parsed: object, output: Output) -> Reading:
    exact = _exact(_FINDERS[_suffix(output.path)](parsed, output.at))
    if exact is None:
        found = _text_there(parsed, output)
        shown = f"{found[:40]!a} in {output.path}" if found else f"the value in {output.path}"
        says = f"no number: {shown} is not a number{_why_none(found)}"
        return Reading(output.name, False, says)
    value = float(output.lower + output.step * output.snapped(exact))
    if output.lower <= exact <= output.upper:
        return Reading(output.name, True, f"{value:.10g}")
    which = "above" if exact > output.upper else "below"
    return Reading(output.name, True, f"{value:.10g}, as it was {which} the range")


def _text_there(parsed: Any, output: Output) -> str:
    """Return the text that a trial's result file has at an output's place; "" for an array."""
    suffix = _suffix(output.path)
    if suffix == _JSON:
        return str(_find_json(parsed, output.at))
    if suffix == "txt":
        return str(parsed[_place(output.at, 0)])
    if suffix == _WORKBOOK:
        return _workbook_text(parsed, output.at)
    return _cell_text(parsed, output.at) if suffix in _TABLES else ""


def _why_none(text: str) -> str:
    """Return why a text is no number and what to write instead, or "" if that is unknown."""
    if re.fullmatch(r"[+-]?[0-9.]+,[0-9]+", text):
        return ": write a decimal point instead of the comma"
    if text.casefold() in ("nan", "n/a", "na", "none", "null", "", "inf", "-inf", "[]"):
        return ": the program computed none, for example for a group without people"
    if re.search(r"[=:].*[0-9]", text):
        return ": write the number alone"
    return ""


def _array_reading(parsed: object, output: Output) -> Reading:
    array = _array(parsed, output)
    if isinstance(array, np.ndarray):
        finite = int(np.isfinite(array).sum())
        says = f"a table, of which {finite} of {output.count} cells are numbers"
        lacks = output.count - finite
        if lacks:
            row, column = divmod(int(np.isfinite(array).argmin()), len(output.columns))
            says += f"; the first that is none is {output.rows[row]}, {output.columns[column]}"
            says += "" if finite else _there(parsed, output.path)
        return Reading(output.name, finite > 0, says if finite else f"no number: {says}", lacks)
    if not isinstance(array, NumpyFile) or array.shape != output.shape:
        shape = ", ".join(map(str, output.shape))
        return Reading(output.name, False, f"no number: {output.path} is not an array of ({shape})")
    finite = int(np.isfinite(array.numbers()).sum())
    says = f"an array, of which {finite} of {output.count} are numbers"
    return Reading(output.name, finite > 0, says, output.count - finite)


def read_output(output: bytes, outputs: tuple[Output, ...]) -> list[int]:
    """Parse the untrusted output of a block; return each number of each output in steps.

    It never raises, and numpy never warns: either would reveal one exact bit of the block's rows.
    Each file is parsed once.
    """
    try:
        with np.errstate(all="ignore"):  # else numpy warns of a signalling NaN on standard error
            return _read_said(_files(output), outputs)
    except Exception:  # noqa: BLE001  # every output of the block counts as the middle
        return [output.middle for output in outputs for _ in range(output.count)]


def _read_said(files: Mapping[str, bytes], outputs: tuple[Output, ...]) -> list[int]:
    read = {path: _parsed(files.get(path), path) for path in {one.path for one in outputs}}
    return [step for output in outputs for step in _steps(read[output.path], output)]


def _steps(parsed: object, output: Output) -> list[int]:
    if not output.shape:
        return [output.snapped(_value(parsed, output))]
    try:
        array = _array(parsed, output)
        if isinstance(array, np.ndarray):
            return output.snapped_floats(array)
        if isinstance(array, NumpyFile):
            return output.snapped_all(array)
    except _FAILURES:
        pass
    return [output.middle] * output.count


def _array(parsed: object, output: Output) -> object:
    """Return the array of a file, or the numbers of a table's named cells; else anything."""
    if output.rows and _suffix(output.path) in (*_TABLES, _JSON):
        return _named_cells(parsed, output)
    return _in_matlab(parsed, output.at) if _suffix(output.path) == _MATLAB else parsed


def result_paths(output: bytes) -> Collection[str]:
    """Return the paths of the results in the message of a trial block on synthetic rows."""
    return _files(output).keys()


def _files(output: bytes) -> dict[str, bytes]:
    """Parse a block's message, a JSON object of paths and hex bytes; empty if it is invalid."""
    try:
        body = json.loads(output, parse_int=_unread, parse_float=_unread)
        pairs = body.items() if isinstance(body, dict) else ()
        return {path: bytes.fromhex(text) for path, text in pairs if isinstance(text, str)}
    except _FAILURES:
        return {}


def _unread(_text: str) -> None:
    """Parse any JSON number to None, because no number of the message matters."""


def _parsed(found: bytes | None, path: str) -> object:
    """Parse a result file by its format; return None if it is missing or invalid."""
    if found is None:
        return None
    try:
        return _PARSERS[_suffix(path)](found)
    except _FAILURES:
        return None


def _value(parsed: object, output: Output) -> object:
    if parsed is None:
        return None
    try:
        return _FINDERS[_suffix(output.path)](parsed, output.at)
    except _FAILURES:
        return None


def _parse_json(found: bytes) -> object:
    return json.loads(found, parse_float=_short_decimal, parse_int=_short_int)


def _short_decimal(text: str) -> Decimal | None:
    return Decimal(text) if len(text) <= _MAX_DIGITS else None


def _short_int(text: str) -> int | None:
    return int(text) if len(text) <= _MAX_DIGITS else None


def _find_json(value: Any, at: tuple[str | int, ...]) -> object:
    for step in at:
        value = value[step]
    return value


def _parse_txt(found: bytes) -> object:
    return found.decode("utf-8").split()


def _find_txt(words: Any, at: tuple[str | int, ...]) -> object:
    return _text_number(words[_place(at, 0)])


def _parse_tsv(found: bytes) -> object:
    return _lines(found, "\t")


def _parse_csv(found: bytes) -> object:
    return _lines(found, ",")


@dataclass(frozen=True)
class _Table:
    """A result table: its cells by line and column, and the columns by the first line's names."""

    lines: Mapping[int, Mapping[int, str]] | Sequence[Sequence[str]]
    heads: Mapping[str, int]

    def by_name(self, key: str) -> Mapping[str, Any]:
        """Index the lines after the first by their cell in the key column; the first of two counts.

        Without a key, it is the first column. All tables of a file have the same key, so the index
        is made once.
        """
        if key not in self._indexes:
            column = self.heads[key] if key else 0
            lines = self.lines
            pairs = lines.items() if isinstance(lines, Mapping) else enumerate(lines)
            found: dict[str, Any] = {}  # Any: a line of either kind
            for place, line in pairs:
                if place > 0:
                    found.setdefault(_cell(line, column).strip(), line)
            self._indexes[key] = found
        return self._indexes[key]

    _indexes: dict[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class _Book:
    """The sheets of a workbook as tables, by their place and their name."""

    names: tuple[str, ...]
    tables: tuple[_Table, ...]

    def table(self, which: str | int) -> _Table:
        """Return a sheet by its name, or by its place from 0; raise LookupError or ValueError."""
        return self.tables[self.names.index(which) if isinstance(which, str) else which]


def _lines(found: bytes, between: str) -> _Table:
    """Split a text table into cells per line; a cell may be in double quotes."""
    texts = [line for line in found.decode("utf-8-sig").splitlines() if line.strip()]
    lines = list(csv.reader(texts, delimiter=between))
    return _Table(lines, _heads(list(enumerate(lines[0]))))


def _parse_workbook(found: bytes) -> object:
    read = read_workbook(found)
    tables = (_Table(one, _heads(sorted(one.get(0, {}).items()))) for one in read.sheets)
    return _Book(read.names, tuple(tables))


def _heads(cells: Sequence[tuple[int, str]]) -> Mapping[str, int]:
    """Index the columns of a table by the names in its first line; the first of two counts."""
    return {head.strip(): place for place, head in reversed(cells)}


def _find_cell(table: Any, at: tuple[str | int, ...]) -> object:
    """Return the number in a table's cell, found by row and column number or by their names."""
    return _text_number(_cell_text(table, at))


def _cell_text(table: Any, at: tuple[str | int, ...]) -> str:
    column = at[1] if len(at) > 1 else 0
    if isinstance(column, str):
        return str(table.lines[1 + _place(at, 0)][table.heads[column]])
    return str(table.lines[_place(at, 0)][column])


def _find_in_workbook(found: Any, at: tuple[str | int, ...]) -> object:
    """Return the number in a cell: "B3", "SHEET!B3", or sheet (by default the first), row, column.

    The sheet is a name, or a place from 0.
    """
    return _text_number(_workbook_text(found, at))


def _workbook_text(found: Any, at: tuple[str | int, ...]) -> str:
    if len(at) == 1:
        sheet, mark, cell = str(at[0]).rpartition("!")
        row, column = place_of(cell)
        return str(found.table(sheet if mark else 0).lines[row][column])
    return _cell_text(found.table(at[0] if len(at) > 2 else 0), at[-2:])


def _named_cells(parsed: object, output: Output) -> NDArray[np.float64]:
    """Return the cells of a table by the declared names, in row-major order.

    A cell that is missing or no number is NaN. So it becomes the middle of the range.
    """
    if parsed is None:
        raise ValueError
    find = _cells_of_json if _suffix(output.path) == _JSON else _cells_of_table
    return np.array(find(parsed, output), dtype=np.float64)


def _cells_of_table(parsed: Any, output: Output) -> list[float]:
    table: _Table = parsed
    if isinstance(parsed, _Book):
        table = parsed.table(output.at[0] if output.at else 0)
    found = table.by_name(output.key)
    places = [table.heads.get(column, -1) for column in output.columns]
    return [_float(_cell(found.get(row, ()), place)) for row in output.rows for place in places]


def _cell(line: Any, place: int) -> str:  # Any: cells in a list, or by their place
    """Return a cell of a line, or an empty text if the line has no such cell."""
    if isinstance(line, Mapping):
        return str(line.get(place, ""))
    return str(line[place]) if 0 <= place < len(line) else ""


def _cells_of_json(parsed: Any, output: Output) -> list[float]:
    """Return the cells of `{row: {column: number}}`, or of a list of objects with a key column."""
    found = _find_json(parsed, output.at)
    if isinstance(found, list) and len(found) <= MAX_RECORDS:
        found = {_key_of(one, output.key): one for one in reversed(found)}
    if not isinstance(found, Mapping):
        raise ValueError
    cells = []
    for row in output.rows:
        line: Any = found.get(row)  # Any: untrusted JSON
        is_line = isinstance(line, Mapping)
        cells += [_plain(line.get(column)) if is_line else math.nan for column in output.columns]
    return cells


def _key_of(record: object, key: str) -> str:
    """Return the name of a row that is an object: its key column, by default its first value."""
    if not isinstance(record, Mapping) or not record:
        raise ValueError
    found = record[key] if key else next(iter(record.values()))
    return str(found) if isinstance(found, str | int | Decimal) else ""


def _plain(value: object) -> float:
    """Return a number of a JSON file as a float; NaN if it is no number or too large."""
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return float(value) if is_number else math.nan  # type: ignore[arg-type]  # a number


def _float(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text.strip()) else math.nan


def _place(at: tuple[str | int, ...], which: int) -> int:
    found = at[which] if len(at) > which else 0
    if isinstance(found, str):
        raise ValueError
    return found


def _find_npy(array: Any, at: tuple[str | int, ...]) -> object:
    found: NumpyFile = array
    return found.number(tuple(_place(at, which) for which in range(len(at))))


def _in_matlab(arrays: Any, at: tuple[str | int, ...]) -> object:
    """Return a MATLAB file's array of the given name; without a name, its only array."""
    if arrays is None:
        raise ValueError
    found: Mapping[str, NumpyFile] = arrays
    if at and isinstance(at[0], str):
        return found[at[0]]
    (only,) = found.values()
    return only


def _find_mat(arrays: Any, at: tuple[str | int, ...]) -> object:
    is_named = bool(at) and isinstance(at[0], str)
    array = _in_matlab(arrays, at)
    rest = at[1:] if is_named else at
    if not rest and isinstance(array, NumpyFile):  # MATLAB stores a single number as a 1x1 array
        rest = (0,) * len(array.shape) if math.prod(array.shape) == 1 else ()
    return _find_npy(array, rest)


_PARSERS: Final[dict[str, Callable[[bytes], object]]] = {
    "tsv": _parse_tsv, "csv": _parse_csv, "txt": _parse_txt, "json": _parse_json, "npy": read_npy,
    "nii": read_nifti, "nii.gz": read_packed_nifti, "mat": read_matlab, "xlsx": _parse_workbook,
}  # fmt: skip
_FINDERS: Final[dict[str, Callable[[Any, tuple[str | int, ...]], object]]] = {
    "tsv": _find_cell, "csv": _find_cell, "txt": _find_txt, "json": _find_json, "npy": _find_npy,
    "nii": _find_npy, "nii.gz": _find_npy, "mat": _find_mat, "xlsx": _find_in_workbook,
}  # fmt: skip
