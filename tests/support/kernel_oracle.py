"""The kernel's secret order of a person's cells, by plain whole numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from sfumato.engines.kernel import keyed_order as order_module
from sfumato.engines.shared.cold_path import lower_to_kernel
from sfumato.engines.shared.prepared_table import read_prepared_table
from sfumato.engines.shared.remote_tables import measure_request, read_marker
from sfumato.query.measure import Measure
from sfumato.query.printing.expressions import Dialect

WORD = 2**64


def mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
    return word ^ (word >> 31)


def secrets(salt: bytes) -> list[int]:
    digest = hashlib.blake2b(salt.hex().encode(), person=b"sfumato-cells").digest()
    return [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(4)]


def text_key(salt: bytes, text: str) -> int:
    spelt = f"{salt.hex()}:text:{text}".encode()
    return int.from_bytes(hashlib.md5(spelt, usedforsecurity=False).digest()[8:], "little")


def place_of_cell(salt: bytes, person_key: int, cell: Sequence[object], *, public: bool) -> int:
    """Return the secret place of a cell among its person's, by plain whole numbers."""
    keyed = secrets(salt)
    if public:
        (number,) = cell
        assert isinstance(number, int)
        whole = mixed(number ^ keyed[2])
    else:
        parts = [
            text_key(salt, part)
            if isinstance(part, str)
            else mixed(int(str(part)) % WORD ^ keyed[2])
            for part in cell
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = mixed((whole * keyed[3] + part) % WORD)
    first, second = (mixed(person_key ^ keyed[i]) for i in (0, 1))
    bits: int = vars(order_module)["ORDER_BITS"]  # as a test may have set it
    place: int = mixed((whole ^ first) * (second | 1) % WORD) >> (64 - bits)
    return place


def orders_by_kernel(table: str, measure: Measure, kind: str) -> bool:
    """Say whether the kernel's own order decides, and no stored rank and no plain SQL."""
    if kind != "duckdb":
        return _orders_elsewhere(table, measure, kind)
    known = read_prepared_table(Path(table))
    cold = None if not known or measure.joins else lower_to_kernel(measure, known[measure.table])
    return cold is not None and not cold.has_rank


def _orders_elsewhere(table: str, measure: Measure, kind: str) -> bool:
    marker: Any = read_marker(table, kind)
    dialect: Dialect = "postgres" if kind == "postgres" else "spark"
    names = tuple("t" for _ in marker["tables"])
    cold: Any = measure_request(measure, dialect, names, marker, marker["order"])["cold"]
    return cold is not None and not cold["has_rank"]


def kernel_order(measure: Measure, salt: bytes, person_key: Any, cell: Sequence[Any]) -> Any:
    """Return what the kernel sorts a person's cells by."""
    if measure.is_public:
        number = 0
        for key, code in zip(measure.keys, cell, strict=True):
            number = number * (key.size or 0) + code
        return place_of_cell(salt, person_key, (number,), public=True), number
    words = [word_of(value) for value in cell]
    return place_of_cell(salt, person_key, words, public=False), tuple(cell)


def word_of(value: Any) -> object:
    """Return a key as the kernel reads it: texts, else whole numbers."""
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // datetime.resolution
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return value if isinstance(value, str) else int(value)
