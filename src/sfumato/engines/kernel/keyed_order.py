"""Order each person's cells (groups of the answer) by a keyed PRF, to choose the cells that count.

The order depends only on the salt, the person's key and the cell's key values.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.row_arrays import ORDER_BITS, Columns, SortKeys
from sfumato.engines.shared.cold_path import KernelKey, KernelPlan

_U: Final = np.uint64


def mixed(words: SortKeys) -> SortKeys:
    """Return 64-bit words mixed by a bijection (splitmix64).

    Each output bit depends on all input bits.
    """
    words = (words ^ (words >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> _U(27))) * _U(0x94D049BB133111EB)
    words ^= words >> _U(31)
    return words


class Hashing:
    """Keyed PRF that orders each person's groups under one secret salt.

    A private text enters as its stored hash, because its code may change.
    """

    def __init__(self, salt: str, texts: dict[str, SortKeys]) -> None:
        secret = hashlib.blake2b(salt.encode("ascii"), person=b"sfumato-cells").digest()
        self._secrets = np.frombuffer(secret[:32], dtype="<u8").astype(_U)
        self._texts = texts

    def order(
        self, person_keys: SortKeys, columns: Columns, cold: KernelPlan, low: int
    ) -> SortKeys:
        """Return the order of each person's groups: per row, 24 bits (ORDER_BITS) of a keyed hash.

        The hash is a PRF of the row's person and group.
        """
        first = mixed(person_keys ^ self._secrets[0])
        second = mixed(person_keys ^ self._secrets[1]) | _U(1)
        person = columns["person"].astype(np.intp) - low
        hashes = self._cells(columns, cold)
        hashes ^= first[person]
        hashes *= second[person]
        return mixed(hashes) >> _U(64 - ORDER_BITS)

    def _cells(self, columns: Columns, cold: KernelPlan) -> SortKeys:
        if cold.cells is not None:
            table = mixed(np.arange(cold.cells, dtype=_U) ^ self._secrets[2])
            return table[columns["cell"]]
        whole: SortKeys | None = None
        for place, key in enumerate(cold.keys):
            one = self._key(columns[f"g{place}"], key)
            whole = one if whole is None else mixed(whole * self._secrets[3] + one)
        if whole is None:
            raise Bug("a private cell without a key")
        return whole

    def _key(self, column: NDArray[Any], key: KernelKey) -> SortKeys:
        if key.texts is not None:
            return np.asarray(self._texts[key.texts][column], dtype=_U)
        return mixed(column.astype(np.int64).view(_U) ^ self._secrets[2])


def text_keys(connection: duckdb.DuckDBPyConnection, cold: KernelPlan) -> dict[str, SortKeys]:
    """Return the stored hash of each private text, in the order of the texts, for each text key.

    Return {} if the order of the persons' groups is stored.
    """
    if cold.has_rank:
        return {}
    return {
        key.texts: np.asarray(
            connection.execute(
                f"SELECT text_key FROM {key.texts} ORDER BY {'code' if key.is_ordered else 'value'}"
            ).fetchnumpy()["text_key"],
            dtype=_U,
        )
        for key in cold.keys
        if key.texts is not None
    }


def stored_codes(
    connection: duckdb.DuckDBPyConnection, cold: KernelPlan
) -> dict[str, NDArray[np.int64]]:
    """Return the stored codes in the order of their texts, for each key that has them otherwise.

    The result is by the name of the key's column. After an append, codes are in the order in which
    the texts came, and that order must decide nothing (ranks.proof.md).
    """
    return {
        f"g{place}": connection.execute(f"SELECT code FROM {key.texts} ORDER BY value")
        .fetchnumpy()["code"]
        .astype(np.int64)
        for place, key in enumerate(cold.keys)
        if key.texts is not None and not key.is_ordered
    }


def person_keys(cursor: duckdb.DuckDBPyConnection, low: int, high: int) -> SortKeys:
    found = cursor.execute(
        "SELECT person_key FROM people WHERE person >= ? AND person < ? ORDER BY person",
        [low, high],
    ).fetchnumpy()
    return np.asarray(found["person_key"], dtype=_U)
