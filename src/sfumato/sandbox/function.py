"""Run a researcher's function on the rows of a block; this file runs inside the sandbox.

It is copied there, so it imports nothing of sfumato. It runs in a block that has dropped all
privileges. A hostile function can falsify only the results of its own block.
"""

import __future__

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]  # Any: JSON from the researcher


def _function(job: Job, text: bytes) -> dict[str, str]:
    """Run the function on the rows; return its numbers and arrays as result files."""
    names: dict[str, Any] = {"__name__": "stranger"}
    flags = __future__.annotations.compiler_flag  # names in annotations need not exist
    exec(compile(job["source"], "<function>", "exec", flags), names)  # noqa: S102  # inside a sandbox
    found = names[job["name"]](_frame(text))
    if not isinstance(found, dict):
        found = {job["outputs"][0]: found}
    paths = job.get("paths", ())
    arrays = {str(key): value for key, value in found.items() if f"{key}.npy" in paths}
    plain = {str(key): float(value) for key, value in found.items() if str(key) not in arrays}
    files = {f"{name}.npy": _array_file(value) for name, value in arrays.items()}
    return {"answer.json": _written(plain), **files}


def _array_file(value: object) -> str:
    """Return an array as a hex-encoded .npy file of doubles, without pickle."""
    import io

    numpy: Any = importlib.import_module("numpy")  # Any: may be missing outside
    file = io.BytesIO()
    numpy.save(file, numpy.asarray(value, dtype=numpy.float64), allow_pickle=False)
    return file.getvalue().hex()


def _frame(text: bytes) -> object:
    """Return the rows as a pandas DataFrame; without pandas, as a dict of columns."""
    import io

    if "pandas" not in sys.modules:  # the program's own environment may have it
        with contextlib.suppress(ImportError):
            importlib.import_module("pandas")
    if "pandas" in sys.modules:
        return sys.modules["pandas"].read_csv(io.BytesIO(text), sep="\t")
    lines = [line.split("\t") for line in text.decode().splitlines()]
    return {name: [line[place] for line in lines[1:]] for place, name in enumerate(lines[0])}


def _written(value: object) -> str:
    return json.dumps(value).encode().hex()


RUNS: dict[str, Callable[[Job, bytes], Any]] = {"function": _function}  # Any: files
