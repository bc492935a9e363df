"""How a function of the rows is run in a block; copied into the bubble, so it imports none of ours.

It runs in a block that has given up every right; what it gives is hostile to its own block only.
"""

import __future__

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]  # Any: JSON, as a researcher gave it


def _function(job: Job, text: bytes) -> dict[str, str]:
    """Run a function of one argument, the rows; what it gives is one file of numbers."""
    names: dict[str, Any] = {"__name__": "stranger"}
    flags = __future__.annotations.compiler_flag  # what a type is called need not be there
    exec(compile(job["source"], "<function>", "exec", flags), names)  # noqa: S102  # what a bubble is for
    found = names[job["name"]](_frame(text))
    if not isinstance(found, dict):
        found = {job["outputs"][0]: found}
    paths = job.get("paths", ())
    arrays = {str(key): value for key, value in found.items() if f"{key}.npy" in paths}
    plain = {str(key): float(value) for key, value in found.items() if str(key) not in arrays}
    files = {f"{name}.npy": _array_file(value) for name, value in arrays.items()}
    return {"answer.json": _written(plain), **files}


def _array_file(value: object) -> str:
    """Return an array as numpy writes it to a file, in hex; as doubles, without a pickle."""
    import io

    numpy: Any = importlib.import_module("numpy")  # Any: there may be none out here
    file = io.BytesIO()
    numpy.save(file, numpy.asarray(value, dtype=numpy.float64), allow_pickle=False)
    return file.getvalue().hex()


def _frame(text: bytes) -> object:
    """Return the rows as a pandas frame where there is pandas, else as columns by name."""
    import io

    if "pandas" not in sys.modules:  # a program may have brought one along
        with contextlib.suppress(ImportError):
            importlib.import_module("pandas")
    if "pandas" in sys.modules:
        return sys.modules["pandas"].read_csv(io.BytesIO(text), sep="\t")
    lines = [line.split("\t") for line in text.decode().splitlines()]
    return {name: [line[place] for line in lines[1:]] for place, name in enumerate(lines[0])}


def _written(value: object) -> str:
    return json.dumps(value).encode().hex()


RUNS: dict[str, Callable[[Job, bytes], Any]] = {"function": _function}  # Any: files
