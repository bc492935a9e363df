"""Build the requests for a researcher's function: its source text and its declared outputs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sfumato.client.ask_terms import Json, Number
from sfumato.client.display import SubmittedProgram
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines import program_folder

MAX_FILES: Final = program_folder.MAX_FILES
texts_of: Final = program_folder.texts_of
MOST_PAST: Final = 1000  # the most past operations that one page of a history has
_LISTS: Final = ("shape", "rows", "columns", "at")
# output name -> (lower, upper) or (lower, upper, step); or a mapping with those, and `shape`, or
# `rows` and `columns` for a table with named cells
Ranges = Mapping[str, Sequence[Number] | Mapping[str, Any]]


def program_body(function: Callable[[Any], object], outputs: Ranges) -> Json:
    """Return a function's source and declared outputs as JSON; refuse one without source text."""
    name, source = source_of(function)
    return {"source": source, "name": name, "outputs": outputs_body(outputs)}


def handed_in_body(
    data_set: str, program: Json, columns: Sequence[str] | None, environment: str
) -> Json:
    """Return the request to submit a program, with its columns and environment."""
    named: Json = {} if columns is None else {"columns": list(columns)}
    brought = {"environment": environment} if environment else {}
    return {"data_set": data_set, **program, **named, **brought}


def run_body(
    data_set: str, handed_in: SubmittedProgram, epsilon: Number | None, terms: Json
) -> Json:
    """Return the request to run or plan a submitted program at that epsilon."""
    priced: Json = {} if epsilon is None else {"epsilon": epsilon}
    return {"data_set": data_set, "pipeline": handed_in["digest"], **priced, **terms}


def source_of(function: Callable[..., object]) -> tuple[str, str]:
    """Return a function's name and source text; refuse one that is not a plain `def`."""
    name = getattr(function, "__name__", "")
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        source = ""
    if not name.isidentifier() or not source.startswith("def "):
        raise Refused(
            "bad-pipeline",
            "The function has no name, or its source text cannot be read.",
            "Write it as a plain `def` in a file or a notebook cell. Import what it needs inside "
            "the function.",
        )
    return name, source


def outputs_body(outputs: Ranges) -> list[Json]:
    """Return the declared outputs and their ranges as JSON; refuse an incomplete range."""
    made: list[Json] = []
    for name, bounds in outputs.items():
        if isinstance(bounds, Mapping):
            listed = {key: list(bounds[key]) for key in _LISTS if key in bounds}
            made.append({"name": name, **bounds, **listed})
            continue
        if not 2 <= len(bounds) <= 3:
            raise Refused(
                "bad-pipeline",
                f"The range of output {name!r} must be (lower, upper) or (lower, upper, step).",
                "Give both ends from public knowledge, not from the rows.",
            )
        keys = ("name", "lower", "upper", "step")
        made.append(dict(zip(keys, (name, *bounds), strict=False)))
    return made


def listed_places(text: str) -> list[int | str]:
    """Return the parts of a text such as "0,height", with whole numbers as integers."""
    return [int(one) if one.isdecimal() else one for one in text.split(",") if one]


def output_places(text: str) -> Json:
    """Parse where an output is in its file: a place, or a table's rows, columns, key and place."""
    parts = dict(part.partition("=")[::2] for part in text.split(";"))
    if not set(parts) & {"rows", "columns", "row", "column", "key"}:
        return {"at": listed_places(text)}
    if not {"rows", "columns"} <= set(parts) <= {"rows", "columns", "key", "at"}:
        raise Refused(
            "bad-pipeline",
            f"The place {text!r} of an output is neither a place nor a table with names.",
            "Name the cells of a table by #rows=A,B;columns=C,D, and if needed ;key=COLUMN.",
        )
    key: Json = {"key": parts["key"]} if "key" in parts else {}
    named: Json = {of: parts[of].split(",") for of in ("rows", "columns")}
    return {**named, **key, "at": listed_places(parts.get("at", ""))}


def check_listed(outputs: Sequence[Json], whitelist: str) -> None:
    """Refuse an output whose file is not listed in the whitelist, where `#` starts a comment."""
    lines = {line.partition("#")[0].strip() for line in whitelist.splitlines()}
    for output in outputs:
        if output.get("path") not in lines:
            raise Refused(
                "bad-pipeline",
                f"The file of the output {output['name']!r} is not listed in the whitelist.",
                "Add the file to that list, or take the output from a listed file. Paths are "
                "relative to the output folder.",
            )


def run_named(history: Json, op: str) -> Json | None:
    """Return the request for the answer of a past run of a program, or None if none is listed.

    Args:
        history: A page of the user's own history, up to MOST_PAST operations.
        op: The operation id of the run.
    """
    questions: Any = history["questions"]
    runs = (one for one in questions if one["op"] == op and one.get("pipeline"))
    return next(({"data_set": one["data_set"], "op": op} for one in runs), None)
