"""Parse the census of values that a worker counted: codes and texts become a table.

The parent process runs this module. `value_census.py`, which writes the census, loads DuckDB; the
parent must not load DuckDB.
"""

from __future__ import annotations

import numpy as np

from sfumato.dp.anonymity.coded_table import Table, decoded
from sfumato.dp.refusal import Bug, Refused
from sfumato.engines.shared.message_frames import Header


def read_census(header: Header, body: bytes, *, is_grouped: bool) -> Table:
    """Return the table that a worker has encoded by dictionary, from its answer.

    If equal rows were grouped, the last array holds their counts.
    """
    names, texts = _items(header["names"]), _items(header["texts"])
    rows = int(str(header["rows"]))
    numbers = np.frombuffer(body, np.int64)
    if len(numbers) != rows * (len(names) + is_grouped):
        raise Bug("the worker sent other rows than it said")
    if len({str(name).strip() for name in names}) < len(names):
        raise Refused(
            "bad-request",
            "Two columns of the table have the same name.",
            "Give each column its own name. Blanks around a name do not make it different.",
        )
    parts = numbers.reshape(-1, rows) if rows else np.zeros((len(names) + is_grouped, 0), np.int64)
    columns = {
        str(name).strip(): decoded(str(name).strip(), [str(t) for t in _items(known)], codes)
        for name, known, codes in zip(names, texts, parts, strict=False)
    }
    return Table(columns, rows, parts[-1] if is_grouped else None)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
